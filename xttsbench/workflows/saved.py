"""Files that a run leaves for later ones to take up, ``best.yaml`` and ``optimized.yaml``: whole, and read strictly.

What is read decides how somebody trains and what is done to their data, so a file that is not whole is refused, with
all that is wrong with it at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from xttsbench.errors import InvalidInputError, first_line
from xttsbench.files import atomic_write
from xttsbench.records.base import READABLE, Record

R = TypeVar("R", bound=Record)


def write_saved(path: Path, record: Record, head: str) -> None:
    """Write a record below its opening comment, whole or not at all."""
    # Escaped beyond ASCII: PyYAML writes some characters as they are that it reads as the end of a line.
    text = yaml.safe_dump(record.model_dump(mode="json"), sort_keys=False, allow_unicode=False, width=100)
    atomic_write(path, (head + text).encode())


def read_saved(path: Path, record: type[R], *, name: str, of: str, again: str) -> R:
    """Read such a file, or that of a run's directory.

    Args:
        path: the file or the directory.
        record: what it holds.
        name: of the file in a directory.
        of: what writes it, for people.
        again: the sentence that says how to come by a good one.

    Raises:
        InvalidInputError: it is missing, malformed, or of another schema version; all that is wrong is in the message.
    """
    path = path / name if path.is_dir() else path
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        article = "an" if name[0] in "aeiou" else "a"
        raise InvalidInputError(
            f"{path} cannot be read ({error.strerror or error}); name {article} {name}, or the directory of {of}."
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not YAML: {first_line(error)}. {again}") from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"{path} holds {type(content).__name__}, not the keys of {name}. {again}")
    version = content.get("schema_version")
    if version not in READABLE:
        raise InvalidInputError(
            f"{path}: schema_version is {version!r}; this version reads {READABLE[0]} to {READABLE[-1]}. {again}"
        )
    try:
        return record.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(_problem(dict(one)) for one in error.errors())
        raise InvalidInputError(f"{path}: {problems}. {again}") from error


def _problem(error: dict[str, Any]) -> str:
    """One thing that is wrong: where, what, and the value that stands there."""
    place = ".".join(map(str, error["loc"])) or "the file"
    if error["type"] == "missing":
        return f"{place}: is missing"
    if error["type"] == "extra_forbidden":
        return f"{place}: no such key"
    value = repr(error["input"])
    return f"{place}: {error['msg']}, received {value if len(value) <= 60 else value[:57] + '...'}"
