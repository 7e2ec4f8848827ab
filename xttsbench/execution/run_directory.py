"""A run's own directory: made once, never shared with anything else, and held by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from xttsbench.errors import JournalError, UsageError
from xttsbench.files import DRAFT_PREFIX, atomic_write
from xttsbench.inputs import read_bytes
from xttsbench.records.base import SCHEMA_VERSION, Rewriting, other_version
from xttsbench.records.plan import RunPlan

PLAN: Final = "plan.json"
ENVIRONMENT: Final = "environment.json"
PROFILE: Final = "profile"
OUTPUT: Final = "output.log"
"""File with what the targets of a run printed."""
A_RUN: Final = "a run's directory, e.g. one under reports/"
ADVICE: Final = "Free some space or choose another --out."
R = TypeVar("R", bound=BaseModel)

held: list[Path] = []
"""The directories that this process held for runs, so that whoever is interrupted can be told where to look."""


@contextmanager
def make_run_directory(
    out: Path | None, name: str, now: datetime, *, under: Path | None = None, clear: bool = False
) -> Iterator[Path]:
    """Make the directory of a run and hold it; without ``out``, ``reports/<UTC time>-<name>/`` under ``under``.

    What was left there by a run that was killed before its plan was written is removed where ``clear`` says so.

    Raises:
        UsageError: ``out`` is a file or holds something already, cannot be made, or another process holds it.
    """
    try:
        if out is None:
            stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "run"
            out = _make_another((under or Path.cwd()) / "reports" / f"{now:%Y%m%dT%H%M%SZ}-{stem}")
        elif out.exists() and not out.is_dir():
            raise UsageError(f"--out {str(out)!r} is a file; name a directory that is empty or does not exist.")
        else:
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {str(out)!r} cannot be made: {error.strerror or error}. Name another one.") from error
    with lock_run(out):  # two that made it, or found it empty, are one from here on
        if clear:
            clear_unplanned(out)
        if (taken := next(out.iterdir(), None)) is not None:
            raise UsageError(
                f"--out {str(out)!r} holds {taken.name!r} already, and a run needs a directory of its own. "
                "Name one that is empty or does not exist."
            )
        yield out


def _make_another(wanted: Path) -> Path:
    """Make a directory that was not there, of that name or with the next number behind it."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    directory, number = wanted, 1
    while True:
        try:
            directory.mkdir()
            return directory
        except FileExistsError:
            number += 1
            directory = wanted.with_name(f"{wanted.name}-{number}")


def clear_unplanned(directory: Path) -> None:
    """Remove what a run left that was killed before its plan was there; where a plan is, or no directory, nothing."""
    if (directory / PLAN).exists() or not directory.is_dir():
        return
    for path in directory.iterdir():
        if path.name == ENVIRONMENT or path.name.startswith(DRAFT_PREFIX):
            path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: a reader sees the old file or the new one, whole."""
    atomic_write(path, (json.dumps(Rewriting().kept(value), indent=2, ensure_ascii=False) + "\n").encode())


def write_first(directory: Path, files: Mapping[str, Any]) -> None:
    """Write what a run begins with, by the names of the files and in their order.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        for name, value in files.items():
            write_json(directory / name, value)
    except OSError as error:
        raise UsageError(f"{directory} cannot be written to: {error.strerror or error}. {ADVICE}") from error


def read_plan(directory: Path) -> RunPlan:
    """The plan of a run.

    Raises:
        JournalError: it is missing, malformed, or of another schema version.
    """
    return read_record(directory / PLAN, RunPlan, "the plan of a run")


def read_environment(directory: Path) -> dict[str, Any]:
    """The environment of a run.

    Raises:
        JournalError: it is missing or malformed.
    """
    value = read_json(directory / ENVIRONMENT)
    if not isinstance(value, dict):
        raise JournalError(f"{directory / ENVIRONMENT} does not hold an object.")
    return value


def read_record(path: Path, kind: type[R], what: str, *, name: str = A_RUN) -> R:
    """A record that a run wrote as JSON.

    Args:
        path: its file.
        kind: of the record.
        what: it is, in words, for whoever reads that the file is something else.
        name: what to name in place of a file that cannot be read.

    Raises:
        JournalError: it is missing, malformed, or of another schema version.
    """
    return record_of(read_json(path, name=name), kind, path, what)


def record_of(value: Any, kind: type[R], path: Path, what: str) -> R:
    """The record that a JSON value is; for the arguments and errors see :func:`read_record`."""
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version != SCHEMA_VERSION and "schema_version" in kind.model_fields:
        raise JournalError(f"{path}: {other_version(version)}.")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise JournalError(f"{path} is not {what}: {place}: {first['msg']}.") from error


def read_json(path: Path, *, name: str = A_RUN) -> Any:
    """Content of a JSON file; for the argument and errors see :func:`read_record`."""
    try:
        return json.loads(read_bytes(path))
    except OSError as error:
        raise JournalError(f"{path} cannot be read ({error.strerror or error}); name {name}.") from error
    except (ValueError, RecursionError) as error:
        raise JournalError(f"{path} is not JSON ({error}); name {name}.") from error


_locks: set[int] = set()


def _leave_to_parent() -> None:
    """Close in a process that was forked what its parent holds: a lock lasts as long as a copy of its descriptor."""
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_leave_to_parent)


@contextmanager
def lock_run(directory: Path, *, shared: bool = False) -> Iterator[bool]:
    """Hold a run's directory; it is the directory itself that is locked, so nothing is left in it.

    Gives whether it is this process's: where another one holds it only whoever can do with a ``shared`` one goes on.

    Raises:
        UsageError: another process holds it, or it cannot be opened.
    """
    ours = True
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"--out {str(directory)!r} cannot be opened: {why}. Name another one.") from error
    _locks.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            ours = error.errno in (errno.ENOLCK, errno.ENOTSUP)  # of a file system without locks, which keeps none out
            if not (ours or isinstance(error, BlockingIOError)):
                raise
        if not (ours or shared):
            raise UsageError(
                f"--out {str(directory)!r} is in use by another process; wait for its end, or name another directory."
            )
        if ours:
            _refuse_links(directory)
            held.append(directory)
        yield ours
    finally:
        if descriptor in _locks:  # else this is a process that was forked
            _locks.discard(descriptor)
            os.close(descriptor)


def _refuse_links(directory: Path) -> None:
    """Refuse a folder, perhaps had from somebody else, from which a link leads out: what a run writes stays in it."""
    with os.scandir(directory) as entries:
        link = next((entry.path for entry in entries if entry.is_symlink()), None)
    if link is not None:
        raise UsageError(
            f"{link} is a link to {os.readlink(link)!r}, and a run writes into its own folder alone; "
            "remove the link, or put what it leads to in its place."
        )
