"""Code of the user's files as Python compiles it, with statements of ours in it.

Lines stay what they are, and so does the text that ``inspect`` and AutoGraph read: only the compiled code is another.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from typing import Any, Final

from xttsbench.owners import owner


@dataclass(frozen=True)
class Rewrite:
    """A change of the code of files that have one of these marks in their text.

    Attributes:
        marks: bytes of the file without any of which it stays as it is.
        change: takes the tree and the file's path, and changes the tree in place.
        name: under which the changed code finds whom it tells.
        told: that object.
    """

    marks: tuple[bytes, ...]
    change: Callable[[ast.Module, str], object]
    name: str
    told: object


_REWRITES: Final[list[Rewrite]] = []


def code_of(data: bytes, path: str) -> Any:
    """The code of a file of the user's, with all rewrites that are in force.

    Raises:
        SyntaxError, ValueError: it is no Python.
    """
    wanted = [one for one in _REWRITES if any(mark in data for mark in one.marks)]
    if not wanted:
        return compile(data, path, "exec", dont_inherit=True)
    tree = ast.parse(data, path)
    for one in wanted:
        one.change(tree, path)
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


@contextlib.contextmanager
def rewriting(rewrite: Rewrite) -> Iterator[None]:
    """Have the user's files that are loaded inside the context rewritten; it stays open as long as their code runs."""
    loader: Any = SourceFileLoader
    get_code = loader.get_code

    def new_get_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        data = self.get_data(path) if owner(path) == "user" else b""
        return code_of(data, path) if any(mark in data for mark in rewrite.marks) else get_code(self, fullname)

    setattr(builtins, rewrite.name, rewrite.told)
    _REWRITES.append(rewrite)
    loader.get_code = new_get_code
    try:
        yield
    finally:
        loader.get_code = get_code
        _REWRITES.remove(rewrite)
        delattr(builtins, rewrite.name)
