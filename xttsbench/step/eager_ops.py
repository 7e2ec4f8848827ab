"""The ops that a step launches from Python, one by one: their time, the stack behind them, and what comes in between.

It stands before TensorFlow's two entries for eager ops, and before calls of traced functions, while it is entered. Its
own time is measured and left out; still no timing of a step uses a run that it watched.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager.polymorphic_function import atomic_function, polymorphic_function

from xttsbench.step.frames import Frame
from xttsbench.step.sampler import CALLER

_MAX_OPS: Final = 100_000
Stack = tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class EagerOp:
    """One op launched from Python: type, seconds, where its result is, the types of its results, and the stack."""

    op: str
    time_s: float
    device: str
    dtypes: tuple[str, ...]
    stack: Stack

    @property
    def frames(self) -> list[Frame]:
        """The stack that launched it, outermost first, from the step inwards."""
        return [Frame(code.co_filename, line, code.co_name) for code, line in reversed(self.stack)]


@dataclass
class EagerOps:
    """Use it as a context manager around some steps; call :meth:`begin_step` before each of them.

    Attributes:
        steps: the ops of each step, in order.
        functions: traced functions that were called, by name, ``AtomicFunction``.
        compiled: of those compiled by XLA as a whole, the ``tf.function`` with the arguments of its last call.
        inside_s: seconds, over all steps, inside ops, called functions and this class itself.
    """

    steps: list[list[EagerOp]] = field(default_factory=list)
    functions: dict[str, Any] = field(default_factory=dict)
    compiled: dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    inside_s: float = 0.0
    _undo: list[Callable[[], None]] = field(default_factory=list)
    _depth: int = 0
    _count: int = 0

    def begin_step(self) -> None:
        """Begin the list of another step."""
        self.steps.append([])

    def __enter__(self) -> EagerOps:
        self._patch(pywrap_tfe, "TFE_Py_FastPathExecute", lambda original: self._around_op(original, 1))
        self._patch(pywrap_tfe, "TFE_Py_Execute", lambda original: self._around_op(original, 2))
        self._patch(atomic_function.AtomicFunction, "call_flat", self._around_call)
        self._patch(polymorphic_function.Function, "__call__", self._around_function)
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()

    def _patch(self, owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, around(original))
        self._undo.append(lambda: setattr(owner, name, original))

    def _around_op(self, original: Callable[..., Any], name_at: int) -> Callable[..., Any]:
        clock = time.perf_counter

        def execute(*args: Any) -> Any:
            entered = clock()
            name = str(args[name_at])
            if self._depth or not self.steps or self._count >= _MAX_OPS or name.startswith("__"):
                return original(*args)
            stack = _stack()
            self._depth += 1
            began = clock()
            try:
                result = original(*args)
            finally:
                ended = clock()
                self._depth -= 1
                self.inside_s += ended - entered
            self._count += 1
            first = _first(result)
            device = getattr(first, "device", "") if first is not None else ""
            dtypes = (first.dtype.name,) if first is not None else ()
            self.steps[-1].append(EagerOp(name, ended - began, device or "", dtypes, stack))
            self.inside_s += clock() - ended
            return result

        return execute

    def _around_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter

        def call_flat(function: Any, *args: Any) -> Any:
            if self._depth or not self.steps:
                return original(function, *args)
            name = function.name.decode() if isinstance(function.name, bytes) else str(function.name)
            self.functions[name] = function
            self._depth += 1
            began = clock()
            try:
                return original(function, *args)
            finally:
                self._depth -= 1
                self.inside_s += clock() - began

        return call_flat

    def _around_function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self.steps and getattr(function, "_jit_compile", None):
                self.compiled[id(function)] = (function, args, kwargs)
            return original(function, *args, **kwargs)

        return call


def _stack() -> Stack:
    frames = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != CALLER:
        frames.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(frames)


def _first(result: Any) -> Any:
    if isinstance(result, list | tuple):
        return next((one for one in result if hasattr(one, "dtype")), None)
    return result if hasattr(result, "dtype") else None


def all_ops(steps: Iterable[Iterable[EagerOp]]) -> list[EagerOp]:
    """The ops of all steps in one list."""
    return [op for step in steps for op in step]
