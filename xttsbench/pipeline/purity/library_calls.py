"""Functions of Python and of its libraries that draw random numbers, tell the time, or change what they are given."""

from __future__ import annotations

import datetime
import heapq
import os
import random
import secrets
import time
import types
import uuid
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.purity.source import call_of, is_users
from xttsbench.pipeline.purity.values import Value

_CLOCKS: Final = (
    time.time, time.time_ns, time.perf_counter, time.perf_counter_ns, time.monotonic, time.monotonic_ns,
    time.process_time, time.thread_time,
)  # fmt: skip
_ENTROPY: Final = (os.urandom, uuid.uuid1, uuid.uuid4, random.SystemRandom)
_GENERATORS: Final = (np.random.default_rng, np.random.RandomState, random.Random)
_AUGMENTS: Final = ("albumentations", "imgaug", "audiomentations", "torch_audiomentations")
"""Libraries whose transforms draw random numbers unless they are told not to."""
_SEEDS: Final = ("set_seed", "get_seed", "set_random_seed")
_FILLED: Final = (np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal)
_HEAPS: Final = (heapq.heappush, heapq.heappop, heapq.heapify, heapq.heappushpop, heapq.heapreplace)


def draws(function: Any, seeded: bool) -> str | None:
    """The name of a function whose result is random; ``seeded`` where it is given anything.

    Methods of the global generators of Python and NumPy, what takes numbers from the system, generators that are made
    without a seed, and TensorFlow's own random functions but for the stateless ones.
    """
    owner = getattr(function, "__self__", None)
    name = str(getattr(function, "__name__", ""))
    if isinstance(owner, random.Random | np.random.RandomState):
        package = "random" if isinstance(owner, random.Random) else "np.random"
        return None if name.startswith(("get", "seed", "set")) and name != "getrandbits" else f"{package}.{name}"
    if _in(function, _ENTROPY) or getattr(function, "__module__", None) == secrets.__name__:
        return name
    if _in(function, _GENERATORS) and not seeded:
        return f"{name} without a seed"
    return _of_a_library(function, name)


def _of_a_library(function: Any, name: str) -> str | None:
    """Random by what the library calls it: its code is not read."""
    kind = type(function)
    package = str(getattr(function, "__module__", None) or "")
    root = package.split(".", maxsplit=1)[0]
    if root in ("", "numpy", "random") or is_users(function) or is_users(call_of(function)):
        return None
    if root in _AUGMENTS or kind.__name__.startswith("Random"):
        return f"{root} {name or kind.__name__}"
    full = f"{package}.{name}".lower()
    if "random" in full and "stateless" not in full and not isinstance(function, type) and name not in _SEEDS:
        return f"{'tf' if root == 'tensorflow' else root} {name}"
    return "scipy rvs" if name == "rvs" and root == "scipy" else None


def seeds(function: Any) -> bool:
    """Whether a call sets the state of a generator that the whole process uses."""
    if _in(function, (np.random.seed, np.random.set_state)):
        return True
    owner = getattr(function, "__self__", None)
    name = str(getattr(function, "__name__", ""))
    if isinstance(owner, random.Random | np.random.RandomState) and name in ("seed", "setstate", "set_state"):
        return True
    return name in ("set_seed", "set_random_seed") and str(getattr(function, "__module__", "")).startswith(
        ("tensorflow", "keras")
    )


def clock(function: Any) -> bool:
    """Whether a call tells the time."""
    if _in(function, _CLOCKS):
        return True
    owner = getattr(function, "__self__", None)
    dated = owner is datetime.datetime or owner is datetime.date
    return dated and getattr(function, "__name__", "") in ("now", "utcnow", "today")


def writes_into(function: Any, given: list[Value], named: dict[Any, Value]) -> Value | None:
    """The argument that a call changes, where it is one of a library that does."""
    if "out" in named and isinstance(function, np.ufunc | types.BuiltinFunctionType | types.FunctionType):
        return named["out"]
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    shuffles = name == "shuffle" and isinstance(owner, random.Random | np.random.RandomState)
    at = name == "at" and isinstance(owner, np.ufunc)
    if isinstance(function, np.ufunc) and len(given) > function.nin:
        return given[function.nin]
    if given and (shuffles or at or _in(function, _FILLED) or _in(function, _HEAPS)):
        return given[0]
    return None


def setter(function: Any) -> bool:
    """Whether a call sets or deletes an attribute by name."""
    return function is setattr or function is delattr


def _in(function: Any, functions: tuple[Any, ...]) -> bool:
    return any(function is one for one in functions)
