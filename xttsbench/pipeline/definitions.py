"""The syntax tree behind a code object: its file and line, the definition that it was compiled from, its nodes."""

from __future__ import annotations

import ast
import functools
import linecache
import time
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any, Final

from tensorflow.python.autograph.impl import api as autograph_api

from xttsbench.pipeline.python.names import own_nodes, parameters


def before_autograph(file: str, line: int) -> tuple[str | None, int | None]:
    """The user's file and line for code that AutoGraph generated; other places as they are.

    A function defined inside a map function is compiled from AutoGraph's temporary file. Its transpiler keeps the
    map from generated to original lines; where that is gone, the place is unknown rather than the temporary file.
    """
    if "__autograph_generated_file" not in file:
        return file, line
    for factories in list(autograph_api._TRANSPILER._cache._cache.values()):
        for factory in list(factories.values()):
            lines = {
                place.lineno: origin.loc
                for place, origin in (factory.source_map or {}).items()
                if place.filename == file
            }
            # AutoGraph puts a decorator on the line before the function, and code begins at its decorator.
            for number in (line, line + 1):
                if number in lines:
                    return lines[number].filename, lines[number].lineno
    return None, None


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
LOOPS: Final = ast.For | ast.AsyncFor | ast.While


def place(code: CodeType) -> tuple[str, int]:
    """File and line of a code object, where AutoGraph wrote it those of the user's own."""
    file, line = before_autograph(code.co_filename, code.co_firstlineno)
    return (file, line) if file is not None and line is not None else (code.co_filename, code.co_firstlineno)


_made: Final[dict[CodeType, ast.FunctionDef]] = {}


def made_from(node: ast.FunctionDef, names: Sequence[str], file: str, kind: str | None = None) -> CodeType:
    """The code of a function that was put together of the user's statements; :func:`definition` knows its node.

    Every node in ``node`` has the place that it comes from; ``names`` are variables that it may find in its closure;
    ``kind`` is the class whose private names it uses.
    """
    given = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    outer: ast.stmt = ast.FunctionDef("outer", given, [node], [])
    outer = outer if kind is None else ast.ClassDef(kind, [], [], [outer], [])
    code = compile(ast.fix_missing_locations(ast.Module([outer], [])), file, "exec", dont_inherit=True)
    for _ in range(2 if kind is None else 3):
        (code,) = (one for one in code.co_consts if isinstance(one, CodeType))
    _made[code] = node
    return code


def definition(code: CodeType) -> Definition | None:
    """The node that a code object was compiled from; ``None`` where its source is gone or says something else."""
    if code in _made:
        return _made[code]
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


@functools.lru_cache(maxsize=2048)
def text_of(file: str) -> str:
    """The text of a file; empty where it cannot be read."""
    return "".join(linecache.getlines(file))


@functools.lru_cache(maxsize=2048)
def tree_of(file: str) -> ast.Module:
    """The syntax tree of a ``file``, which it names, and in which each node has its ``parent``.

    An empty one where the file cannot be read.
    """
    try:
        tree = _parsed(text_of(file))
    except (SyntaxError, ValueError):
        return ast.Module([], [])
    tree.file = file  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node  # type: ignore[attr-defined]
    return tree


def _parsed(text: str) -> ast.Module:
    """The tree of a text.

    CPython counts the depth of the trees that all threads build in one place (gh-106905): where another thread, as
    of AutoGraph, parses meanwhile, it may refuse a whole tree with "AST constructor recursion depth mismatch".
    """
    for _ in range(3):
        try:
            return ast.parse(text)
        except SystemError:
            time.sleep(0.01)
    return ast.parse(text)


@functools.lru_cache(maxsize=2048)
def definitions(file: str) -> tuple[Definition, ...]:
    """All functions that are written in a file."""
    return tuple(node for node in ast.walk(tree_of(file)) if isinstance(node, Definition))


def above(node: Any) -> Iterator[Any]:
    """The nodes around a node, the innermost first and the tree of its file last."""
    while (node := getattr(node, "parent", None)) is not None:
        yield node


def within(node: Any) -> Iterator[Any]:
    """The nodes of a function, without those of functions and classes written inside it."""
    return own_nodes(node.body if isinstance(node.body, list) else [node.body])


def first_line(node: Definition) -> int:
    """Code begins at its first decorator."""
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])


def parameter_names(node: Definition) -> tuple[str, ...]:
    """Names of the parameters in the order in which a code object has them."""
    return tuple(one.arg for one in parameters(node))


def holds(node: Definition | ast.GeneratorExp, code: CodeType) -> bool:
    """Whether the instructions of a code object all come from the node's text."""
    begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return all(
        (line, column) >= begin and (end_line, end_column) <= end
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column is not None
        if (column, end_column) != (0, 0)
    )
