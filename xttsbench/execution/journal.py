"""The append-only journals of a run: ``trials.jsonl``, a line per trial with every sample, and ``history.jsonl``.

A trial is on disk before the next one starts. A training run's history is appended while it goes on, a line for each
thing that it told; a kill costs the last line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ValidationError

from xttsbench.errors import JournalError, first_line
from xttsbench.records.base import READABLE, SCHEMA_VERSION
from xttsbench.records.training import HistoryLine
from xttsbench.records.trial import TrialRecord

NAME: Final = "trials.jsonl"


def append(directory: Path, record: TrialRecord) -> None:
    """Append one trial and flush it to the disk.

    Raises:
        JournalError: the journal cannot be written (a full disk, a directory that went away).
    """
    path = directory / NAME
    try:
        with path.open("ab+") as journal:
            _drop_torn_line(journal)
            journal.write(record.model_dump_json().encode() + b"\n")
            journal.flush()
            os.fsync(journal.fileno())
    except OSError as error:
        raise JournalError(
            f"The journal {path} cannot be written: {error.strerror or error}. Free some space or choose another --out."
        ) from error


def _drop_torn_line(journal: BinaryIO) -> None:
    """Cut off a last line without its newline, from a write that did not end, so that the next one stands alone."""
    size = journal.seek(0, os.SEEK_END)
    if size:
        journal.seek(size - 1)
        if journal.read(1) != b"\n":
            journal.seek(0)
            journal.truncate(journal.read().rfind(b"\n") + 1)


def read(directory: Path) -> list[TrialRecord]:
    """All whole trials of a journal; a torn last line, from a kill while it was written, is left out.

    So is a trial that was interrupted, and run again when the run went on.

    Raises:
        JournalError: there is no journal, a line in the middle is not a trial, or the schema is another version's.
    """
    path = directory / NAME
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
    path = directory / HISTORY
    try:
        with path.open("ab+") as history:
            torn = history.tell() > 0 and history.seek(-1, os.SEEK_END) >= 0 and history.read(1) != b"\n"
            history.write(b"\n" * torn + line.model_dump_json(exclude_none=True).encode() + b"\n")
    except OSError as error:
        raise JournalError(
            f"{path} cannot be written: {error.strerror or error}. Free some space; the run goes on from its last "
            "checkpoint when it is started again."
        ) from error


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
