"""Whether a Python function keeps state, draws random numbers or tells the time.

That is what parallel calls, calls in other processes, fewer calls or another order would change.

Read from its source, without running it, and followed into the user's own functions that it calls. Libraries are taken
at their word. What the call makes itself may be changed at will; what was there before may not. A memo that
``functools.lru_cache`` keeps is harmless; a dictionary that is filled by hand is state, for it is one to the eye.
"""

from __future__ import annotations

import dis
import functools
import os
import types
from dataclasses import dataclass
from typing import Any, Final, Literal

from xttsbench.pipeline.graph.registry import cells, is_tensorflow
from xttsbench.pipeline.purity.external_mutation import changed_attribute, changed_variable
from xttsbench.pipeline.purity.reading import Reader
from xttsbench.pipeline.purity.scope import Told
from xttsbench.pipeline.purity.source import call_of, place
from xttsbench.pipeline.purity.values import MUTATORS

Kind = Literal["state", "random", "clock", "read"]

_FREE: Final = ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")


@dataclass(frozen=True, slots=True)
class PythonState:
    """What was found, each in words with the place; ``None`` where nothing was."""

    state: str | None = None
    random: str | None = None
    """Random numbers that no state of the function's own explains, or the time of day in its result."""
    reads: str | None = None
    """What it only reads, and other code changes."""


def python_state(function: Any) -> PythonState:
    """State and randomness of a function, method, partial, callable object or memoised function."""
    reader = Reader(from_bytecode)
    function = _unwrapped(function)  # what is bound by a partial, and that there is a memo, counts
    inner = called(function)
    if inner is not None:
        try:
            if isinstance(function, functools.partial):
                reader.partial(function)
            reader.function(inner)
        except Exception:  # objects of a user's may raise whatever they like when they are looked at
            reader.told.extend(from_bytecode(inner))
    first: dict[str, str] = {}
    for told in reader.told:
        first.setdefault("random" if told.kind == "clock" else told.kind, told.text)
    if isinstance(function, functools._lru_cache_wrapper) and "random" in first:
        first.setdefault("state", f"{inner.__name__}() keeps in a memo what it has drawn at random")
    return PythonState(first.get("state"), first.get("random"), first.get("read") or _changed_elsewhere(reader))


def _changed_elsewhere(reader: Reader) -> str | None:
    """What was read and is changed by code that was not."""
    for (code, name), text in reader.variables.items():
        if change := changed_variable(code, name, reader.own):
            return f"{text}, which {change}"
    for (kind, name), text in reader.attributes.items():
        if change := changed_attribute(kind, name, reader.own):
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


def from_bytecode(function: Any) -> list[Told]:
    """What can be told of a function whose source is gone: stores into what is captured, next to its name."""
    function = getattr(function, "__func__", function)
    code = function.__code__
    free = set(code.co_freevars)
    file, line = place(code)
    where = f"{code.co_name}() at {os.path.basename(file)}:{line}"
    found = []
    before: list[dis.Instruction] = []
    values = cells(function) | {name: function.__globals__.get(name) for name in code.co_names}
    for one in dis.get_instructions(code):
        name = str(one.argval)
        if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (one.opname == "STORE_DEREF" and name in free):
            found.append(Told("state", f"{where} sets the variable {name!r}, which outlives the call"))
        base = None
        if one.opname in ("STORE_ATTR", "DELETE_ATTR") and before:
            base = before[-1]
        elif one.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") and len(before) > 1:
            base = before[-2]
        elif one.opname in ("LOAD_METHOD", "LOAD_ATTR") and name in MUTATORS and before:
            base = before[-1]
        if base is not None and base.opname in _FREE and _is_free(str(base.argval), free, values):
            found.append(Told("state", f"{where} changes what is captured as {base.argval!r}"))
        if one.opname not in ("CACHE", "PRECALL", "RESUME", "NOP", "EXTENDED_ARG"):
            before.append(one)
    return found


def _is_free(name: str, free: set[str], values: dict[str, Any]) -> bool:
    return (name in free or name in values) and not isinstance(values.get(name), types.ModuleType)
