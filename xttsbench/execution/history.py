"""``history.jsonl``: what a training run told, a line each, appended while it goes on; a kill costs the last line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from xttsbench.errors import JournalError
from xttsbench.records.training import HistoryLine

NAME: Final = "history.jsonl"


def append(directory: Path, line: HistoryLine) -> None:
    """Append one line. It is not forced to the disk: a checkpoint is, and without one the run starts anew.

    Raises:
        JournalError: it cannot be written (a full disk, a directory that went away).
    """
    path = directory / NAME
    try:
        with path.open("ab+") as history:
            torn = history.tell() > 0 and history.seek(-1, os.SEEK_END) >= 0 and history.read(1) != b"\n"
            history.write(b"\n" * torn + line.model_dump_json(exclude_none=True).encode() + b"\n")
    except OSError as error:
        raise JournalError(
            f"{path} cannot be written: {error.strerror or error}. Free some space; the run goes on from its last "
            "checkpoint when it is started again."
        ) from error


def read(directory: Path) -> list[HistoryLine]:
    """All whole lines; what a kill tore is left out. Empty where the run told nothing yet.

    Raises:
        JournalError: a line is none of a history.
    """
    path = directory / NAME
    if not path.exists():
        return []
    found = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            found.append(HistoryLine.model_validate_json(text))
        except ValidationError as error:
            if error.errors()[0]["type"] == "json_invalid":  # torn by a kill while it was written
                continue
            raise JournalError(f"{path}, line {number} is none of a history: {str(error).splitlines()[0]}") from error
    return found
