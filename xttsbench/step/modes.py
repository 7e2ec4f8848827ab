"""The training step as ``step(batch)``: in another mode, or that of ``model.fit``; its loss; the wait for its device.

A step that fetches values (``loss.numpy()``, ``float(loss)``) cannot be traced. To learn what compiling it would give,
its fetches are answered with a constant while it is traced; that serves a timing and nothing else, and is said.

Keras compiles the iteration together with the step, which hides the wait for data; here the step alone is compiled,
with the model's own ``run_eagerly`` and ``jit_compile``, and metrics are read as ``fit`` reads them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import ops

if TYPE_CHECKING:
    import keras

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


def keras_step(model: keras.Model) -> Callable[[Any], Any]:
    """One training step of a compiled Keras model on a batch of its dataset."""
    import keras  # here, or a script that does without Keras would import it by being watched

    def train_step(batch: Any) -> Any:
        return model.train_step(batch)

    compiled = (
        train_step
        if model.run_eagerly
        else tf.function(
            tf.autograph.experimental.do_not_convert(train_step),
            reduce_retracing=True,
            jit_compile=bool(model.jit_compile) or None,
        )
    )
    built = False

    def step(batch: Any) -> Any:
        nonlocal built
        if not built:
            # As `fit` does: variables are made outside of the traced function.
            model._maybe_symbolic_build(data_batch=keras.utils.unpack_x_y_sample_weight(batch))
            built = True
        return compiled(batch)

    return step


def synchroniser() -> Callable[[], None] | None:
    """A function that blocks until all devices are idle, or ``None`` where every op already runs in place."""
    if not tf.config.list_physical_devices("GPU"):
        return None
    return tf.test.experimental.sync_devices


def loss_of(value: Any) -> float | None:
    """What a step returns as a float: a number, a tensor of one, or what lies under ``loss``, as Keras returns it."""
    if isinstance(value, Mapping):
        value = value.get("loss")
    if value is None or isinstance(value, bool | str | bytes):
        return None
    try:
        array = np.asarray(value)
        dtype = tf.as_dtype(array.dtype)
    except (TypeError, ValueError):
        return None
    return float(array.reshape(())) if dtype.is_floating and array.size == 1 else None
