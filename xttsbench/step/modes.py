"""The same step in another mode: op by op, as one graph, compiled by XLA.

A step that fetches values (``loss.numpy()``, ``float(loss)``) cannot be traced. To learn what compiling it would give,
its fetches are answered with a constant while it is traced; that serves a timing and nothing else, and is said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import ops

Mode = Literal["eager", "graph", "xla"]
Step = Callable[[Any], Any]


def in_mode(step: Step, mode: Mode) -> Step:
    """``step`` in ``mode``; one that is eager runs op by op whatever tf.functions it calls."""
    if mode == "eager":
        return functions_run(step, eagerly=True)
    return tf.function(step, jit_compile=True if mode == "xla" else None, autograph=True)


def functions_run(step: Step, *, eagerly: bool) -> Step:
    """``step`` with the whole process switched before each call, so that the two can take turns in one."""

    def run(batch: Any) -> Any:
        tf.config.run_functions_eagerly(eagerly)
        return step(batch)

    return run


@contextlib.contextmanager
def without_xla() -> Iterator[None]:
    """Within, every new tf.function ignores ``jit_compile=True``: what a target's own XLA gives is seen without it."""
    original = polymorphic_function.Function.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self._jit_compile:
            self._jit_compile = None

    polymorphic_function.Function.__init__ = init
    try:
        yield
    finally:
        polymorphic_function.Function.__init__ = original


class Fetches:
    """How often a traced step asked for a value that does not exist yet."""

    def __init__(self) -> None:
        self.count = 0


@contextlib.contextmanager
def fetches_answered() -> Iterator[Fetches]:
    """Within, a symbolic tensor answers ``numpy()``, ``float()``, ``int()`` and ``item()`` with ones of its shape."""
    fetches = Fetches()

    def ones(tensor: Any) -> np.ndarray[Any, Any]:
        fetches.count += 1
        shape = tensor.shape.as_list() if tensor.shape.rank is not None else []
        return np.ones([size or 1 for size in shape], tensor.dtype.as_numpy_dtype)

    answers: dict[str, Callable[[Any], Any]] = {
        "numpy": ones,
        "__float__": lambda tensor: float(ones(tensor).ravel()[0]),
        "__int__": lambda tensor: int(ones(tensor).ravel()[0]),
        "item": lambda tensor: ones(tensor).ravel()[0].item(),
    }
    symbolic = ops.SymbolicTensor
    before = {name: symbolic.__dict__.get(name) for name in answers}
    for name, answer in answers.items():
        setattr(symbolic, name, answer)
    try:
        yield fetches
    finally:
        for name, old in before.items():
            if old is None:
                delattr(symbolic, name)
            else:
                setattr(symbolic, name, old)
