"""Code of the user's that runs before a pipeline is ready: constructors, the function that makes it, and their calls.

A method that sets an attribute which the pipeline reads is no change of the data if it has run when the first element
is made. From the source alone that is known where every call of it is one that comes earlier: in a constructor, or
above the line on which the pipeline is handed its function, or a function returns it. A method that nobody is seen to
call is called by somebody who is not seen, as callbacks are, and a call in a loop around that line comes again.

Names are matched as they are written, over all of the user's files that are loaded: where two things have one name,
more calls count than there are, and less is taken to be set up.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from xttsbench.pipeline.definitions import (
    LOOPS,
    Definition,
    above,
    definitions,
    first_line,
    place,
    text_of,
    tree_of,
    within,
)
from xttsbench.pipeline.python.names import last_name
from xttsbench.pipeline.source import whose

CONSTRUCTS: Final = frozenset(  # methods that run before the first call, or after the last one
    {"__init__", "__new__", "__post_init__", "__setstate__", "__getstate__", "__reduce__", "__enter__", "__exit__"}
    | {"__del__", "close", "__set_name__", "__init_subclass__"}
)
_TAKES_FUNCTIONS: Final = frozenset(
    {"from_generator", "map", "flat_map", "interleave", "filter", "take_while", "scan", "group_by_window"}
    | {"numpy_function", "py_function", "py_func", "apply", "starmap"}
)
"""Names of functions that hand a function over to a pipeline."""
_MOST_FILES: Final = 2000
_CLASS: Final = re.compile(r"^[ \t]*class\s+(\w+)\s*(?:\(([^)]*)\))?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Call:
    """A place where a function or method is named: in a call, or handed on as it is."""

    body: Any  # the function around it, or the tree of the file
    node: ast.Name | ast.Attribute
    is_called: bool


def set_up_of(file: str, own: Collection[CodeType]) -> SetUp:
    """The set-up of a pipeline's function as the user's modules that are loaded tell, with the ``file`` given."""
    return _set_up_of(_user_files(file, tuple(sys.modules)), frozenset(own))


@functools.lru_cache(maxsize=16)
def _set_up_of(files: tuple[str, ...], own: frozenset[CodeType]) -> SetUp:
    return SetUp(files, own)


@functools.lru_cache(maxsize=16)
def _user_files(first: str, _modules: tuple[str, ...]) -> tuple[str, ...]:
    loaded = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    own = [file for file in dict.fromkeys(loaded) if file and file.endswith(".py") and whose(file) == "user"]
    return tuple(dict.fromkeys([first, *own[:_MOST_FILES]]))


class SetUp:
    """Set-up of one pipeline.

    Args:
        files: of the user's code.
        own: code of the pipeline's function, and of all that it runs itself.
    """

    def __init__(self, files: Collection[str], own: Collection[CodeType]) -> None:
        self._files = tuple(files)
        self._places = {place(code) for code in own}
        self._names = {code.co_name.removeprefix("tf__") for code in own}
        self._asked: set[int] = set()

    def has_run(self, line: int, body: Any, reader: Definition | None = None) -> bool:
        """Whether a line of a function, or of a file outside of them, has run when the pipeline yields an element.

        Where nothing in the function is seen to make the pipeline, its ``reader`` has to be written below the line.
        """
        if isinstance(body, ast.Module):  # as the module is imported, unless it makes the pipeline
            return id(body) not in self._ready or self._comes_before(body, line)
        inside = reader if reader is not None and body in above(reader) else None
        return self._comes_before(body, line, inside) or self._is_called_before(body)

    def later_setter(self, name: str, holders: Collection[str]) -> str | None:
        """Place at which an attribute of that name is set once the pipeline may be under way; ``None`` for none.

        A method that sets it for its own object counts where its class is one of the ``holders``' names, and not
        where these are none.
        """
        for file in self._files:
            for node, body in _set_in(file).get(name, ()) if _mentions(file, name) else ():
                if not self._is_set_up(node, body, holders):
                    function = getattr(body, "name", "")
                    where = f"{function}() at " if function else ""
                    return f"{where}{os.path.basename(file)}:{node.lineno} sets"
        return None

    def _is_set_up(self, node: Any, body: Any, holders: Collection[str]) -> bool:
        in_function = isinstance(body, Definition)
        if in_function and (self._is_own(body) or _for_another(node, body, holders)):
            return True
        return self.has_run(node.lineno, body)

    def _is_called_before(self, function: Any) -> bool:
        name = getattr(function, "name", "")
        if name in CONSTRUCTS and isinstance(getattr(function, "parent", None), ast.ClassDef):
            return True
        if not name or name.startswith("on_") or id(function) in self._asked:
            return False
        self._asked.add(id(function))
        calls = [call for call in _calls_of(function, self._files) if call.body is not function]
        found = bool(calls) and all(call.is_called and self._is_before(call) for call in calls)
        self._asked.discard(id(function))
        return found

    def _is_before(self, call: _Call) -> bool:
        in_function = isinstance(call.body, Definition)
        return self._comes_before(call.body, call.node.lineno) or (in_function and self._is_called_before(call.body))

    def _comes_before(self, body: Any, line: int, otherwise: Definition | None = None) -> bool:
        """Whether a line of a body comes before that which makes the pipeline ready in it, and in no loop with it."""
        ready = self._ready.get(id(body), otherwise)
        if ready is None or line >= ready.lineno:
            return False
        inside = itertools.takewhile(lambda one: one is not body, above(ready))
        loops = (one for one in inside if isinstance(one, LOOPS))
        return not any(loop.lineno <= line for loop in loops)

    @functools.cached_property
    def _ready(self) -> dict[int, Any]:
        """By identity of a body that makes the pipeline, the first node that does; those that call such ones, too."""
        found: dict[int, Any] = {}
        makers: dict[str, set[str]] = {}
        own = [node for file, _ in self._places for node in definitions(file) if self._is_own(node)]
        waiting = [*own, *(node for name in self._names for node in self._reads(name))]
        while waiting:
            for body in _bodies_around(waiting.pop()):
                if id(body) not in found and (node := self._makes(body, makers)) is not None:
                    found[id(body)] = node
                    if (name := getattr(body, "name", "")) and (home := _file_of(body)) not in makers.get(name, ()):
                        makers.setdefault(name, set()).add(home)
                        waiting.extend(self._reads(name))
        return found

    def _reads(self, name: str) -> list[Any]:
        return [node for file in self._files if _mentions(file, name) for node, _ in _named_in(file).get(name, ())]

    def _makes(self, body: Any, makers: Mapping[str, Collection[str]]) -> Any:
        nodes = list(_everything(body))
        found = [node for node in nodes if self._hands_over(node, makers)]
        if not found:
            found = [node for node in nodes if isinstance(node, Definition) and self._is_own(node)]
        return min(found, key=lambda node: node.lineno, default=None)

    def _is_own(self, node: Definition) -> bool:
        return (_file_of(node), first_line(node)) in self._places

    def _hands_over(self, node: Any, makers: Mapping[str, Collection[str]]) -> bool:
        """Whether a node gives the pipeline's function to a dataset, or calls what does; ``makers``: name -> files."""
        if isinstance(node, ast.Return):
            return last_name(node.value) in self._names
        if not isinstance(node, ast.Call):
            return False
        name = last_name(node.func)
        if name in makers and _may_be_of(node.func, makers[name]):
            return True
        return name in _TAKES_FUNCTIONS and any(
            self._is_own(one) if isinstance(one, ast.Lambda) else last_name(one) in self._names and not _is_called(one)
            for given in (*node.args, *(one.value for one in node.keywords))
            for one in ast.walk(given)
        )


def _mentions(file: str, name: str) -> bool:
    """Whether a name is in a file's text at all: a file is taken apart only where it is."""
    return name in text_of(file)


def _everything(body: Any) -> Iterator[Any]:
    """The nodes of a function, with those of functions written inside it; of a file, those outside of its functions."""
    if not isinstance(body, ast.Module):
        yield from (node for node in ast.walk(body) if node is not body and hasattr(node, "lineno"))
        return
    for node in within(body):
        if isinstance(node, ast.Lambda):
            yield from ast.walk(node)
        elif not isinstance(node, Definition):
            yield node


def _may_be_of(node: Any, homes: Collection[str]) -> bool:
    """Whether a called name may be a function of one of these files: that of another one has to be imported."""
    if not isinstance(node, ast.Name):
        return not isinstance(getattr(node, "value", None), ast.Attribute)
    file = _file_of(node)
    return "*" in _imports(file) or _is_known_in(file, node.id, homes)


def _is_known_in(file: str, name: str, homes: Collection[str]) -> bool:
    """Whether a name in a file may mean a function of one of these files: its own one, or one that it imports."""
    return file in homes or name in _imports(file)


def _is_called(node: Any) -> bool:
    return isinstance(node.parent, ast.Call) and node.parent.func is node


def _bodies_around(node: Any) -> Iterator[Any]:
    """The functions around a node, and the tree of its file."""
    return (one for one in above(node) if isinstance(one, Definition | ast.Module))


def _file_of(function: Any) -> str:
    *_, tree = above(function)
    return str(tree.file)


def _by_name(file: str, name_of: Callable[[Any], str | None]) -> dict[str, list[tuple[Any, Any]]]:
    """The nodes of a file that have a name, by it, each with the function or the tree that it is in."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    for body in (tree_of(file), *definitions(file)):
        for node in within(body):
            if (name := name_of(node)) is not None:
                found.setdefault(name, []).append((node, body))
    return found


@functools.lru_cache(maxsize=_MOST_FILES)
def _set_in(file: str) -> dict[str, list[tuple[Any, Any]]]:
    """Attributes that are set in a file."""
    return _by_name(file, _attribute_set)


@functools.lru_cache(maxsize=_MOST_FILES)
def _named_in(file: str) -> dict[str, list[tuple[Any, Any]]]:
    """Names that are read in a file, of attributes the last one."""
    return _by_name(file, _name_read)


def _attribute_set(node: Any) -> str | None:
    if isinstance(node, ast.Attribute):
        return None if isinstance(node.ctx, ast.Load) else node.attr
    if isinstance(node, ast.Call) and last_name(node.func) in ("setattr", "delattr") and len(node.args) > 1:
        name = node.args[1]
        return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
    return None


def _name_read(node: Any) -> str | None:
    is_read = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    return last_name(node) if is_read else None


def _for_another(node: Any, body: Any, holders: Collection[str]) -> bool:
    """Whether a method sets an attribute of its own object, whose class is none of these."""
    own = _own_class(node, body)
    return own is not None and own.name not in holders


def _own_class(node: Any, body: Any) -> ast.ClassDef | None:
    """The class of the method that a node is in, where the node is an attribute of the method's own object."""
    around = getattr(body, "parent", None)
    if not isinstance(around, ast.ClassDef) or not isinstance(node, ast.Attribute) or not body.args.args:
        return None
    of_itself = isinstance(node.value, ast.Name) and node.value.id == body.args.args[0].arg
    return around if of_itself else None


def _calls_of(function: Any, files: Sequence[str]) -> Iterator[_Call]:
    kind: Any = getattr(function, "parent", None)
    home = _file_of(function)
    means = _of_method if isinstance(kind, ast.ClassDef) else _of_function
    for file in (one for one in files if _mentions(one, function.name)):
        for node, body in _named_in(file).get(function.name, ()):
            if means(node, body, kind, file, home, files):
                yield _Call(body, node, _is_called(node))


def _of_function(node: Any, body: Any, kind: Any, file: str, home: str, files: Sequence[str]) -> bool:
    """Whether a name may mean a function of the file that is its home."""
    if isinstance(node, ast.Attribute):
        return _of_module(node, file)
    return _is_known_in(file, node.id, (home,))


def _of_method(node: Any, body: Any, kind: ast.ClassDef, file: str, home: str, files: Sequence[str]) -> bool:
    """Whether a name may mean a method of a class: of any object but one that is known to be of another class."""
    if not isinstance(node, ast.Attribute) or _of_module(node, file):
        return False
    own = _own_class(node, body)
    made = frozenset({own.name}) if own is not None else _made_of(node.value, body)
    family = _family(kind.name, files)
    return not made or any(name in family or kind.name in _family(name, files) for name in made)


def _family(name: str, files: Sequence[str]) -> frozenset[str]:
    """Names of a class and of those that it inherits from, as far as the files tell."""
    found, waiting, bases = set[str](), [name], _bases(tuple(files))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(bases.get(one, ()))
    return frozenset(found)


@functools.lru_cache(maxsize=16)
def _bases(files: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Classes by name, with the names of those that they inherit from directly."""
    found: dict[str, tuple[str, ...]] = {}
    for file in files:
        for name, bases in _CLASS.findall(text_of(file)):
            given = (one.rpartition(".")[2].strip() for one in bases.split(","))
            found[name] = (*found.get(name, ()), *filter(str.isidentifier, given))
    return found


def _made_of(node: ast.expr, body: Any) -> frozenset[str]:
    """Names of the classes of which a variable of a body is made there; empty where it may be anything."""
    if not isinstance(node, ast.Name):
        return frozenset()
    stored: list[Any] = [one for one in within(body) if isinstance(one, ast.Name) and one.id == node.id]
    stored = [one for one in stored if not isinstance(one.ctx, ast.Load)]
    made = [one.parent.value for one in stored if isinstance(one.parent, ast.Assign)]
    names = [last_name(one.func) if isinstance(one, ast.Call) else "" for one in made]
    known = len(made) == len(stored) and all(name[:1].isupper() for name in names)
    return frozenset(names) if known else frozenset()


def _of_module(node: ast.Attribute, file: str) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in _imports(file)


@functools.lru_cache(maxsize=_MOST_FILES)
def _imports(file: str) -> frozenset[str]:
    """Names that a file's imports bind, at any depth."""
    found = (one for one in ast.walk(tree_of(file)) if isinstance(one, ast.Import | ast.ImportFrom))
    return frozenset((alias.asname or alias.name.split(".")[0]) for one in found for alias in one.names)
