"""Abstract values of the expressions and calls of a Python function: made by the call, or outliving it.

Objects are looked at and never called; what is computed stays unknown. Calls whose code is not read are told by what
they are known to run, draw at random, or change.
"""

from __future__ import annotations

import ast
import builtins
import enum
import functools
import inspect
import io
import itertools
import queue
import re
import sys
import types
from collections import ChainMap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from xttsbench.owners import of_framework
from xttsbench.pipeline.source import call_of, cells, is_users, parameters_of


class _Unknown:
    """In place of an object that the code does not lead to."""


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Abstract value of one expression."""

    shared: bool = False
    """Whether the value was there before the call, or may be: a global, a captured variable, a part of one."""
    obj: Any = UNKNOWN
    name: str = ""  # as the code calls it
    clock: bool = False  # whether it comes from the time of day
    others: tuple[Any, ...] = ()  # what it may be instead of ``obj``: one of several transforms in a list

    @property
    def words(self) -> str:
        """For a sentence: the captured list 'seen'."""
        kind = "" if self.obj is UNKNOWN else f"{type(self.obj).__name__} "
        return f"the captured {kind}{self.name!r}" if self.name else "something captured"

    @property
    def objects(self) -> tuple[Any, ...]:
        """All objects that it is known to be one of."""
        return tuple(obj for obj in (self.obj, *self.others) if obj is not UNKNOWN)


LOCAL: Final = Value()


@dataclass
class Scope:
    """The names of one function while it is read."""

    function: Any
    where: str
    names: ChainMap[str, Value] = field(default_factory=ChainMap)
    """Names of the function, then of the functions around it."""
    declared: set[str] = field(default_factory=set)  # names that are declared global or nonlocal
    returned: Value = LOCAL

    def value(self, name: str) -> Value:
        """Abstract value of a name."""
        if name in self.names:
            return self.names[name]
        around = ChainMap(cells(self.function), self.function.__globals__, vars(builtins))
        return Value(True, around.get(name, UNKNOWN), name)

    def inner(self) -> Scope:
        """The scope of a function that is written here."""
        return Scope(self.function, self.where, self.names.new_child())

    def store(self, name: str, value: Value) -> bool:
        """Remember what a name stands for; ``False`` where the name belongs to nobody that is read."""
        owners = [names for names in self.names.maps[1:] if name in names] if name in self.declared else self.names.maps
        if owners:
            owners[0][name] = value
        return bool(owners)


_IMMUTABLE: Final = (
    str | bytes | int | float | complex | bool | frozenset | range | np.generic | np.dtype | enum.Enum | PurePath
    | re.Pattern | types.FunctionType | types.BuiltinFunctionType | types.MethodType | type | types.ModuleType
    | types.NoneType | types.EllipsisType | slice
)  # fmt: skip
PLAIN: Final = bool | int | float | str | types.NoneType | enum.Enum
"""Types of values that a setting has."""
MUTABLE: Final = list | dict | set | bytearray | np.ndarray
_CONTAINERS: Final = list | tuple | dict | set
_MOST_ITEMS: Final = 1000
_MOST_KINDS: Final = 50
_HARMLESS: Final = ("logging", "threading", "_thread", "tqdm")
"""Packages whose objects change nothing that a pipeline yields."""
_TAKES: Final = frozenset({
    "readline", "readframes", "get_next", "fetchone", "fetchmany", "fetchall", "recv", "recv_bytes", "grab",
})  # fmt: skip
SAME_MEMORY: Final = frozenset({
    "view", "reshape", "ravel", "squeeze", "transpose", "swapaxes", "items", "values", "keys", "get",
})  # fmt: skip
"""Names of methods whose result is a part of what they are called on, or a view of it."""


def join(first: Value, second: Value) -> Value:
    """Abstract value where two branches merge."""
    if first.shared == second.shared and first.obj is second.obj and first.clock == second.clock:
        return first
    kept, other = (first, second) if first.shared else (second, first)
    return Value(kept.shared, kept.obj, kept.name, first.clock or second.clock, (*kept.others, *other.objects))


def immutable(obj: Any) -> bool:
    """Whether an object cannot be changed, as far as its type tells."""
    return all(map(immutable, obj[:100])) if isinstance(obj, tuple) else isinstance(obj, _IMMUTABLE)


def harmless(obj: Any) -> bool:
    """Whether changing an object is nobody's business: loggers, locks, standard output, memory of one thread."""
    if obj is sys.stdout or obj is sys.stderr or isinstance(obj, types.ModuleType | type | types.FunctionType):
        return True
    return str(getattr(type(obj), "__module__", "")).split(".")[0] in _HARMLESS


def of_one_thread(obj: Any) -> bool:
    """Whether an object is ``threading.local``, or like one: what a thread keeps there no other sees."""
    return type(obj).__name__ in ("_local", "local")


def is_variable(obj: Any) -> bool:
    """Whether an object is a variable of TensorFlow's or Keras's, which a step may assign."""
    return of_framework(getattr(type(obj), "__module__", None)) and "Variable" in type(obj).__name__


def taken_from(obj: Any, method: str, *, with_arguments: bool) -> bool:
    """Whether a method takes something away from an object that is no container of Python's.

    Files, queues, and what is read like them: frames of a video, rows of a query, elements of an iterator.
    """
    if isinstance(obj, io.IOBase):
        return method.startswith("read")
    if isinstance(obj, queue.Queue | queue.SimpleQueue) or type(obj).__module__ == "multiprocessing.queues":
        return method in ("get", "get_nowait")
    if method == "read":  # with a name it is an archive's, which looks that up
        return not with_arguments or hasattr(type(obj), "seek")
    return method in _TAKES


def attribute(value: Value, name: str) -> Value:
    """``value.name``, without running a property or ``__getattr__`` of anything but a module."""
    label = f"{value.name}.{name}" if value.name else name
    obj = value.obj
    found: Any = UNKNOWN
    if isinstance(obj, super):
        return Value(True, _of_super(obj, name), label)
    if isinstance(obj, types.ModuleType):
        try:
            return Value(True, getattr(obj, name), label)
        except Exception:  # a lazy module may raise anything
            return Value(True, UNKNOWN, label)
    try:
        found = UNKNOWN if obj is UNKNOWN else inspect.getattr_static(obj, name)
        if isinstance(found, types.MemberDescriptorType):  # a slot
            found = found.__get__(obj, type(obj))
    except (AttributeError, TypeError):
        found = UNKNOWN
    if isinstance(found, staticmethod):
        found = found.__func__
    elif isinstance(found, classmethod):
        found = types.MethodType(found.__func__, obj if isinstance(obj, type) else type(obj))
    elif isinstance(found, types.FunctionType) and not isinstance(obj, type) and name not in held_by(obj):
        found = types.MethodType(found, obj)
    elif isinstance(found, property | types.GetSetDescriptorType | types.MethodDescriptorType):
        found = UNKNOWN
    return Value(value.shared, found, label)


def _of_super(obj: Any, name: str) -> Any:
    kinds = list(type(obj.__self__).__mro__)
    after = kinds[kinds.index(obj.__thisclass__) + 1 :] if obj.__thisclass__ in kinds else []
    found = next((vars(kind)[name] for kind in after if name in vars(kind)), UNKNOWN)
    return types.MethodType(found, obj.__self__) if isinstance(found, types.FunctionType) else UNKNOWN


def element(value: Value, key: ast.expr | None = None) -> Value:
    """Abstract value of an element: taken by a loop, or by a subscript with a key."""
    obj, whole_slice = value.obj, isinstance(key, ast.Slice)
    if obj is UNKNOWN:
        return Value(value.shared, UNKNOWN, value.name)
    if isinstance(obj, np.ndarray):
        return LOCAL if obj.ndim < 2 and not whole_slice else Value(True, obj, value.name)  # rows are views
    if not isinstance(obj, _CONTAINERS):
        return LOCAL if immutable(obj) or not value.shared else Value(True, UNKNOWN, value.name)
    if whole_slice and not isinstance(obj, dict):
        return Value(False, obj, value.name)  # a new list of the same things
    if isinstance(key, ast.Constant) and type(obj) in (dict, list, tuple) and not value.others:
        try:
            item = value.obj[key.value]
        except (LookupError, TypeError):
            item = None
        if callable(item):
            return Value(True, item, value.name)
    inside = [one.values() if isinstance(one, dict) else one for one in value.objects if isinstance(one, _CONTAINERS)]
    items = [item for one in inside for item in itertools.islice(one, _MOST_ITEMS)]
    if not items:
        return Value(True, UNKNOWN, value.name)
    kept = _first_of_each_kind(items)
    return Value(True, kept[0], value.name, others=tuple(kept[1:])) if kept else LOCAL


def _first_of_each_kind(items: list[Any]) -> list[Any]:
    """Items that may be changed or called: every callable, and one of each other type."""
    found: dict[Any, Any] = {}
    for item in items:
        if callable(item):
            found.setdefault(id(item), item)
        elif not immutable(item):
            found.setdefault(type(item), item)
    return sorted(found.values(), key=callable)[:_MOST_KINDS]


def held_by(obj: Any) -> dict[str, Any]:
    """The attributes that an object itself has; none where it does not show them as a dictionary."""
    found = getattr(obj, "__dict__", None)
    return found if isinstance(found, dict) else {}


def is_one_of(function: Any, functions: Iterable[Any]) -> bool:
    """Whether an object is one of several; nothing of its own is asked, which might be an array's comparison."""
    return any(function is one for one in functions)


_BY_NAME: Final = frozenset(
    {"__init__", "__new__", "__del__", "__call__", "__enter__", "__exit__", "__getitem__", "__missing__"}
    | {"__setitem__", "__delitem__", "__getstate__", "__setstate__", "__reduce__", "__post_init__"}
    | {"__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__init_subclass__", "__class_getitem__"}
)
"""Special methods that run for what the source shows: the call, the subscript, the ``with``; or around the object."""
_MOST_HELD: Final = 100


def special_methods(obj: Any, names: Iterable[str] | None = None) -> Iterator[types.MethodType]:
    """The user's own methods and properties that Python runs by itself, bound to the object.

    Of some names; without them, all that loops, comparisons, conversions and operators may run.
    """
    if isinstance(obj, types.ModuleType | type):
        return
    kinds = type(obj).__mro__
    if names is None:
        own = dict.fromkeys(name for kind in kinds if kind is not object for name in vars(kind))
        names = ["__getitem__", *(name for name in own if name.startswith("__") and name not in _BY_NAME)]
    for name in names:
        run = next((vars(kind)[name] for kind in kinds if name in vars(kind)), None)
        if isinstance(run, property | functools.cached_property):
            run = run.fget if isinstance(run, property) else run.func
        elif not name.startswith("__"):
            continue  # a method that is only looked up
        if isinstance(run, types.FunctionType) and is_users(run):
            yield types.MethodType(run, obj)


def held_callables(function: Any) -> Iterator[Any]:
    """Callables in the attributes of a library's object, alone or in a list: ``numpy.vectorize``, transforms."""
    if isinstance(function, types.FunctionType | types.ModuleType | type):
        return
    for obj in list(held_by(function).values())[:_MOST_HELD]:
        yield from (one for one in (obj if isinstance(obj, list | tuple) else (obj,)) if not isinstance(one, type))


def looked_up(function: Any, node: ast.Call, given: list[Value], scope: Scope) -> Value | None:
    """Abstract result of ``super()``, ``type()``, ``getattr()``, ``vars()`` or ``globals()``; else ``None``."""
    if function is globals:
        return Value(True, scope.function.__globals__, "globals()")
    if function is super and not given:
        owner, first = cells(scope.function).get("__class__"), next(iter(parameters_of(scope.function)), "")
        me = scope.value(first)
        return Value(True, super(owner, me.obj), me.name) if owner is not None and isinstance(me.obj, owner) else None
    if not given or not given[0].shared or given[0].obj is UNKNOWN:
        return None
    obj, label = given[0].obj, given[0].name
    if function is type and len(given) == 1:
        return Value(True, type(obj), f"type({label})")
    if function is vars:
        return Value(True, getattr(obj, "__dict__", UNKNOWN), f"vars({label})")
    if function is getattr and len(node.args) > 1:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return attribute(given[0], name.value)
        names = dict.fromkeys(name for kind in type(obj).__mro__ for name, one in vars(kind).items() if is_users(one))
        methods = [attribute(given[0], one).obj for one in names if not one.startswith("__")]
        return Value(True, methods[0], label, others=tuple(methods[1:])) if methods else None
    return None


def users_function(obj: Any) -> Any:
    """The function or bound method of the user's that calling an object runs; ``None`` where there is none."""
    if not isinstance(obj, types.FunctionType | types.MethodType):
        call = call_of(obj)
        obj = types.MethodType(call, obj) if isinstance(call, types.FunctionType) else None
    return obj if is_users(getattr(obj, "__func__", obj)) else None


def taken_apart(function: Any) -> tuple[Any, list[Value], dict[Any, Value]]:
    """The function behind ``functools.partial``, and the arguments that are bound to it, which outlive its calls."""
    positional, named = list[Value](), dict[Any, Value]()
    while isinstance(function, functools.partial):
        positional = [*map(_bound, function.args), *positional]
        named = {**{name: _bound(one) for name, one in function.keywords.items()}, **named}
        function = function.func
    return function, positional, named


def _bound(obj: Any) -> Value:
    return LOCAL if immutable(obj) and not callable(obj) else Value(True, obj)
