"""A YAML file read with the line of every key, and ``1e-4`` read as the number that it is.

YAML 1.1 takes ``1e-4`` for text, for want of a dot. The lines are kept so that an error found later, by whoever
validates the content, can name the place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from xttsbench.errors import InvalidInputError, first_line

KeyPath = tuple[str | int, ...]
Problem = tuple[KeyPath, str]
"""A place in the file and what is wrong there."""

_LARGEST_BYTES: Final = 1_000_000
_NODES: Final = 20_000  # Nodes of a file at most, aliases followed: a few lines of YAML can stand for gigabytes
_DEPTH: Final = 40


@dataclass(frozen=True)
class YamlFile:
    """What a file holds.

    Attributes:
        content: the mapping at its top.
        lines: line, from 1, of each key path.
        problems: what is wrong with the YAML itself although it could be read: a key given twice.
    """

    path: Path
    content: dict[str, Any]
    lines: dict[KeyPath, int]
    problems: tuple[Problem, ...]

    def line(self, place: KeyPath) -> int | None:
        """Line of a key path, or of the nearest one above it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)


class _Loader(yaml.SafeLoader):
    """Numbers such as ``1e-4`` and ``1.5e4`` are numbers, as in YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def read_yaml(path: Path) -> YamlFile:
    """Read a file that holds one mapping.

    Raises:
        InvalidInputError: it is missing, a directory, not text, not YAML, too large, or holds something else.
    """
    text = _text(path)
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                found = "nothing" if node is None else "a list" if isinstance(node, yaml.SequenceNode) else "one value"
                raise InvalidInputError(f"{path}: expected a mapping of keys to values, and the file holds {found}.")
            problems: list[Problem] = []
            lines = dict(_walk(path, node, (), problems, [0]))
            content = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise InvalidInputError(f"{path}{where}: not YAML: {error.problem or error.context}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none is a ValueError
        raise InvalidInputError(f"{path}: not YAML: {first_line(error)}.") from error
    return YamlFile(path, content, lines, tuple(problems))


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise InvalidInputError(f"{path} is a directory; name a YAML file in it.")
        if path.stat().st_size > _LARGEST_BYTES:
            raise InvalidInputError(f"{path} has {path.stat().st_size} bytes, which is no YAML written by hand.")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"{str(path)!r} cannot be read as text: {reason}.") from error


def _walk(
    path: Path, node: yaml.Node, place: KeyPath, problems: list[Problem], count: list[int]
) -> Iterator[tuple[KeyPath, int]]:
    """Key paths below a node with their lines; keys that are given twice go to ``problems``."""
    count[0] += 1
    if count[0] > _NODES or len(place) > _DEPTH:
        raise InvalidInputError(f"{path}: too large or too deep once its aliases are followed.")
    yield place, node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(path, item, (*place, index), problems, count)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen and name != "<<":
                problems.append(((*place, name), f"given twice, first in line {seen[name]}"))
            seen[name] = line
            yield (*place, name), line
            below = _walk(path, value, (*place, name), problems, count)
            next(below)  # the key's own line is the better place
            yield from below
