"""Journals of a run: trials, rounds, the history of a training; their lines are flushed, cut off and gone on from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from xttsbench.errors import JournalError, first_line
from xttsbench.execution.run_directory import A_RUN, ADVICE
from xttsbench.files import atomic_write
from xttsbench.inputs import JOURNAL_BYTES, open_regular, read_bytes
from xttsbench.records.base import SCHEMA_VERSION, other_version
from xttsbench.records.training import HistoryLine
from xttsbench.records.trial import TrialRecord

TRIALS: Final = "trials.jsonl"
BROKEN_OFF: Final = "broken-off.jsonl"
"""Trials that a run measured again when it went on."""
ROUNDS: Final = "rounds.jsonl"
"""File of the measurements of live processes that take turns, so that a killed one loses one round at most."""


def append_trial(directory: Path, record: TrialRecord) -> None:
    """Append one trial and flush it to the disk.

    Raises:
        JournalError: the journal cannot be written (a full disk, a directory that went away).
    """
    _append(directory / TRIALS, record.model_dump_json(), _parse, ADVICE, durable=True)


def _append(path: Path, line: str, parse: Callable[[bytes], object], advice: str, *, durable: bool) -> None:
    try:
        with path.open("ab+") as journal:
            if (size := journal.seek(0, os.SEEK_END)) and journal.seek(size - 1) >= 0 and journal.read(1) != b"\n":
                # A last line without its newline, from a write that did not end, is whole or cut off.
                journal.seek(0)
                rest, begins, last = journal.read().rpartition(b"\n")
                try:
                    parse(last)
                    journal.write(b"\n")
                except ValueError:
                    journal.truncate(len(rest + begins))
            journal.write(line.encode() + b"\n")
            if durable:
                journal.flush()
                os.fsync(journal.fileno())
    except OSError as error:
        raise JournalError(f"The journal {path} cannot be written: {error.strerror or error}. {advice}") from error


def keep_rounds(directory: Path, living: Sequence[TrialRecord]) -> None:
    """Replace what is kept of trials that go on: they count where the run is killed before they are in the journal.

    Raises:
        JournalError: it cannot be written.
    """
    unended = {"status": "interrupted", "cause": "the run was killed while its turns went on"}
    _replace_records(directory / ROUNDS, [record.model_copy(update=unended) for record in living])


def read_trials(directory: Path) -> list[TrialRecord]:
    """All whole trials of a journal; a torn last line, from a kill while it was written, is left out.

    So is a trial that was run again when the run went on, since it was interrupted, or one beside it was. Of
    trials that took turns when everything was killed their whole rounds are there.

    Raises:
        JournalError: there is no journal, a line in the middle is not a trial, or the schema is another version's.
    """
    records = _read_records(directory / TRIALS)
    last = {record.spec.trial_id: index for index, record in enumerate(records)}
    living = _read_records(directory / ROUNDS) if (directory / ROUNDS).exists() else []
    return [
        *(
            record
            for index, record in enumerate(records)
            if last[record.spec.trial_id] == index
            or not (record.spec.turns or records[last[record.spec.trial_id]].machine or record.status == "interrupted")
        ),
        *(record for record in living if record.spec.trial_id not in last),
    ]


def trials_to_keep(directory: Path) -> list[TrialRecord]:
    """The trials of a run that goes on: those before the first that was broken off, and is to be run again.

    A trial that somebody killed, or whose helper, says nothing of what it measured, and what came after it was chosen
    by how it ended. One that died of itself is a result.

    Raises:
        JournalError: see :func:`read_trials` and :func:`append_trial`.
    """
    if not (directory / TRIALS).exists():
        return []
    kept = list(takewhile(lambda trial: not _was_broken_off(trial), read_trials(directory)))
    keep_trials(directory, kept)
    return kept


def _was_broken_off(trial: TrialRecord) -> bool:
    by_others = any(words in (trial.cause or "") for words in ("SIGKILL", "helper process"))
    return trial.status == "interrupted" or (trial.status == "killed" and by_others)


def keep_trials(directory: Path, kept: Sequence[TrialRecord]) -> None:
    """Leave these trials in the journal, and move all others into a file beside it.

    Raises:
        JournalError: a file cannot be read or written.
    """
    files = [directory / name for name in (TRIALS, ROUNDS) if (directory / name).exists()]
    found = [record for file in files for record in _read_records(file)]
    known = [(record.spec, record.started_utc) for record in kept]
    others = [record for record in found if (record.spec, record.started_utc) not in known]
    for record in others:
        _append(directory / BROKEN_OFF, record.model_dump_json(), _parse, ADVICE, durable=True)
    if known != [(record.spec, record.started_utc) for record in found]:
        for file in files:
            _replace_records(file, kept if file.name == TRIALS else [])


def _replace_records(path: Path, records: Sequence[TrialRecord]) -> None:
    try:
        atomic_write(path, "".join(record.model_dump_json() + "\n" for record in records).encode())
    except OSError as error:
        raise JournalError(f"{path} cannot be written: {error.strerror or error}. {ADVICE}") from error


def _read_records(path: Path) -> list[TrialRecord]:
    records = []
    try:
        with open_regular(path, JOURNAL_BYTES) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    records.append(_parse(line))
                except (ValueError, RecursionError) as error:
                    if not line.endswith(b"\n"):  # torn
                        continue
                    reason = f"is not a trial of schema {SCHEMA_VERSION}: {first_line(error)}"
                    raise JournalError(f"{path}, line {number} {reason}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise JournalError(f"No journal at {path} ({why}). Name a run's directory, e.g. one under reports/.") from error
    return records


def _parse(line: bytes) -> TrialRecord:
    """One line; a version is looked for only where it is no trial of ours, since reading JSON twice takes twice."""
    try:
        record = TrialRecord.model_validate_json(line)
        version = record.schema_version if "schema_version" in record.model_fields_set else None
    except ValueError:
        value = json.loads(line)
        version = value.get("schema_version") if isinstance(value, dict) else None
        if version == SCHEMA_VERSION:
            raise
    if version != SCHEMA_VERSION:
        raise ValueError(other_version(version))
    return record


HISTORY: Final = "history.jsonl"


def append_history(directory: Path, line: HistoryLine) -> None:
    """Append one line. It is not forced to the disk: a checkpoint is, and without one the run starts anew.

    Raises:
        JournalError: it cannot be written (a full disk, a directory that went away).
    """
    advice = "Free some space; the run goes on from its last checkpoint when it is started again."
    text = line.model_dump_json(exclude_none=True)
    _append(directory / HISTORY, text, HistoryLine.model_validate_json, advice, durable=False)


def read_history(directory: Path) -> list[HistoryLine]:
    """All whole lines; what a kill tore is left out. Empty where the run told nothing yet.

    Raises:
        JournalError: a line is none of a history.
    """
    path = directory / HISTORY
    try:
        lines = read_bytes(path, JOURNAL_BYTES).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"{path} cannot be read ({error.strerror or error}); name {A_RUN}.") from error
    found = []
    for number, text in enumerate(lines, start=1):
        try:
            found.append(HistoryLine.model_validate_json(text))
        except ValidationError as error:
            if error.errors()[0]["type"] == "json_invalid":  # torn by a kill while it was written
                continue
            raise JournalError(f"{path}, line {number} is none of a history: {first_line(error)}") from error
    return found
