"""The function of a script that takes a whole batch, found by the identity of its arguments when it is called.

A step that runs op by op calls no tf.function that could be kept. Python tells of every call to whoever asks, which
takes far too long for a step that is timed; so it is asked in a step of a sampling window, which is not.
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import tensorflow as tf

from xttsbench.ownership import owner


def takes_batch(batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[int, int]] | None:
    """Where the tensors of the batch are among the arguments.

    Returns:
        Pairs (position among the flat arguments, position in the flat batch); ``None`` unless every tensor of the batch
        is handed on as it is.
    """
    wanted = {id(leaf): index for index, leaf in enumerate(tf.nest.flatten(batch))}
    if not wanted:
        return None
    found = [(at, wanted[id(leaf)]) for at, leaf in enumerate(tf.nest.flatten((args, kwargs))) if id(leaf) in wanted]
    return found if {index for _, index in found} == set(wanted.values()) else None


def as_step(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], places: list[tuple[int, int]]
) -> Callable[[Any], Any]:
    """``step(batch)``: the function with its last arguments, the batch's tensors replaced by those of another batch."""
    kept = tf.nest.flatten((args, kwargs))
    for at, _ in places:
        kept[at] = None  # the old batch is not kept alive
    structure = tf.nest.map_structure(lambda _: None, (args, kwargs))

    def step(batch: Any) -> Any:
        leaves, flat = tf.nest.flatten(batch), list(kept)
        for at, index in places:
            flat[at] = leaves[index]
        own_args, own_kwargs = tf.nest.pack_sequence_as(structure, flat)
        return function(*own_args, **own_kwargs)

    return step


def place_of(function: Any) -> str:
    """``name (file:line)`` of a tf.function or a Python function."""
    plain = inspect.unwrap(getattr(function, "python_function", function))
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None)
    name = getattr(plain, "__name__", type(plain).__name__)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


_LOOKS: Final = 3
"""Steps in which it is looked for at most."""

Found = Callable[[Callable[[Any], Any], str], None]
"""Called with the step and its place."""


class PythonStep:
    """Looks for the outermost function of the user's that is called with every tensor of a batch."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._batch: Any = None
        self._looks = 0

    def begin(self, batch: Any) -> None:
        """The step on this batch begins; nothing happens where the script has a profiler of its own."""
        if self._looks < _LOOKS and sys.getprofile() is None and threading.current_thread() is threading.main_thread():
            self._looks += 1
            self._batch = batch
            sys.setprofile(self._called)

    def end(self) -> None:
        """That step is over."""
        if self._batch is not None:
            self._batch = None
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or owner(frame.f_code.co_filename) not in ("user", "workload"):
            return
        try:
            args, kwargs = _arguments(frame)
            places = takes_batch(self._batch, args, kwargs)
            function = _function_of(frame) if places is not None else None
        except Exception:  # a value of the script's that does not bear being looked at
            return
        if places is not None and function is not None:
            self.end()
            self._found(as_step(function, args, kwargs, places), place_of(function))


def _arguments(frame: FrameType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a frame that has just been entered was called with."""
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames
    args = [values[name] for name in names[: code.co_argcount]]
    end = code.co_argcount + code.co_kwonlyargcount
    kwargs = {name: values[name] for name in names[code.co_argcount : end]}
    if code.co_flags & inspect.CO_VARARGS:
        args.extend(values[names[end]])
        end += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(values[names[end]])
    return tuple(args), kwargs


def _function_of(frame: FrameType) -> FunctionType | None:
    """The function that a frame runs: of those with its code the one that closes over the same variables."""
    code: CodeType = frame.f_code
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return None
    for one in gc.get_referrers(code):
        if isinstance(one, FunctionType) and one.__code__ is code and _closes_over(one, frame):
            return one
    return None


def _closes_over(function: FunctionType, frame: FrameType) -> bool:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            if cell.cell_contents is not frame.f_locals.get(name):
                return False
        except ValueError:  # not assigned yet
            return name not in frame.f_locals
    return True
