"""``trials.jsonl``: an append-only journal, a line per trial with every sample, on disk before the next one starts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ValidationError

from xttsbench.errors import JournalError
from xttsbench.records.base import READABLE, SCHEMA_VERSION
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
            reason = str(error).splitlines()[0]
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
