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
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from xttsbench.errors import JournalError, UsageError, first_line
from xttsbench.files import DRAFT_PREFIX, atomic_write
from xttsbench.records.base import READABLE, SCHEMA_VERSION
from xttsbench.records.plan import RunPlan
from xttsbench.records.training import HistoryLine
from xttsbench.records.trial import TrialRecord

PLAN: Final = "plan.json"
ENVIRONMENT: Final = "environment.json"
PROFILE: Final = "profile"
_RUN: Final = "a run's directory, e.g. one under reports/"
R = TypeVar("R", bound=BaseModel)

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


def read_record(path: Path, kind: type[R], what: str, *, name: str = _RUN) -> R:
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
    if version not in READABLE and "schema_version" in kind.model_fields:
        raise JournalError(
            f"{path}: schema_version is {version!r}; this version reads {READABLE[0]} to {READABLE[-1]}."
        )
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise JournalError(f"{path} is not {what}: {place}: {first['msg']}.") from error


def read_json(path: Path, *, name: str = _RUN) -> Any:
    """What a JSON file holds; for the argument and errors see :func:`read_record`."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise JournalError(f"{path} cannot be read ({error.strerror or error}); name {name}.") from error
    except (ValueError, RecursionError) as error:
        raise JournalError(f"{path} is not JSON ({error}); name {name}.") from error


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


TRIALS: Final = "trials.jsonl"


def append_trial(directory: Path, record: TrialRecord) -> None:
    """Append one trial and flush it to the disk.

    Raises:
        JournalError: the journal cannot be written (a full disk, a directory that went away).
    """
    _append(directory / TRIALS, record.model_dump_json(), "Free some space or choose another --out.", durable=True)


def _append(path: Path, line: str, advice: str, *, durable: bool) -> None:
    try:
        with path.open("ab+") as journal:
            # A last line without its newline, from a write that did not end, is cut off, so that this one stands alone.
            if (size := journal.seek(0, os.SEEK_END)) and journal.seek(size - 1) >= 0 and journal.read(1) != b"\n":
                journal.seek(0)
                journal.truncate(journal.read().rfind(b"\n") + 1)
            journal.write(line.encode() + b"\n")
            if durable:
                journal.flush()
                os.fsync(journal.fileno())
    except OSError as error:
        raise JournalError(f"The journal {path} cannot be written: {error.strerror or error}. {advice}") from error


def read_trials(directory: Path) -> list[TrialRecord]:
    """All whole trials of a journal; a torn last line, from a kill while it was written, is left out.

    So is a trial that was interrupted, and run again when the run went on.

    Raises:
        JournalError: there is no journal, a line in the middle is not a trial, or the schema is another version's.
    """
    path = directory / TRIALS
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise JournalError(
            f"No journal at {path} ({error.strerror or error}). Name a run's directory, e.g. one under reports/."
        ) from error
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_parse(line))
        except (ValueError, ValidationError) as error:
            if number == len(lines):  # no newline after it: torn
                continue
            reason = first_line(error)
            raise JournalError(f"{path}, line {number} is not a trial of schema {SCHEMA_VERSION}: {reason}") from error
    last = {record.spec.trial_id: index for index, record in enumerate(records)}
    return [
        record
        for index, record in enumerate(records)
        if record.status != "interrupted" or last[record.spec.trial_id] == index
    ]


def _parse(line: bytes) -> TrialRecord:
    value = json.loads(line)
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version not in READABLE:
        raise ValueError(f"schema_version is {version!r}; this version reads {READABLE[0]} to {READABLE[-1]}")
    return TrialRecord.model_validate_json(line)


HISTORY: Final = "history.jsonl"


def append_history(directory: Path, line: HistoryLine) -> None:
    """Append one line. It is not forced to the disk: a checkpoint is, and without one the run starts anew.

    Raises:
        JournalError: it cannot be written (a full disk, a directory that went away).
    """
    advice = "Free some space; the run goes on from its last checkpoint when it is started again."
    _append(directory / HISTORY, line.model_dump_json(exclude_none=True), advice, durable=False)


def read_history(directory: Path) -> list[HistoryLine]:
    """All whole lines; what a kill tore is left out. Empty where the run told nothing yet.

    Raises:
        JournalError: a line is none of a history.
    """
    path = directory / HISTORY
    if not path.exists():
        return []
    found = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            found.append(HistoryLine.model_validate_json(text))
        except ValidationError as error:
            if error.errors()[0]["type"] == "json_invalid":  # torn by a kill while it was written
                continue
            raise JournalError(f"{path}, line {number} is none of a history: {first_line(error)}") from error
    return found
