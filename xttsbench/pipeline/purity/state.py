"""Whether a Python function keeps state, draws random numbers or tells the time; of a step, what a graph would not do.

State is what parallel calls, calls in other processes, fewer calls or another order would change; a graph of a training
step would change it once, while it is traced, and never again. Functions are read from their source, without running
them, and followed into the user's own functions that they call. Libraries are taken at their word. What the call makes
itself may be changed at will; what was there before may not. A memo that ``functools.lru_cache`` keeps is harmless; a
dictionary that is filled by hand is state, for it is one to the eye.
"""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass
from typing import Any, Final

from xttsbench.pipeline.graph.registry import cells, is_tensorflow
from xttsbench.pipeline.purity.external_mutation import changed_attribute, changed_variable
from xttsbench.pipeline.purity.reading import Reader, from_bytecode
from xttsbench.pipeline.purity.source import call_of
from xttsbench.pipeline.purity.values import Scope, Value

_OF_TENSORFLOW: Final = ("assign", "scatter_", "batch_scatter_", "apply", "update_state", "reset_state", "write")
"""How methods begin through which a graph changes variables, optimizers, metrics and summaries as eager code does."""
_DRAWN_BY_TENSORFLOW: Final = "(tf "


@dataclass(frozen=True, slots=True)
class PythonState:
    """What was found, each in words with the place; ``None`` where nothing was."""

    state: str | None = None
    random: str | None = None
    """Random numbers that no state of the function's own explains, or the time of day in its result."""
    reads: str | None = None
    """What it only reads, and other code changes."""
    reads_within_epoch: str | None = None
    """The same without what Keras has a ``PyDataset`` change between epochs."""


def python_state(function: Any, reader: Reader | None = None) -> PythonState:
    """State and randomness of a function, method, partial, callable object or memoised function.

    Args:
        function: of the user's.
        reader: with which it is read, where that is not the usual one.
    """
    function = _unwrapped(function)  # what is bound by a partial, and that there is a memo, counts
    inner, reader = called(function), _read(function, reader)
    first: dict[str, str] = {}
    for effect in reader.effects:
        first.setdefault("random" if effect.kind == "clock" else effect.kind, effect.text)
    if isinstance(function, functools._lru_cache_wrapper) and "random" in first:
        first.setdefault("state", f"{inner.__name__}() keeps in a memo what it has drawn at random")
    reads = [first.get("read") or changed_elsewhere(reader, within_epoch=within) for within in (False, True)]
    return PythonState(first.get("state"), first.get("random"), *reads)


def state_effects(function: Any) -> tuple[str, ...]:
    """All state that a function keeps, as for :func:`python_state`, each in words with its place."""
    return tuple(effect.text for effect in _read(_unwrapped(function)).effects if effect.kind == "state")


def _read(function: Any, reader: Reader | None = None) -> Reader:
    reader, inner = reader or Reader(), called(function)
    if inner is not None:
        try:
            if isinstance(function, functools.partial):
                reader.partial(function)
            reader.function(inner)
        except Exception:  # objects of a user's may raise whatever they like when they are looked at
            reader.effects.extend(from_bytecode(inner))
    return reader


def trace_time_effects(step: Any) -> str | None:
    """What a step changes in Python's own objects, or draws from Python's generators, with file and line.

    A log that the step appends to, a count that it keeps, a learning rate that it computes from that count: the losses
    of the first steps may be the same all the same. TensorFlow's variables are no part of this, for a graph changes
    them too.

    Args:
        step: as the target returned it, neither traced nor wrapped.

    Returns:
        ``None`` where nothing was found; libraries are taken at their word.
    """
    reader = _StepReader()
    function = called(step)
    if function is None:
        return None
    try:
        reader.function(function)
    except Exception:  # objects of a user's may raise whatever they like when they are looked at
        return None
    found = [effect.text for effect in reader.effects if effect.kind == "state"]
    drawn = [
        effect.text for effect in reader.effects if effect.kind == "random" and _DRAWN_BY_TENSORFLOW not in effect.text
    ]
    return next(iter((*found, *drawn)), None)


class _StepReader(Reader):
    def _method(self, receiver: Value, method: str, node: Any, scope: Scope) -> None:
        if not method.startswith(_OF_TENSORFLOW):
            super()._method(receiver, method, node, scope)


def changed_elsewhere(reader: Reader, *, within_epoch: bool = False) -> str | None:
    """What was read and is changed by code that was not; ``within_epoch`` as for :func:`changed_attribute`."""
    for (code, name), text in reader.variables.items():
        if change := changed_variable(code, name, reader.own):
            return f"{text}, which {change}"
    for (kind, name), text in reader.attributes.items():
        if change := changed_attribute(kind, name, reader.own, within_epoch=within_epoch):
            return f"{text}, which {change}"
    return None


def called(function: Any) -> Any:
    """The function or bound method that a call runs first, TensorFlow's wrappers taken off but nobody else's.

    A wrapper of the user's may keep the state itself, so ``__wrapped__`` is not followed.
    """
    for _ in range(20):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.FunctionType) and is_tensorflow(function):
            inner = _unwrapped(function)
            if inner is function:
                return None
            function = inner
        elif isinstance(function, types.FunctionType | types.MethodType):
            return function
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            call = call_of(function)
            return types.MethodType(call, function) if isinstance(call, types.FunctionType) else None
    return None


def _unwrapped(function: Any) -> Any:
    """The object that TensorFlow's wrappers, such as those of AutoGraph, call; itself where there is none."""
    for _ in range(20):
        if not (isinstance(function, types.FunctionType) and is_tensorflow(function)):
            break
        inner = getattr(function, "__wrapped__", None) or cells(function).get("func")
        if inner is None:
            break
        function = inner
    return function
