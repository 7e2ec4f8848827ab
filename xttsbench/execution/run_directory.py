"""A run's own directory: made once, never shared with anything else, and held by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from xttsbench.errors import JournalError, UsageError, first_line
from xttsbench.files import DRAFT_PREFIX, atomic_write
from xttsbench.records.base import READABLE
from xttsbench.records.plan import RunPlan

PLAN: Final = "plan.json"
ENVIRONMENT: Final = "environment.json"
PROFILE: Final = "profile"

made: list[Path] = []
"""The directories that this process made for runs, so that whoever is interrupted can be told where to look."""


def make_run_directory(out: Path | None, name: str, now: datetime, *, under: Path | None = None) -> Path:
    """Make the directory of a run and return it; without ``out``, ``reports/<UTC time>-<name>/`` under ``under``.

    Raises:
        UsageError: ``out`` is a file or holds something already, or cannot be made.
    """
    if out is None:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "run"
        root = (under or Path.cwd()) / "reports"
        out = root / f"{now:%Y%m%dT%H%M%SZ}-{stem}"
        for attempt in range(2, 100):
            if not out.exists():
                break
            out = root / f"{now:%Y%m%dT%H%M%SZ}-{stem}-{attempt}"
    try:
        if out.exists() and not out.is_dir():
            raise UsageError(f"--out {str(out)!r} is a file; name a directory that is empty or does not exist.")
        out.mkdir(parents=True, exist_ok=True)
        taken = next(out.iterdir(), None)
    except OSError as error:
        raise UsageError(f"--out {str(out)!r} cannot be made: {error.strerror or error}. Name another one.") from error
    if taken is not None:
        raise UsageError(
            f"--out {str(out)!r} holds {taken.name!r} already, and a run needs a directory of its own. "
            "Name one that is empty or does not exist."
        )
    made.append(out)
    return out


def clear_unplanned(directory: Path) -> None:
    """Remove what a run left that was killed before its plan was there; where a plan is, or no directory, nothing."""
    if (directory / PLAN).exists() or not directory.is_dir():
        return
    for path in directory.iterdir():
        if path.name == ENVIRONMENT or path.name.startswith(DRAFT_PREFIX):
            path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: a reader sees the old file or the new one, whole."""
    atomic_write(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_plan(directory: Path) -> RunPlan:
    """The plan of a run.

    Raises:
        JournalError: it is missing, malformed, or of another schema version.
    """
    path = directory / PLAN
    value = _read_json(path)
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version not in READABLE:
        raise JournalError(
            f"{path}: schema_version is {version!r}; this version reads {READABLE[0]} to {READABLE[-1]}."
        )
    try:
        return RunPlan.model_validate(value)
    except ValidationError as error:
        raise JournalError(f"{path} is not the plan of a run: {first_line(error)}.") from error


def read_environment(directory: Path) -> dict[str, Any]:
    """The environment of a run.

    Raises:
        JournalError: it is missing or malformed.
    """
    value = _read_json(directory / ENVIRONMENT)
    if not isinstance(value, dict):
        raise JournalError(f"{directory / ENVIRONMENT} does not hold an object.")
    return value


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JournalError(
            f"{path} cannot be read ({error.strerror or error}); name a run's directory, e.g. one under reports/."
        ) from error
    except ValueError as error:
        raise JournalError(f"{path} is not JSON ({error}).") from error


@contextmanager
def lock_run(directory: Path) -> Iterator[None]:
    """Hold a run's directory, which must be there; it is the directory itself that is locked, so nothing is left in it.

    Raises:
        UsageError: another process holds it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"--out {str(directory)!r} is in use by another process that goes on with this run; wait for its end, "
                "or name another directory."
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # of a file system without locks, which keeps none out
                raise
        yield
    finally:
        os.close(descriptor)
