"""The syntax tree of one Python function, found by its code object, and whose code a function is."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import os
import sysconfig
from pathlib import Path
from types import CodeType
from typing import Any, Final

import tensorflow as tf

import xttsbench
from xttsbench.pipeline.graph.registry import is_tensorflow
from xttsbench.pipeline.graph.source import before_autograph

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_PATHS: Final = sysconfig.get_paths()
_LIBRARIES: Final = tuple(
    {_PATHS[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {str(Path(tf.__file__).parent)}
)
_OWN: Final = str(Path(xttsbench.__file__).parent) + os.sep
_WORKLOAD: Final = tuple(_OWN + name + os.sep for name in ("xtts", "training"))
"""Packages of ours that are measured like a user's code."""


def is_users(function: Any) -> bool:
    """Whether a Python function is of the user's own code: no installed library, not TensorFlow, not this package."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or is_tensorflow(function):
        return False
    file = before_autograph(code.co_filename, code.co_firstlineno)[0] or code.co_filename
    if file.startswith(_OWN):
        return file.startswith(_WORKLOAD)
    parts = Path(file).parts
    if file.startswith(_LIBRARIES) or "site-packages" in parts or "dist-packages" in parts:
        return False
    return not file.startswith("<frozen")


def place(code: CodeType) -> tuple[str, int]:
    """File and line of a code object, where AutoGraph wrote it those of the user's own."""
    file, line = before_autograph(code.co_filename, code.co_firstlineno)
    return (file, line) if file is not None and line is not None else (code.co_filename, code.co_firstlineno)


def definition(code: CodeType) -> Definition | None:
    """The node that a code object was compiled from; ``None`` where its source is gone or says something else."""
    file, line = place(code)
    nodes = [node for node in _definitions(file) if line in (_first_line(node), node.lineno)]
    name = code.co_name.removeprefix("tf__")
    if name == "<lambda>":
        nodes = [node for node in nodes if isinstance(node, ast.Lambda)]
    else:
        nodes = [node for node in nodes if not isinstance(node, ast.Lambda) and node.name == name]
    nodes = [node for node in nodes if _parameters(node) == code.co_varnames[: len(_parameters(node))]]
    if len(nodes) > 1 and file == code.co_filename:
        nodes = [node for node in nodes if _holds(node, code)]
        nodes.sort(key=lambda node: (node.end_lineno or 0) - node.lineno + (node.end_col_offset or 0))  # the innermost
        return nodes[0] if nodes else None
    return nodes[0] if len(nodes) == 1 else None


@functools.lru_cache(maxsize=64)
def _definitions(file: str) -> tuple[Definition, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, Definition))


def _first_line(node: Definition) -> int:
    """Code begins at its first decorator."""
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])


def _parameters(node: Definition) -> tuple[str, ...]:
    """Names of the parameters in the order in which a code object has them."""
    given = node.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
    return tuple(names)


def _holds(node: Definition, code: CodeType) -> bool:
    """Whether the instructions of a code object all come from the node's text."""
    begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    for line, end_line, column, end_column in code.co_positions():
        if line is None or end_line is None or column is None or end_column is None or (column, end_column) == (0, 0):
            continue
        if (line, column) < begin or (end_line, end_column) > end:
            return False
    return True


def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name; none where it does not tell."""
    try:
        return dict(inspect.signature(function, follow_wrapped=False).parameters)
    except (TypeError, ValueError):
        return {}


def call_of(obj: Any) -> Any:
    """What a call of an object runs, as its type has it; ``None`` where calling it is not Python's."""
    return next((vars(kind)["__call__"] for kind in type(obj).__mro__ if "__call__" in vars(kind)), None)
