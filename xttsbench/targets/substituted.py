"""A patched copy run in place of the user's file: what Python imports from there is compiled from other text.

The module keeps its name, its ``__file__`` and its place in tracebacks; their lines, and the source that ``inspect``
and AutoGraph read, are those of the text that runs. No ``.pyc`` is read or written for it, and no file is touched.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import io
import linecache
import os
import tokenize
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any, Final

from xttsbench.errors import InvalidInputError

_SUFFIXES: Final = tuple(importlib.machinery.SOURCE_SUFFIXES)


@contextlib.contextmanager
def substituted(files: Mapping[str, str]) -> Iterator[None]:
    """Have Python read other files in place of some, for modules and scripts that are loaded inside the context.

    The context has to stay open as long as the code runs: AutoGraph reads a function's source when it is traced.
    Modules that were loaded before keep the text that they had. It is for one thread: the import system is changed
    for the whole process.

    Args:
        files: path of a source file -> path of the file whose text is compiled; paths may be symbolic links.

    Raises:
        InvalidInputError: a file to read from is missing or no Python source.
    """
    texts = {os.path.realpath(file): _text(file, other) for file, other in files.items()}
    encodings = {os.path.realpath(file): _encoding(other) for file, other in files.items()}
    named: set[str] = set()

    def remembered(path: str) -> str | None:
        text = texts.get(os.path.realpath(path))
        if text is not None:
            named.add(path)
        return text

    def text_of(path: Any) -> str | None:
        """The other text of a path, shown for it from now on."""
        if not isinstance(path, str) or not path.endswith(_SUFFIXES):
            return None
        is_new = path not in named
        text = remembered(path)
        if text is not None and is_new:
            linecache.updatecache(path)
        return text

    def bytes_of(path: Any) -> bytes | None:
        """The same as a file would hold it: in the encoding that its own first lines name."""
        text = text_of(path)
        return None if text is None else text.encode(encodings[os.path.realpath(path)])

    if not texts:
        yield
        return
    loader: Any = importlib.machinery.SourceFileLoader
    with contextlib.ExitStack() as stack:
        stack.callback(_forget, named)
        stack.enter_context(_attribute(linecache, "updatecache", _updatecache(linecache.updatecache, remembered)))
        stack.enter_context(_attribute(loader, "get_code", _get_code(loader.get_code, text_of)))
        stack.enter_context(_attribute(loader, "get_data", _get_data(loader.get_data, bytes_of)))
        stack.enter_context(_attribute(io, "open_code", _open_code(io.open_code, bytes_of)))  # runpy's way to a script
        yield


def _text(file: str, other: str) -> str:
    try:
        with tokenize.open(other) as stream:  # the encoding that the file says it has
            return stream.read()
    except (OSError, UnicodeError, SyntaxError) as error:
        raise InvalidInputError(
            f"{other}, which is to be run in place of {file}, cannot be read as Python source ({error})."
        ) from error


def _encoding(file: str) -> str:
    with open(file, "rb") as stream:
        return tokenize.detect_encoding(stream.readline)[0]


def _get_code(original: Callable[..., Any], text_of: Callable[[Any], str | None]) -> Callable[..., Any]:
    def get_code(self: Any, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        text = text_of(path)
        code: CodeType | None = original(self, fullname) if text is None else self.source_to_code(text, path)
        return code

    return get_code


def _updatecache(original: Callable[..., Any], text_of: Callable[[str], str | None]) -> Callable[..., Any]:
    """AutoGraph has linecache read a file again before it takes a function's source."""

    def updatecache(filename: str, module_globals: Any = None) -> list[str]:
        text = text_of(filename) if filename.endswith(_SUFFIXES) else None
        if text is None:
            found: list[str] = original(filename, module_globals)
            return found
        lines = text.splitlines(keepends=True)
        # Without a time of change, linecache does not compare the entry with the file on disk.
        linecache.cache[filename] = (len(text), None, lines, filename)
        return lines

    return updatecache


def _get_data(original: Callable[..., Any], bytes_of: Callable[[Any], bytes | None]) -> Callable[..., Any]:
    def get_data(self: Any, path: str) -> bytes:
        found = bytes_of(path)
        data: bytes = original(self, path) if found is None else found
        return data

    return get_data


def _open_code(original: Callable[..., Any], bytes_of: Callable[[Any], bytes | None]) -> Callable[..., Any]:
    def open_code(path: Any) -> Any:
        found = bytes_of(path)
        return original(path) if found is None else io.BytesIO(found)

    return open_code


@contextlib.contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute replaced, and put back as it was: an inherited one is taken out again."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if getattr(owner, name) is value:
            if own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)


def _forget(paths: set[str]) -> None:
    for path in paths:
        linecache.cache.pop(path, None)
