"""What a Python function reads, and other code changes: an epoch that a callback sets, a list that a generator fills.

Nothing of that shows in a look at the data, during which no training runs. Read from the source of the function's file:
another function there that changes the same variable, or another method of the same class that sets the attribute.
Code that only sets things up (``__init__`` and what it calls) and code that the function itself runs do not count.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from xttsbench.pipeline.purity.source import Definition, is_users, place
from xttsbench.pipeline.purity.values import MUTATORS

_SETS_UP: Final = frozenset(
    {"__init__", "__new__", "__post_init__", "__setstate__", "__getstate__", "__reduce__", "__enter__", "__exit__"}
    | {"__del__", "close", "__set_name__", "__init_subclass__"}
)
"""Methods that run before the first call, or after the last one."""
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Change:
    """One place where a function changes something that is not its own."""

    name: str
    """Of the variable, or of the attribute of ``self``."""
    owner: Any
    """The function, or the tree of the whole file, that the variable belongs to; the class, for an attribute."""
    function: str
    first_line: int
    line: int


def changed_variable(code: CodeType, name: str, own: Collection[CodeType]) -> str | None:
    """Which other function of the file changes a variable that a function reads, in words.

    Args:
        code: of the function that reads it.
        name: of a global or captured variable.
        own: code of all functions that it runs.
    """
    file, line = place(code)
    tree = _tree(file)
    reader = _functions(file).get(line)
    if tree is None or reader is None:
        return None
    owner = _owner(reader, name, tree)
    found = [change for change in _changes(file) if change.name == name and change.owner is owner]
    if any(_runs(change, file, own) for change in found):
        return None  # state of its own, which is told as such
    return next((f"{one.function}() at {os.path.basename(file)}:{one.line} changes" for one in found), None)


def changed_attribute(kind: type, name: str, own: Collection[CodeType]) -> str | None:
    """Which other method of a class sets an attribute that a function reads, in words."""
    for one in kind.__mro__:
        methods = [method for method in vars(one).values() if is_users(method)]
        if not methods:
            continue
        file, _ = place(methods[0].__code__)
        for node in (node for node in _classes(file) if node.name == one.__name__):
            before = _called_by(node, _SETS_UP)
            found = [change for change in _changes(file) if change.name == name and change.owner is node]
            if any(_runs(change, file, own) for change in found):
                return None  # state of its own, which is told as such
            for change in found:
                if change.function not in before:
                    return f"{change.function}() at {os.path.basename(file)}:{change.line} sets"
    return None


def _runs(change: Change, file: str, own: Collection[CodeType]) -> bool:
    return any(place(code) == (file, change.first_line) for code in own)


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node  # type: ignore[attr-defined]
    return tree


@functools.lru_cache(maxsize=64)
def _functions(file: str) -> dict[int, Any]:
    """The functions of a file by the lines where they begin; of several in a line the innermost, or any lambda."""
    tree = _tree(file)
    found = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, Definition):
            found.update({_first(node): node, node.lineno: node})
    return found


@functools.lru_cache(maxsize=64)
def _classes(file: str) -> tuple[ast.ClassDef, ...]:
    tree = _tree(file)
    return tuple(node for node in (ast.walk(tree) if tree is not None else ()) if isinstance(node, ast.ClassDef))


def _first(node: Any) -> int:
    return min([int(node.lineno), *(int(one.lineno) for one in getattr(node, "decorator_list", ()))])


def _above(node: Any) -> Iterator[Any]:
    while (node := getattr(node, "parent", None)) is not None:
        yield node


def _owner(node: Any, name: str, tree: ast.Module) -> Any:
    """What a name that a function does not bind itself belongs to: a function around it, or the file."""
    return next((one for one in _above(node) if isinstance(one, _SCOPES) and name in _bound(one)), tree)


@functools.lru_cache(maxsize=512)
def _bound(node: Any) -> frozenset[str]:
    """The names that a function binds for itself."""
    given = node.args
    names = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if one}
    declared: set[str] = set()
    for one in _within(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            names.add(one.id)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(one.name)
        elif isinstance(one, ast.Global | ast.Nonlocal):
            declared.update(one.names)
    return frozenset(names - declared)


def _within(node: Any) -> Iterator[Any]:
    """The nodes of a function, without those of functions written inside it."""
    waiting = list(node.body) if isinstance(node.body, list) else [node.body]
    while waiting:
        one = waiting.pop()
        yield one
        if not isinstance(one, (*_SCOPES, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(one))


@functools.lru_cache(maxsize=64)
def _changes(file: str) -> tuple[Change, ...]:
    """All that the functions of a file change and that is not their own."""
    tree = _tree(file)
    found = []
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, Definition) or tree is None:
            continue
        around = next((one for one in _above(node) if isinstance(one, (*_SCOPES, ast.ClassDef))), None)
        kind = around if isinstance(around, ast.ClassDef) else None
        me = node.args.args[0].arg if kind is not None and node.args.args else None
        name = getattr(node, "name", "<lambda>")
        for line, base, attribute in _changed(node):
            if base == me and attribute is not None:
                found.append(Change(attribute, kind, name, _first(node), line))
            elif base not in _bound(node):
                found.append(Change(base, _owner(node, base, tree), name, _first(node), line))
    return tuple(found)


def _changed(node: Any) -> Iterator[tuple[int, str, str | None]]:
    """Line, name, and attribute right after the name, of each change in a function."""
    for one in _within(node):
        target: ast.expr | None = None
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store | ast.Del):
            yield one.lineno, one.id, None  # of the function's own unless it is declared
        elif isinstance(one, ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store | ast.Del):
            target = one
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in MUTATORS:
            target = one.func.value
        attribute = None
        while isinstance(target, ast.Attribute | ast.Subscript):
            attribute = target.attr if isinstance(target, ast.Attribute) else attribute
            target = target.value
        if isinstance(target, ast.Name):
            yield one.lineno, target.id, attribute


def _called_by(kind: ast.ClassDef, names: Collection[str]) -> set[str]:
    """The named methods of a class, and those that they call on the object."""
    methods = {one.name: one for one in kind.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for one in ast.walk(methods[name]) if name in methods else ():
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in methods:
                waiting.append(one.func.attr)
    return found
