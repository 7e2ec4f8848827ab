"""Calls that no call in the source shows: special methods, properties, and what a library is given or holds to call."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any, Final

from xttsbench.pipeline.graph.registry import cells
from xttsbench.pipeline.purity.scope import Scope
from xttsbench.pipeline.purity.source import call_of, is_users, parameters_of
from xttsbench.pipeline.purity.values import LOCAL, UNKNOWN, Value, attribute, immutable

ITERATED: Final = ("__iter__", "__next__", "__getitem__", "__len__")
COMPARED: Final = ("__contains__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__")
CONVERTED: Final = (
    "__len__", "__bool__", "__str__", "__repr__", "__int__", "__float__", "__index__", "__abs__", "__hash__",
    "__array__", "__iter__", "__next__", "__round__", "__bytes__", "__reversed__",
)  # fmt: skip
OPERATORS: Final = (
    *(f"__{side}{name}__" for side in ("", "r", "i") for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift",
    )),
    "__neg__", "__pos__", "__invert__", "__bool__", "__format__", "__str__", "__len__",
)  # fmt: skip
"""Methods that Python runs by itself: in loops, in comparisons, in calls of its own types, and for operators."""
_MOST_HELD: Final = 100


def special_methods(obj: Any, names: Iterable[str]) -> Iterator[types.MethodType]:
    """The user's own methods and properties among those that Python runs by itself, bound to the object."""
    if isinstance(obj, types.ModuleType | type):
        return
    for name in names:
        run = next((vars(kind)[name] for kind in type(obj).__mro__ if name in vars(kind)), None)
        if isinstance(run, property):
            run = run.fget
        elif isinstance(run, functools.cached_property):
            run = run.func
        elif not name.startswith("__"):
            continue  # a method that is only looked up
        if isinstance(run, types.FunctionType) and is_users(run):
            yield types.MethodType(run, obj)


def held_callables(function: Any) -> Iterator[Any]:
    """What a library's object holds that can be called, by itself or in a list: ``numpy.vectorize``, transforms."""
    if function is UNKNOWN or isinstance(function, types.FunctionType | types.ModuleType | type):
        return
    held = getattr(function, "__dict__", None)
    for obj in list(held.values())[:_MOST_HELD] if isinstance(held, dict) else ():
        for one in obj if isinstance(obj, list | tuple) else (obj,):
            if callable(one) and not isinstance(one, type):
                yield one


def looked_up(function: Any, node: ast.Call, given: list[Value], scope: Scope) -> Value | None:
    """What ``super()``, ``type()``, ``getattr()``, ``vars()`` and ``globals()`` give; ``None`` for anything else."""
    if function is globals:
        return Value(True, scope.function.__globals__, "globals()")
    if function is super and not given:
        owner, first = cells(scope.function).get("__class__"), next(iter(parameters_of(scope.function)), "")
        me = scope.value(first)
        return Value(True, super(owner, me.obj), me.name) if owner is not None and isinstance(me.obj, owner) else None
    if not given or not given[0].shared or given[0].obj is UNKNOWN:
        return None
    obj = given[0].obj
    if function is type and len(given) == 1:
        return Value(True, type(obj), f"type({given[0].name})")
    if function is vars:
        return Value(True, getattr(obj, "__dict__", UNKNOWN), f"vars({given[0].name})")
    if function is getattr and len(node.args) > 1:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return attribute(given[0], name.value)
        names = dict.fromkeys(name for kind in type(obj).__mro__ for name, one in vars(kind).items() if is_users(one))
        methods = [attribute(given[0], one).obj for one in names if not one.startswith("__")]
        return Value(True, methods[0], given[0].name, others=tuple(methods[1:])) if methods else None
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


def constant_item(base: Value, key: ast.expr) -> Value | None:
    """What a plain dictionary, list or tuple holds under a key that is written out, where that is no plain value."""
    if not isinstance(key, ast.Constant) or type(base.obj) not in (dict, list, tuple) or base.others:
        return None
    try:
        item = base.obj[key.value]
    except (LookupError, TypeError):
        return None
    return Value(True, item, base.name) if callable(item) else None
