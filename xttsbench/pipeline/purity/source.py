"""The syntax trees of the user's files, and that of one Python function in them, found by its code object."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Iterator
from types import CodeType
from typing import Any

from xttsbench.pipeline.graph.registry import is_tensorflow
from xttsbench.pipeline.graph.source import before_autograph, whose

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def is_users(function: Any) -> bool:
    """Whether a Python function is of the user's own code: no installed library, not TensorFlow, not this package."""
    code = getattr(function, "__code__", None)
    return isinstance(code, CodeType) and not is_tensorflow(function) and whose(place(code)[0]) == "user"


def place(code: CodeType) -> tuple[str, int]:
    """File and line of a code object, where AutoGraph wrote it those of the user's own."""
    file, line = before_autograph(code.co_filename, code.co_firstlineno)
    return (file, line) if file is not None and line is not None else (code.co_filename, code.co_firstlineno)


def definition(code: CodeType) -> Definition | None:
    """The node that a code object was compiled from; ``None`` where its source is gone or says something else."""
    file, line = place(code)
    name = code.co_name.removeprefix("tf__")
    nodes = [
        node
        for node in definitions(file)
        if line in (first_line(node), node.lineno)
        and getattr(node, "name", "<lambda>") == name
        and parameter_names(node) == code.co_varnames[: len(parameter_names(node))]
    ]
    if len(nodes) > 1 and file == code.co_filename:
        nodes = [node for node in nodes if holds(node, code)]
        # Of several that hold all its instructions it is the innermost.
        return min(nodes, key=lambda n: (n.end_lineno or 0) - n.lineno + (n.end_col_offset or 0), default=None)
    return nodes[0] if len(nodes) == 1 else None


@functools.lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module:
    """The syntax tree of a file, in which each node has its ``parent``; an empty one where it cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node  # type: ignore[attr-defined]
    return tree


@functools.lru_cache(maxsize=64)
def definitions(file: str) -> tuple[Definition, ...]:
    """All functions that are written in a file."""
    return tuple(node for node in ast.walk(tree_of(file)) if isinstance(node, Definition))


def within(node: Any) -> Iterator[Any]:
    """The nodes of a function, without those of functions and classes written inside it."""
    waiting = list(node.body) if isinstance(node.body, list) else [node.body]
    while waiting:
        one = waiting.pop()
        yield one
        if not isinstance(one, Definition | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(one))


def first_line(node: Definition) -> int:
    """Code begins at its first decorator."""
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])


def parameter_names(node: Definition) -> tuple[str, ...]:
    """Names of the parameters in the order in which a code object has them."""
    given = node.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    return tuple(one.arg for one in every if one is not None)


def holds(node: Definition | ast.GeneratorExp, code: CodeType) -> bool:
    """Whether the instructions of a code object all come from the node's text."""
    begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return all(
        (line, column) >= begin and (end_line, end_column) <= end
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column is not None
        if (column, end_column) != (0, 0)
    )


def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name; none where it does not tell."""
    try:
        return dict(inspect.signature(function, follow_wrapped=False).parameters)
    except (TypeError, ValueError):
        return {}


def call_of(obj: Any) -> Any:
    """What a call of an object runs, as its type has it; ``None`` where calling it is not Python's."""
    return next((vars(kind)["__call__"] for kind in type(obj).__mro__ if "__call__" in vars(kind)), None)
