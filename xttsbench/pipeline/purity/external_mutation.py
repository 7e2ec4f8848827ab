"""What a Python function reads and other code changes: an epoch that a callback sets, a list that a generator fills.

Nothing of that shows in a look at the data, during which no training runs. Read from the source of the function's file:
another function there that changes the same variable, or another method of the same class that sets the attribute.
Code that only sets things up (``__init__`` and what it calls) and code that the function itself runs do not count.
"""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from xttsbench.pipeline.purity.source import (
    Definition,
    definition,
    definitions,
    first_line,
    is_users,
    parameter_names,
    place,
    tree_of,
    within,
)
from xttsbench.pipeline.purity.values import MUTATORS

_SETS_UP: Final = frozenset(
    {"__init__", "__new__", "__post_init__", "__setstate__", "__getstate__", "__reduce__", "__enter__", "__exit__"}
    | {"__del__", "close", "__set_name__", "__init_subclass__"}
)
"""Methods that run before the first call, or after the last one."""
_BETWEEN_EPOCHS: Final = frozenset({"on_epoch_begin", "on_epoch_end"})
"""Methods of a Keras ``PyDataset`` that Keras calls between epochs, whoever else does."""


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
    file, _ = place(code)
    reader = definition(code)
    return None if reader is None else _foreign(file, name, _owner(reader, name, file), own, "changes")


def changed_attribute(kind: type, name: str, own: Collection[CodeType], *, within_epoch: bool = False) -> str | None:
    """Which other method of a class sets an attribute that a function reads, in words.

    Args:
        kind: the class.
        name: of the attribute.
        own: code of all functions that the function runs.
        within_epoch: leave out what Keras has a ``PyDataset`` change between epochs.
    """
    of_keras = any(one.__name__ == "PyDataset" and one.__module__.startswith("keras.") for one in kind.__mro__)
    for one in kind.__mro__:
        file = next((place(method.__code__)[0] for method in vars(one).values() if is_users(method)), "")
        for node in ast.walk(tree_of(file)) if file else ():
            if isinstance(node, ast.ClassDef) and node.name == one.__name__:
                between = _called_by(node, _BETWEEN_EPOCHS)
                quiet = _called_by(node, _SETS_UP) - between
                found = _foreign(file, name, node, own, "sets", quiet | between if within_epoch and of_keras else quiet)
                if found is not None:
                    return found
    return None


def _foreign(
    file: str, name: str, owner: Any, own: Collection[CodeType], verb: str, leave_out: Collection[str] = ()
) -> str | None:
    """The first change by code that the function does not run itself; none where its own code does it, too."""
    found = [change for change in _changes(file) if change.name == name and change.owner is owner]
    places = {place(code) for code in own}
    if any((file, change.first_line) in places for change in found):
        return None  # state of its own, which is reported as such
    others = (one for one in found if one.function not in leave_out)
    return next((f"{one.function}() at {os.path.basename(file)}:{one.line} {verb}" for one in others), None)


def _above(node: Any) -> Iterator[Any]:
    while (node := getattr(node, "parent", None)) is not None:
        yield node


def _owner(node: Any, name: str, file: str) -> Any:
    """What a name that a function does not bind itself belongs to: a function around it, or the file."""
    return next((one for one in _above(node) if isinstance(one, Definition) and name in _bound(one)), tree_of(file))


@functools.lru_cache(maxsize=512)
def _bound(node: Any) -> frozenset[str]:
    """The names that a function binds for itself."""
    names, declared = set(parameter_names(node)), set[str]()
    for one in within(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            names.add(one.id)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(one.name)
        elif isinstance(one, ast.Global | ast.Nonlocal):
            declared.update(one.names)
    return frozenset(names - declared)


@functools.lru_cache(maxsize=64)
def _changes(file: str) -> tuple[Change, ...]:
    """All that the functions of a file change and that is not their own."""
    found = []
    for node in definitions(file):
        around = next((one for one in _above(node) if isinstance(one, Definition | ast.ClassDef)), None)
        me = node.args.args[0].arg if isinstance(around, ast.ClassDef) and node.args.args else None
        for line, base, attribute in _changed(node):
            of_object = attribute is not None and base == me
            if of_object or base not in _bound(node):
                name, owner = (attribute or "", around) if of_object else (base, _owner(node, base, file))
                found.append(Change(name, owner, getattr(node, "name", "<lambda>"), first_line(node), line))
    return tuple(found)


def _changed(node: Any) -> Iterator[tuple[int, str, str | None]]:
    """Line, name, and attribute right after the name, of each change in a function."""
    for one in within(node):
        target: ast.expr | None = None
        attribute = None
        if isinstance(one, ast.Name | ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store | ast.Del):
            target = one
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in MUTATORS:
            target = one.func.value
        if isinstance(one, ast.Call) and one.args and _shuffles(one.func):
            target = one.args[0]
        while isinstance(target, ast.Attribute | ast.Subscript):
            attribute = target.attr if isinstance(target, ast.Attribute) else attribute
            target = target.value
        if isinstance(target, ast.Name):
            yield one.lineno, target.id, attribute


def _shuffles(node: ast.expr) -> bool:
    """Whether a method of Python's or NumPy's generators changes its first argument; those of datasets do not."""
    owner = node.value if isinstance(node, ast.Attribute) and node.attr == "shuffle" else None
    name = getattr(owner, "attr", getattr(owner, "id", "")).lower()
    return "random" in name or "rng" in name


def _called_by(kind: ast.ClassDef, names: Collection[str]) -> set[str]:
    """The named methods of a class, and those that they call on the object."""
    methods = {one.name: one for one in kind.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name in methods:
            calls = [one.func for one in ast.walk(methods[name]) if isinstance(one, ast.Call)]
            waiting.extend(one.attr for one in calls if isinstance(one, ast.Attribute))
        found.add(name)
    return found
