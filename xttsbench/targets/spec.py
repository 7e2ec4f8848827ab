"""A target: its name, taken apart without importing anything; what it may say of itself; a patched copy in its place.

A patched copy is compiled from other text than the user's file holds. The module keeps its name, its ``__file__`` and
its place in tracebacks; their lines, and the source that ``inspect`` and AutoGraph read, are those of the text that
runs. No ``.pyc`` is read or written for it, and no file is touched. No TensorFlow here.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import io
import linecache
import os
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, Final, Literal

from xttsbench.errors import InvalidInputError, TargetError, UsageError

_FORMS = "'module:callable' or 'path/to/file.py:callable'"


@dataclass(frozen=True)
class TargetSpec:
    """A target's name, taken apart: ``kind``, the module or file, and the callable's dotted name in it.

    A script has no callable; ``attribute`` is empty.
    """

    text: str
    kind: Literal["module", "file", "script"]
    place: str
    attribute: str
    folder: str  # directory that goes first on the import path: the file's own, or the working directory for a module

    @property
    def name(self) -> str:
        """Name for a run's directory."""
        return self.attribute or Path(self.place).stem


@dataclass(frozen=True)
class Workload:
    """A target that says more about itself than a pair can: what is run, what may be tuned, and where its frames are.

    Attributes:
        dataset: the ``tf.data.Dataset`` that is iterated.
        step: ``step(batch)`` runs one training step; ``None`` judges the input side alone.
        model: a compiled ``keras.Model`` in place of ``step``.
        tunables: keyword of the callable that made this workload -> the values worth trying.
        name: a name for reports.
        frames: key of the batch under which the padded tensor lies, ``[batch, frames, ...]``.
        lengths: key of the batch under which the true numbers of frames lie, ``[batch]``. With both, throughput is
            given in valid frames per second too, and the share of padding is known.
    """

    dataset: Any
    step: Callable[[Any], Any] | None = None
    model: Any = None
    tunables: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    name: str | None = None
    frames: str | None = None
    lengths: str | None = None


def parse_target(text: str, *, working_directory: Path | None = None, scripts: bool = False) -> TargetSpec:
    """Take ``module:callable`` or ``file.py:callable`` apart and check what can be checked without importing it.

    Args:
        text: the target as it is written.
        working_directory: where relative paths begin.
        scripts: whether a ``.py`` file without a callable is a target: a script.

    Raises:
        TargetError: no callable is named, a name is not a Python name, the file is missing or not a file.
    """
    here = (working_directory or Path.cwd()).resolve()
    place, separator, attribute = text.rpartition(":")
    if not separator:
        if text.endswith(".py") and scripts:
            path = _existing_file(text, text, here)
            return TargetSpec(text, "script", str(path), "", str(path.parent))
        if text.endswith(".py"):
            raise TargetError(
                f"Target {text!r} is a script, which diagnose, optimize, prove and watch run as it is. Name a callable "
                f"in it that returns the dataset and the step: {text}:make"
            )
        raise TargetError(f"Target {text!r} names no callable; write it as {_FORMS}.")
    if not all(part.isidentifier() for part in attribute.split(".")):
        raise TargetError(f"Target {text!r}: {attribute!r} is not a Python name; write the target as {_FORMS}.")
    if place.endswith(".py") or "/" in place:
        path = _existing_file(text, place, here)
        return TargetSpec(text, "file", str(path), attribute, str(path.parent))
    if not place or not all(part.isidentifier() for part in place.split(".")):
        raise TargetError(f"Target {text!r}: {place!r} is neither a module's name nor a .py file; write {_FORMS}.")
    return TargetSpec(text, "module", place, attribute, str(here))


def _existing_file(text: str, place: str, here: Path) -> Path:
    # os.path: an unknown user or a name too long is no file, not an error.
    path = (here / os.path.expanduser(place)).resolve()
    if not os.path.isfile(path):
        state = "is a directory" if os.path.isdir(path) else "does not exist"
        raise TargetError(f"Target {text!r}: {place!r} {state} (looked for {path}). Check the path.")
    return path


def parse_setting(text: str) -> tuple[str, object]:
    """Read ``KEY=VALUE`` of ``--set``; the value is YAML, with ``1e-4`` read as a number.

    Raises:
        UsageError: there is no ``=``, or the key is not a Python name.
    """
    from yaml import YAMLError  # not at the top: the command line starts without it

    from xttsbench.limited_yaml import content

    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not key.isidentifier():
        raise UsageError(f"--set {text!r} is not KEY=VALUE with a Python name as the key, e.g. --set batch_size=16.")
    try:
        return key, float(value) if _is_exponent(value) else content(value)
    except YAMLError as error:
        raise UsageError(f"--set {key}: {value!r} is not a YAML value ({error}).") from error


def _is_exponent(value: str) -> bool:
    """Whether a value is a number such as ``1e-4`` or ``1.5e4``: YAML 1.1 reads text for want of a dot or of a sign."""
    try:
        float(value)
    except ValueError:
        return False
    return "e" in value.lower()


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
    try:
        with tokenize.open(other) as stream:
            return stream.read(), stream.encoding
    except (OSError, UnicodeError, SyntaxError) as error:
        raise InvalidInputError(
            f"{other}, which is to be run in place of {file}, cannot be read as Python source ({error})."
        ) from error
