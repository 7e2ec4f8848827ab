"""What a call of a library does outside of the program: it writes, or it waits for something that is not computed here.

Told by the names of functions and of their packages: a library's own code is not read.
"""

from __future__ import annotations

import ast
import io
import os
import pathlib
import queue
import shutil
import subprocess
import threading
import time
import types
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.graph.source import is_users
from xttsbench.pipeline.purity.values import LOCAL, Scope, Value, attribute, immutable, is_one_of

_WRITES: Final = frozenset({
    "save", "savez", "savez_compressed", "savetxt", "tofile", "write_text", "write_bytes", "to_csv", "to_parquet",
    "to_pickle", "to_hdf", "mkdir", "makedirs", "touch", "rename", "replace", "unlink", "rmdir", "dump", "imwrite",
    "write", "writelines", "writeframes", "write_wav", "copyfile", "executemany", "commit",
})  # fmt: skip
"""Names of functions of libraries that write."""
_WRITERS: Final = (os, shutil)
_WRITES_ONLY: Final = _WRITES - {"save", "touch", "rename", "replace", "dump", "write", "writelines", "commit"}
"""Those of them that mean nothing else, whatever object has them."""
_FILES: Final = io.IOBase | pathlib.Path
_WAITS: Final = (time.sleep, os.system, os.wait, os.waitpid)
_WAITED_FOR: Final = threading.Event | threading.Condition | threading.Barrier | queue.Queue | subprocess.Popen
_ELSEWHERE: Final = frozenset({
    "subprocess", "socket", "ssl", "select", "asyncio", "http", "urllib", "requests", "httpx", "aiohttp", "boto3",
    "wandb", "mlflow", "comet_ml", "neptune", "clearml", "redis", "psycopg2", "sqlite3", "pymongo",
})  # fmt: skip
"""Packages whose functions ask or tell another program something."""
_PARSES: Final = "urllib.parse"


def library_function(node: ast.Call, scope: Scope) -> tuple[Any, Value]:
    """What a call calls, and the object whose attribute it is; neither is run, and nothing is told."""
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


def called_name(node: ast.Call) -> str:
    """The name by which a function is called, without that of its object."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def opens_to_write(node: ast.Call) -> bool:
    """Whether a call opens a file in a mode that writes."""
    mode = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "mode"), None)
    if called_name(node) not in ("open", "fdopen") or not isinstance(mode, ast.Constant):
        return False
    return isinstance(mode.value, str) and bool(set(mode.value) & set("wax+"))


def may_write(node: ast.Call, owner: Value) -> str | None:
    """Whether a library's call may write, by its name, in words.

    Args:
        node: the call.
        owner: the object whose attribute it calls; text is replaced and not written.
    """
    named = called_name(node)
    if opens_to_write(node):
        return "opens a file to write"
    plain = not isinstance(node.func, ast.Attribute)
    writer = is_one_of(owner.obj, _WRITERS) or owner.obj is np
    if named not in _WRITES or not (plain or writer or not immutable(owner.obj)):
        return None
    if isinstance(owner.obj, str) or (named == "replace" and owner.obj is not os):
        return None
    return f"calls {named}(), which writes"


def surely_outside(node: ast.Call, scope: Scope) -> str | None:
    """What a call surely does outside, in words: it writes a file, waits, or asks another program."""
    function, owner = library_function(node, scope)
    if is_users(getattr(function, "__func__", function)):
        return None
    named = called_name(node)
    if opens_to_write(node):
        return "opens a file to write"
    if is_one_of(function, _WAITS) or (isinstance(owner.obj, _WAITED_FOR) and named in ("wait", "get", "join")):
        return f"calls {named}(), which waits"
    package = str(getattr(function, "__module__", None) or type(owner.obj).__module__)
    root = package.split(".", maxsplit=1)[0]
    if root in _ELSEWHERE and not package.startswith(_PARSES) and not isinstance(function, type):
        return f"calls {named}() of {root}, which another program hears"
    of_module = isinstance(owner.obj, types.ModuleType) and not owner.obj.__name__.startswith(("tensorflow", "keras"))
    if named in ("replace", "rename") and of_module:  # dataclasses have one, too
        of_module = is_one_of(owner.obj, _WRITERS)
    if named in _WRITES_ONLY or (named in _WRITES and (isinstance(owner.obj, _FILES) or of_module)):
        return f"calls {named}(), which writes"
    return None
