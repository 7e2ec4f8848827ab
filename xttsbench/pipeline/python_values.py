"""What an expression of a Python function may stand for: something that the call made, or something that outlives it.

Objects are looked at and never called; what is computed stays unknown.
"""

from __future__ import annotations

import enum
import inspect
import io
import queue
import random
import re
import sys
import types
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

import numpy as np


class _Unknown:
    """In place of an object that the code does not lead to."""


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Of one expression."""

    shared: bool = False
    """Whether it was there before the call, or may be: a global, a captured variable, a part of one."""
    obj: Any = UNKNOWN
    name: str = ""
    """As the code calls it."""
    clock: bool = False
    """Whether it comes from the time of day."""

    @property
    def words(self) -> str:
        """For a sentence: the captured list 'seen'."""
        kind = "" if self.obj is UNKNOWN else f"{type(self.obj).__name__} "
        return f"the captured {kind}{self.name!r}" if self.name else "something captured"


LOCAL: Final = Value()

_IMMUTABLE: Final = (
    str | bytes | int | float | complex | bool | frozenset | range | np.generic | np.dtype | enum.Enum | PurePath
    | re.Pattern | types.FunctionType | types.BuiltinFunctionType | types.MethodType | type | types.ModuleType
    | types.NoneType | types.EllipsisType | slice
)  # fmt: skip
MUTABLE: Final = list | dict | set | bytearray | np.ndarray
GENERATORS: Final = np.random.Generator | np.random.RandomState | random.Random
_HARMLESS_RECEIVERS: Final = ("logging", "threading", "_thread", "tqdm")
"""Packages whose objects change nothing that a pipeline yields."""


def join(first: Value, second: Value) -> Value:
    """What may be either of two."""
    if first.shared == second.shared and first.obj is second.obj and first.clock == second.clock:
        return first
    kept = first if first.shared else second
    return Value(kept.shared, kept.obj, kept.name, first.clock or second.clock)


def immutable(obj: Any) -> bool:
    """Whether an object cannot be changed, as far as its type tells."""
    if isinstance(obj, tuple):
        return all(immutable(item) for item in obj[:100])
    return isinstance(obj, _IMMUTABLE)


def is_iterator(value: Value) -> bool:
    """Whether taking the next element of it takes it from everyone else."""
    return value.shared and value.obj is not UNKNOWN and hasattr(type(value.obj), "__next__")


def harmless(obj: Any) -> bool:
    """Whether changing an object is nobody's business: loggers, locks, standard output, memory of one thread."""
    if obj is sys.stdout or obj is sys.stderr or isinstance(obj, types.ModuleType | type | types.FunctionType):
        return True
    return str(getattr(type(obj), "__module__", "")).split(".")[0] in _HARMLESS_RECEIVERS


def taken_from(obj: Any, method: str) -> bool:
    """Whether a method takes something away from an object that is no container of Python's."""
    if isinstance(obj, io.IOBase):
        return method in ("read", "readline", "readlines", "readinto", "read1")
    if isinstance(obj, queue.Queue | queue.SimpleQueue) or type(obj).__module__ == "multiprocessing.queues":
        return method in ("get", "get_nowait")
    return False


def attribute(value: Value, name: str) -> Value:
    """``value.name``, without running a property or ``__getattr__`` of anything but a module."""
    label = f"{value.name}.{name}" if value.name else name
    if value.obj is UNKNOWN:
        return Value(value.shared, UNKNOWN, label)
    obj = value.obj
    if isinstance(obj, types.ModuleType):
        try:
            return Value(True, getattr(obj, name), label)
        except Exception:  # a lazy module may raise anything
            return Value(True, UNKNOWN, label)
    try:
        found = inspect.getattr_static(obj, name)
    except (AttributeError, TypeError):
        return Value(value.shared, UNKNOWN, label)
    if isinstance(found, staticmethod):
        found = found.__func__
    elif isinstance(found, classmethod):
        found = types.MethodType(found.__func__, obj if isinstance(obj, type) else type(obj))
    elif isinstance(found, types.FunctionType) and not isinstance(obj, type) and name not in _own(obj):
        found = types.MethodType(found, obj)
    elif isinstance(found, types.MemberDescriptorType):  # a slot
        try:
            found = found.__get__(obj, type(obj))
        except AttributeError:
            found = UNKNOWN
    elif isinstance(found, property | types.GetSetDescriptorType | types.MethodDescriptorType):
        found = UNKNOWN
    return Value(value.shared, found, label)


def element(value: Value, *, whole_slice: bool = False) -> Value:
    """What a subscript or a loop takes out of a value."""
    if not value.shared or value.obj is UNKNOWN:
        return Value(value.shared, UNKNOWN, value.name)
    obj = value.obj
    if isinstance(obj, np.ndarray):
        return LOCAL if obj.ndim < 2 and not whole_slice else Value(True, obj, value.name)  # rows are views
    if isinstance(obj, list | tuple | dict | set):
        items = list(obj.values() if isinstance(obj, dict) else obj)[:1000]
        if whole_slice and not isinstance(obj, dict):
            return LOCAL
        if not items:
            return Value(True, UNKNOWN, value.name)
        kept = next((item for item in items if not immutable(item)), None)
        return LOCAL if kept is None else Value(True, kept, value.name)
    return LOCAL if immutable(obj) else Value(True, UNKNOWN, value.name)


def _own(obj: Any) -> dict[str, Any]:
    found = getattr(obj, "__dict__", {})
    return found if isinstance(found, dict) else {}


MUTATORS: Final = frozenset({
    "append", "appendleft", "extend", "extendleft", "insert", "update", "setdefault", "pop", "popleft", "popitem",
    "add", "discard", "remove", "clear", "sort", "reverse", "rotate", "fill", "put", "put_nowait", "write",
    "writelines", "seek", "truncate", "send", "throw", "__next__", "__setitem__", "__delitem__", "__setattr__",
    "assign", "assign_add", "assign_sub", "intersection_update", "difference_update", "symmetric_difference_update",
    "subtract", "move_to_end", "itemset", "resize", "partition", "increment",
})  # fmt: skip
"""Names of methods that change what they are called on."""
SAME_MEMORY: Final = frozenset({
    "view", "reshape", "ravel", "squeeze", "transpose", "swapaxes", "items", "values", "keys", "get",
})  # fmt: skip
"""Names of methods whose result is a part of what they are called on, or a view of it."""


def of_one_thread(obj: Any) -> bool:
    """Whether an object is ``threading.local``, or like one: what a thread keeps there no other sees."""
    return type(obj).__name__ in ("_local", "local")
