"""The CSV of a monitor: a row for each reading, on its way to the disk as soon as it is made, and read again.

A row is handed over in one piece, and what is torn nevertheless (a full disk, a kill in the middle) is cut off or
passed over, so that whoever reads the file, at any time, finds whole rows. Words stay words: no spreadsheet computes
them.
"""

from __future__ import annotations

import csv
import functools
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.records.monitoring import Reading, Value, is_text
from xttsbench.reporting.words import cell

STDOUT: Final = "-"
_FIRST: Final = ("time_utc", "t_s")
"""Columns that every log begins with."""


class Log:
    """A new CSV; ``-`` is standard output.

    Raises:
        UsageError: there is a file of that name, or it cannot be written.
    """

    def __init__(self, path: str, columns: Sequence[str]) -> None:
        self._path, self._columns = path, columns
        self._size = 0
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._file = 1 if path == STDOUT else os.open(path, flags, 0o666)
        except FileExistsError:
            raise UsageError(f"--log {path!r} is there already; name another file, or remove it.") from None
        except OSError as error:
            raise UsageError(f"--log {path!r} cannot be written: {error.strerror}. Name another file.") from error
        self._write(columns)

    def write(self, reading: Reading) -> None:
        """Add a row.

        Raises:
            UsageError: the file cannot be written any more; the rows before are whole.
            BrokenPipeError: nobody reads standard output any more.
        """
        self._write([_written(reading.get(name)) for name in self._columns])

    def close(self) -> None:
        """Close the file; nothing is left to be written."""
        if self._path != STDOUT:
            os.close(self._file)

    def _write(self, cells: Sequence[str]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        row = text.getvalue().encode()
        written = 0
        try:
            while written < len(row):
                written += os.write(self._file, row[written:])
        except BrokenPipeError:
            raise
        except OSError as error:
            if self._path != STDOUT and written:
                os.truncate(self._path, self._size)
            raise UsageError(
                f"--log {self._path!r} cannot be written any more: {error.strerror}. "
                "The rows before are whole; free some space or name another file."
            ) from error
        self._size += written


def _written(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _words(value)
    # Bytes in full, shares to five digits: no number of these is known better.
    return str(value) if isinstance(value, int) else f"{value:.5g}" if value < 1000 else str(round(value, 3))


_words = functools.lru_cache(256)(cell)
"""Names and reasons, which are the same in one reading as in the next."""


@dataclass(frozen=True)
class Table:
    """A log that was read: each column with an entry for each row, ``None`` for an empty cell."""

    columns: dict[str, list[Value]]
    torn: bool
    """whether a last row was passed over, since it has no end"""

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.columns["t_s"])


def read_log(path: Path) -> Table:
    """Read a log, while it is written or later.

    Raises:
        InvalidInputError: it cannot be read, or is no log of a monitor.
    """
    try:
        whole, _, rest = path.read_bytes().rpartition(b"\n")
        rows = csv.reader(io.StringIO(whole.decode(), newline=""), strict=True)
        header = next(rows, [])
        if tuple(header[:2]) != _FIRST or len(set(header)) != len(header):
            raise InvalidInputError(
                f"{path} is no log of xttsbench monitor: it begins with {', '.join(header[:2])[:60]!r} and not with "
                "time_utc, t_s. Name a CSV that xttsbench monitor --log wrote, or a run's directory."
            )
        columns: dict[str, list[Value]] = {name: [] for name in header}
        parsers = [(columns[name], str if is_text(name) else _number) for name in header]
        for row in rows:
            for (values, parse), text in zip(parsers, row, strict=True):
                values.append(parse(text) if text else None)
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error.strerror}. Name a file of xttsbench monitor."
        ) from error
    except (ValueError, csv.Error) as error:
        raise InvalidInputError(
            f"{path} is no log of xttsbench monitor, or was changed: {error}. Name a CSV as --log wrote it."
        ) from error
    return Table(columns, bool(rest))


def _number(text: str) -> float:
    value = float(text)
    if not -1e300 < value < 1e300:
        raise ValueError(f"{text!r} is no reading")
    return value
