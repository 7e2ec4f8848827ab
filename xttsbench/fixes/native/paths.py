"""Paths in a function that is traced: text that is joined and taken apart as ``os.path`` and ``pathlib`` do it."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.native.arrays import only
from xttsbench.fixes.native.text import Text, joined, text


class PathText(Text):
    """A ``Path``, whose values are ``str``."""

    __slots__ = ()

    @classmethod
    def of(cls, path: Text) -> PathText:
        """Text as a path."""
        return cls(path.tensor, path.seen, pathlib.Path)

    @property
    def bare(self) -> Text:
        """The path as text."""
        return Text(self.tensor, self.seen, str)

    @property
    def name(self) -> Text:
        """The last part."""
        return basename(self.bare)

    @property
    def stem(self) -> Text:
        """The last part without what is behind its last point."""
        return splitext(self.name)[0]

    @property
    def suffix(self) -> Text:
        """What is behind the last point, with that."""
        return splitext(self.name)[1]

    @property
    def parent(self) -> PathText:
        """All but the last part."""
        return PathText.of(dirname(self.bare))

    def with_suffix(self, suffix: str) -> PathText:
        """Another end."""
        return PathText.of(joined([splitext(self.bare)[0], suffix], str))

    def __truediv__(self, other: Any) -> PathText:
        return made_path(self, other)

    def __rtruediv__(self, other: Any) -> PathText:
        return made_path(other, self)


def path_text(value: Any) -> Text:
    """A path, or text that is one."""
    return (
        PathText(tf.constant(str(value)), [str(value)], pathlib.Path)
        if isinstance(value, pathlib.PurePath)
        else text(value)
    )


def path_joined(first: Any, *more: Any) -> Text:
    """``os.path.join``."""
    given = [path_text(one) for one in (first, *more)]
    kind = next((one.kind for one in given if one.kind is not pathlib.Path), str)
    parts: list[Any] = []
    for number, one in enumerate(given):
        only(bool(one.seen), "joins paths of which none was seen")
        if number and any(value.startswith(("/", b"/")[kind is bytes]) for value in one.seen or ()):
            only(len(one.seen or ()) == 1, "joins paths that begin anew")
            parts = []
        elif number and not all(value.endswith(("/", b"/")[kind is bytes]) for value in given[number - 1].seen or ()):
            parts.append("/" if kind is str else b"/")
        parts.append(Text(one.tensor, one.seen, kind))
    return joined(parts, kind)


def basename(path: Any) -> Text:
    """``os.path.basename``."""
    given = path_text(path)
    return given.sub("^.*/", "", os.path.basename)


def dirname(path: Any) -> Text:
    """``os.path.dirname``, of a path below the root."""
    given = path_text(path)
    return given.sub("/*[^/]*$", "", os.path.dirname)


def splitext(path: Any) -> tuple[Text, Text]:
    """``os.path.splitext``."""
    given, pattern = path_text(path), r"^((?:.*/)?\.*[^/.][^/]*)(\.[^./]*)$"
    root = given.sub(pattern, r"\1", lambda one: os.path.splitext(one)[0])
    end = given.sub(pattern, r"\2", lambda one: os.path.splitext(one)[1])
    has = tf.strings.regex_full_match(given.tensor, f"(?s){pattern}")
    return root, Text(tf.where(has, end.tensor, ""), end.seen, end.kind)


def made_path(*parts: Any) -> PathText:
    """``Path(...)``."""
    return PathText.of(path_joined(*parts))


def fspath(value: Any) -> Any:
    """``os.fspath``."""
    return value.bare if isinstance(value, PathText) else value


FUNCTIONS: Final[Mapping[Any, Callable[..., Any]]] = {
    os.path.join: path_joined,
    os.path.basename: basename,
    os.path.dirname: dirname,
    os.path.splitext: splitext,
    os.fspath: fspath,
    pathlib.Path: made_path,
    pathlib.PosixPath: made_path,
}
"""Function of Python's -> what does the same with traced paths."""
