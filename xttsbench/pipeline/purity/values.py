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
    others: tuple[Any, ...] = ()
    """What it may be instead of ``obj``: one of several transforms in a list."""

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
_MOST_ITEMS: Final = 1000
_MOST_KINDS: Final = 50
_HARMLESS_RECEIVERS: Final = ("logging", "threading", "_thread", "tqdm")
"""Packages whose objects change nothing that a pipeline yields."""


def join(first: Value, second: Value) -> Value:
    """What may be either of two."""
    if first.shared == second.shared and first.obj is second.obj and first.clock == second.clock:
        return first
    kept, other = (first, second) if first.shared else (second, first)
    others = (*kept.others, *(() if other.obj is UNKNOWN else (other.obj,)), *other.others)
    return Value(kept.shared, kept.obj, kept.name, first.clock or second.clock, others)


def candidates(value: Value) -> tuple[Any, ...]:
    """All objects that a value is known to be one of."""
    return tuple(obj for obj in (value.obj, *value.others) if obj is not UNKNOWN)


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


def taken_from(obj: Any, method: str, *, with_arguments: bool) -> bool:
    """Whether a method takes something away from an object that is no container of Python's.

    Files, queues, and what is read like them: frames of a video, rows of a query, elements of an iterator.
    """
    if isinstance(obj, io.IOBase):
        return method in ("read", "readline", "readlines", "readinto", "read1")
    if isinstance(obj, queue.Queue | queue.SimpleQueue) or type(obj).__module__ == "multiprocessing.queues":
        return method in ("get", "get_nowait")
    if method == "read":  # with a name it is an archive's, which looks that up
        return not with_arguments or hasattr(type(obj), "seek")
    return method in _TAKES


_TAKES: Final = frozenset({
    "readline", "readframes", "get_next", "fetchone", "fetchmany", "fetchall", "recv", "recv_bytes", "grab",
})  # fmt: skip


def attribute(value: Value, name: str) -> Value:
    """``value.name``, without running a property or ``__getattr__`` of anything but a module."""
    label = f"{value.name}.{name}" if value.name else name
    if value.obj is UNKNOWN:
        return Value(value.shared, UNKNOWN, label)
    obj = value.obj
    if isinstance(obj, super):
        return Value(True, _of_super(obj, name), label)
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


def _of_super(obj: Any, name: str) -> Any:
    """A method of ``super()``, bound to the object that it was made for."""
    kinds = list(type(obj.__self__).__mro__)
    after = kinds[kinds.index(obj.__thisclass__) + 1 :] if obj.__thisclass__ in kinds else []
    found = next((vars(kind)[name] for kind in after if name in vars(kind)), UNKNOWN)
    return types.MethodType(found, obj.__self__) if isinstance(found, types.FunctionType) else UNKNOWN


def element(value: Value, *, whole_slice: bool = False) -> Value:
    """What a subscript or a loop takes out of a value."""
    if value.obj is UNKNOWN:
        return Value(value.shared, UNKNOWN, value.name)
    obj = value.obj
    if isinstance(obj, np.ndarray):
        return LOCAL if obj.ndim < 2 and not whole_slice else Value(True, obj, value.name)  # rows are views
    if isinstance(obj, list | tuple | dict | set):
        if whole_slice and not isinstance(obj, dict):
            return Value(False, obj, value.name)  # a new list of the same things
        items = [item for one in candidates(value) for item in _items(one)]
        if not items:
            return Value(True, UNKNOWN, value.name)
        kept = _first_of_each_kind(items)
        return Value(True, kept[0], value.name, others=tuple(kept[1:])) if kept else LOCAL
    return LOCAL if immutable(obj) or not value.shared else Value(True, UNKNOWN, value.name)


def _items(obj: Any) -> list[Any]:
    if not isinstance(obj, list | tuple | dict | set):
        return []
    return list(obj.values() if isinstance(obj, dict) else obj)[:_MOST_ITEMS]


def _first_of_each_kind(items: list[Any]) -> list[Any]:
    """What may be changed or called: of functions and callable objects each, of all else one of each type."""
    found: dict[Any, Any] = {}
    for item in items:
        if callable(item):
            found.setdefault(id(item), item)
        elif not immutable(item):
            found.setdefault(type(item), item)
    return sorted(found.values(), key=callable)[:_MOST_KINDS]


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


def is_variable(obj: Any) -> bool:
    """Whether an object is a variable of TensorFlow's or Keras's, which a step may assign."""
    module = str(getattr(type(obj), "__module__", ""))
    return module.startswith(("tensorflow.", "keras.")) and "Variable" in type(obj).__name__
