"""Calls whose code is not read, and calls that the source does not show: what they run, draw at random, or change."""

from __future__ import annotations

import ast
import datetime
import functools
import heapq
import os
import random
import secrets
import time
import types
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.graph.registry import cells
from xttsbench.pipeline.purity.source import call_of, is_users, parameters_of
from xttsbench.pipeline.purity.values import LOCAL, UNKNOWN, Scope, Value, attribute, held_by, immutable

_CLOCKS: Final = (
    time.time, time.time_ns, time.perf_counter, time.perf_counter_ns, time.monotonic, time.monotonic_ns,
    time.process_time, time.thread_time,
)  # fmt: skip
_ENTROPY: Final = (os.urandom, uuid.uuid1, uuid.uuid4, random.SystemRandom)
_MAKES_GENERATORS: Final = (np.random.default_rng, np.random.RandomState, random.Random)
_GLOBAL_GENERATORS: Final = (random.Random, np.random.RandomState)
"""Kinds of the generators whose methods ``random`` and ``np.random`` have as functions."""
_AUGMENTS: Final = ("albumentations", "imgaug", "audiomentations", "torch_audiomentations")
"""Libraries whose transforms draw random numbers unless they are told not to."""
_SEEDS: Final = ("set_seed", "get_seed", "set_random_seed")
_FILLED: Final = (
    np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal,
    heapq.heappush, heapq.heappop, heapq.heapify, heapq.heappushpop, heapq.heapreplace,
)  # fmt: skip
"""Functions that change their first argument."""


def draws(function: Any, seeded: bool) -> str | None:
    """The name of a function whose result is random; ``seeded`` where it is given anything.

    Methods of the global generators of Python and NumPy, what takes numbers from the system, generators that are made
    without a seed, and TensorFlow's own random functions but for the stateless ones.
    """
    owner, name = getattr(function, "__self__", None), str(getattr(function, "__name__", ""))
    if isinstance(owner, _GLOBAL_GENERATORS):
        package = "random" if isinstance(owner, random.Random) else "np.random"
        return None if name.startswith(("get", "seed", "set")) and name != "getrandbits" else f"{package}.{name}"
    if is_one_of(function, _ENTROPY) or getattr(function, "__module__", None) == secrets.__name__:
        return name
    if is_one_of(function, _MAKES_GENERATORS) and not seeded:
        return f"{name} without a seed"
    # A library's own, by what it is called: its code is not read.
    kind = type(function).__name__
    package = str(getattr(function, "__module__", None) or "")
    root = package.split(".", maxsplit=1)[0]
    if root in ("", "numpy", "random") or is_users(function) or is_users(call_of(function)):
        return None
    if root in _AUGMENTS or kind.startswith("Random"):
        return f"{root} {name or kind}"
    full = f"{package}.{name}".lower()
    if "random" in full and "stateless" not in full and not isinstance(function, type) and name not in _SEEDS:
        return f"{'tf' if root == 'tensorflow' else root} {name}"
    return "scipy rvs" if name == "rvs" and root == "scipy" else None


def seeds(function: Any) -> bool:
    """Whether a call sets the state of a generator that the whole process uses."""
    owner, name = getattr(function, "__self__", None), str(getattr(function, "__name__", ""))
    if isinstance(owner, _GLOBAL_GENERATORS):
        return name in ("seed", "setstate", "set_state")
    of_tensorflow = str(getattr(function, "__module__", "")).startswith(("tensorflow", "keras"))
    return is_one_of(function, (np.random.seed, np.random.set_state)) or (
        of_tensorflow and name in ("set_seed", "set_random_seed")
    )


def clock(function: Any) -> bool:
    """Whether a call tells the time."""
    dated = is_one_of(getattr(function, "__self__", None), (datetime.datetime, datetime.date))
    return is_one_of(function, _CLOCKS) or (dated and getattr(function, "__name__", "") in ("now", "utcnow", "today"))


def writes_into(function: Any, given: list[Value], named: dict[Any, Value]) -> Value | None:
    """The argument that a call changes, where it is one of a library that does."""
    if "out" in named and isinstance(function, np.ufunc | types.BuiltinFunctionType | types.FunctionType):
        return named["out"]
    if isinstance(function, np.ufunc):
        return given[function.nin] if len(given) > function.nin else None
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    shuffles = name == "shuffle" and isinstance(owner, _GLOBAL_GENERATORS)
    at = name == "at" and isinstance(owner, np.ufunc)
    return given[0] if given and (shuffles or at or is_one_of(function, _FILLED)) else None


def is_one_of(function: Any, functions: tuple[Any, ...]) -> bool:
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

    Args:
        obj: any object.
        names: of methods and properties; without them, all that loops, comparisons, conversions and operators may run.
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
    """What a library's object holds that can be called, by itself or in a list: ``numpy.vectorize``, transforms."""
    if isinstance(function, types.FunctionType | types.ModuleType | type):
        return
    for obj in list(held_by(function).values())[:_MOST_HELD]:
        yield from (one for one in (obj if isinstance(obj, list | tuple) else (obj,)) if not isinstance(one, type))


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
