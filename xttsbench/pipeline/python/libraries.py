"""Side effects of a library's calls: random draws, clock reads, changes of an argument, writes and waits.

Told by what is called and by names of functions and packages: a library's own code is not read.
"""

from __future__ import annotations

import ast
import datetime
import heapq
import io
import os
import pathlib
import queue
import random
import re
import secrets
import shutil
import subprocess
import threading
import time
import types
import uuid
from typing import Any, Final

import numpy as np

from xttsbench.owners import of_framework
from xttsbench.pipeline.python.names import last_name
from xttsbench.pipeline.python.values import LOCAL, Scope, Value, attribute, immutable, is_one_of
from xttsbench.pipeline.source import call_of, is_users

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
_FILLED: Final = (  # functions that change their first argument
    np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal,
    heapq.heappush, heapq.heappop, heapq.heapify, heapq.heappushpop, heapq.heapreplace,
)  # fmt: skip
_WRITES: Final = frozenset({  # names of functions of libraries that write
    "save", "savez", "savez_compressed", "savetxt", "tofile", "write_text", "write_bytes", "to_csv", "to_parquet",
    "to_pickle", "to_hdf", "mkdir", "makedirs", "touch", "rename", "replace", "unlink", "rmdir", "dump", "imwrite",
    "write", "writelines", "writeframes", "write_wav", "copyfile", "executemany", "commit",
})  # fmt: skip
_WRITERS: Final = (os, shutil)
_WRITES_ONLY: Final = _WRITES - {"save", "touch", "rename", "replace", "dump", "write", "writelines", "commit"}
"""Names of methods that always write, whatever object has them."""
_FILES: Final = io.IOBase | pathlib.Path
_WAITS: Final = (time.sleep, os.system, os.wait, os.waitpid)
_WAITED_FOR: Final = threading.Event | threading.Condition | threading.Barrier | queue.Queue | subprocess.Popen
_ELSEWHERE: Final = frozenset({  # packages whose functions ask or tell another program something
    "subprocess", "socket", "ssl", "select", "asyncio", "http", "urllib", "requests", "httpx", "aiohttp", "boto3",
    "wandb", "mlflow", "comet_ml", "neptune", "clearml", "redis", "psycopg2", "sqlite3", "pymongo",
})  # fmt: skip
_PARSES: Final = "urllib.parse"
_WRITING_MODE: Final = re.compile(r"[rbt]*[wax+][rwaxbt+]*")


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
    framework = of_framework(getattr(function, "__module__", None))
    return is_one_of(function, (np.random.seed, np.random.set_state)) or (
        framework and name in ("set_seed", "set_random_seed")
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


def _called(node: ast.Call, scope: Scope) -> tuple[Any, Value]:
    """Callee of a call, and the object whose attribute it is, found without running or recording anything."""
    if isinstance(node.func, ast.Attribute):
        owner = _held(node.func.value, scope)
        return attribute(owner, node.func.attr).obj, owner
    return _held(node.func, scope).obj, LOCAL


def _held(node: ast.expr, scope: Scope) -> Value:
    match node:
        case ast.Name(id=name):
            return scope.value(name)
        case ast.Attribute(value=value, attr=name):
            return attribute(_held(value, scope), name)
    return LOCAL


def _opens_to_write(node: ast.Call, owner: Value) -> bool:
    """Whether a call opens a file in a mode that writes; a path's own ``open`` is given no name before the mode."""
    if last_name(node.func) not in ("open", "fdopen"):
        return False
    of_path = isinstance(node.func, ast.Attribute) and not isinstance(owner.obj, types.ModuleType)
    modes = [*node.args[0 if of_path else 1 : 2], *(one.value for one in node.keywords if one.arg == "mode")]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(_WRITING_MODE.fullmatch(text) for text in texts)


def may_write(node: ast.Call, owner: Value) -> str | None:
    """Whether a library's call of an attribute of an object may write, by its name, in words."""
    named = last_name(node.func)
    if _opens_to_write(node, owner):
        return "opens a file to write"
    plain = not isinstance(node.func, ast.Attribute)
    writer = is_one_of(owner.obj, _WRITERS) or owner.obj is np
    if named not in _WRITES or not (plain or writer or not immutable(owner.obj)):
        return None
    if isinstance(owner.obj, str) or (named == "replace" and owner.obj is not os):
        return None
    return f"calls {named}(), which writes"


def surely_outside(node: ast.Call, scope: Scope) -> str | None:
    """Phrase for a call's certain effect outside: it writes a file, waits, or asks another program; else ``None``."""
    function, owner = _called(node, scope)
    if is_users(getattr(function, "__func__", function)):
        return None
    named = last_name(node.func)
    if _opens_to_write(node, owner):
        return "opens a file to write"
    if is_one_of(function, _WAITS) or (isinstance(owner.obj, _WAITED_FOR) and named in ("wait", "get", "join")):
        return f"calls {named}(), which waits"
    package = str(getattr(function, "__module__", None) or type(owner.obj).__module__)
    root = package.split(".", maxsplit=1)[0]
    if root in _ELSEWHERE and not package.startswith(_PARSES) and not isinstance(function, type):
        return f"calls {named}() of {root}, which another program hears"
    of_module = isinstance(owner.obj, types.ModuleType) and not of_framework(owner.obj.__name__)
    if named in ("replace", "rename") and of_module:  # dataclasses have one, too
        of_module = is_one_of(owner.obj, _WRITERS)
    if named in _WRITES_ONLY or (named in _WRITES and (isinstance(owner.obj, _FILES) or of_module)):
        return f"calls {named}(), which writes"
    return None
