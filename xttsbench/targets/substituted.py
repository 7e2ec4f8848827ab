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
from collections.abc import Iterator, Mapping
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
    if not texts:
        yield
        return
    from unittest import mock  # here, for it takes its time and most trials run what the user wrote

    named: set[str] = set()
    loader: Any = importlib.machinery.SourceFileLoader
    get_code, get_data, open_code = loader.get_code, loader.get_data, io.open_code
    updatecache = linecache.updatecache

    def text_of(path: Any) -> tuple[str, str] | None:
        """The other text of a path, shown for it from now on, and its encoding."""
        known = isinstance(path, str) and path.endswith(_SUFFIXES)
        text = texts.get(os.path.realpath(path)) if known else None
        if text is not None and path not in named:
            named.add(path)
            new_updatecache(path)
        return text

    def bytes_of(path: Any) -> bytes | None:
        """The same as a file would hold it: in the encoding that its own first lines name."""
        text = text_of(path)
        return text[0].encode(text[1]) if text is not None else None

    def new_updatecache(filename: str, module_globals: Any = None) -> list[str]:
        """AutoGraph has linecache read a file again before it takes a function's source."""
        text = text_of(filename)
        if text is None:
            return updatecache(filename, module_globals)
        lines = text[0].splitlines(keepends=True)
        # Without a time of change, linecache does not compare the entry with the file on disk.
        linecache.cache[filename] = (len(text[0]), None, lines, filename)
        return lines

    def new_get_code(self: Any, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        text = text_of(path)
        code: CodeType | None = get_code(self, fullname) if text is None else self.source_to_code(text[0], path)
        return code

    def new_get_data(self: Any, path: str) -> bytes:
        found = bytes_of(path)
        data: bytes = get_data(self, path) if found is None else found
        return data

    def new_open_code(path: Any) -> Any:  # runpy's way to a script
        found = bytes_of(path)
        return open_code(path) if found is None else io.BytesIO(found)

    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [linecache.cache.pop(path, None) for path in named])
        stack.enter_context(mock.patch.object(linecache, "updatecache", new_updatecache))
        stack.enter_context(mock.patch.multiple(loader, get_code=new_get_code, get_data=new_get_data))
        stack.enter_context(mock.patch.object(io, "open_code", new_open_code))
        yield


def _text(file: str, other: str) -> tuple[str, str]:
    """The text of the other file, and the encoding that it says it has."""
    try:
        with tokenize.open(other) as stream:
            return stream.read(), stream.encoding
    except (OSError, UnicodeError, SyntaxError) as error:
        raise InvalidInputError(
            f"{other}, which is to be run in place of {file}, cannot be read as Python source ({error})."
        ) from error
