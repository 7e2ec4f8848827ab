"""The CSV of a monitor: a row for each reading, on its way to the disk as soon as it is made, and read again.

A row is handed over in one piece, and what is torn nevertheless (a full disk, a kill in the middle) is cut off or
passed over, so that whoever reads the file, at any time, finds whole rows. Words stay words: no spreadsheet computes
them.

``xttsbench report FILE.csv``: the log of a monitor, read again, as a record and as a page beside it.
"""

from __future__ import annotations

import csv
import functools
import io
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.stream import Stream, oscillation
from xttsbench.errors import InvalidInputError, NothingMeasuredError, UsageError
from xttsbench.files import atomic_write
from xttsbench.inputs import JOURNAL_BYTES, read_bytes
from xttsbench.records import machine as records
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.screen import numbered
from xttsbench.reporting.sections.brief import figures, monitored_document, table_of
from xttsbench.reporting.words import cell

STDOUT: Final = "-"
_FIRST: Final = ("time_utc", "t_s")  # columns that every log begins with


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

    def write(self, reading: records.Reading) -> None:
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


def _written(value: records.Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _words(value)
    # Bytes in full, shares to five digits: no number of these is known better.
    return str(value) if isinstance(value, int) else f"{value:.5g}" if value < 1000 else str(round(value, 3))


_words = functools.lru_cache(256)(cell)  # names and reasons, which are the same in one reading as in the next


@dataclass(frozen=True)
class Table:
    """A log that was read: each column with an entry for each row, ``None`` for an empty cell."""

    columns: dict[str, list[records.Value]]
    torn: bool  # whether a last row was passed over, since it has no end

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns["t_s"])


def read_log(path: Path) -> Table:
    """Read a log, while it is written or later.

    Raises:
        InvalidInputError: it cannot be read, or is no log of a monitor.
    """
    try:
        whole, _, rest = read_bytes(path, JOURNAL_BYTES).rpartition(b"\n")
        rows = csv.reader(io.StringIO(whole.decode(), newline=""), strict=True)
        header = next(rows, [])
        if tuple(header[:2]) != _FIRST or len(set(header)) != len(header):
            raise InvalidInputError(
                f"{path} is no log of xttsbench monitor: it begins with {', '.join(header[:2])[:60]!r} and not with "
                "time_utc, t_s. Name a CSV that xttsbench monitor --log wrote, or a run's directory."
            )
        columns: dict[str, list[records.Value]] = {name: [] for name in header}
        parsers = [(columns[name], str if records.is_text(name) else _number) for name in header]
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


_USERS: Final = 10
_READ_OFTEN: Final = 0.8
_SEARCHED: Final = 2048
"""Readings at the end of the log in which oscillations are looked for; those before were found while it was written."""


@dataclass(frozen=True)
class Page:
    """A log that was read, what stands on its page, and where that is."""

    record: records.Monitored
    document: doc.Document
    file: Path


def write_page(log: Path) -> Page:
    """Read a log, and write its page: ``FILE.html`` beside ``FILE.csv``.

    Raises:
        InvalidInputError: it is no log of a monitor.
        NothingMeasuredError: it has no whole row.
        UsageError: the page cannot be written.
    """
    table = read_log(log)
    if not table.rows:
        raise NothingMeasuredError(f"{log} has no reading, only its header; let xttsbench monitor take some.")
    columns = {
        name: np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        for name, values in table.columns.items()
        if not records.is_text(name)
    }
    read = {name: values for name, values in columns.items() if not np.isnan(values).all()}
    record = _record(log, table, read)
    # Here and not above: Matplotlib is large.
    from xttsbench.reporting.page import render_page
    from xttsbench.reporting.plots import draw_panels

    images, drawn = {}, []
    for name, (title, panels) in figures(read).items():
        images[name] = draw_panels(title, panels, read, record.events).svg
        drawn.append(doc.Figure(name, f"{title} over time", table=table_of(panels, read), view=doc.View.FULL))
    document = monitored_document(record, drawn, _users(table))
    file = log.with_suffix(".html")
    try:
        atomic_write(file, render_page(document, images).encode())
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Copy the log to where it can.") from error
    return Page(record, document, file)


def _record(log: Path, table: Table, columns: Mapping[str, npt.NDArray[np.float64]]) -> records.Monitored:
    stream = Stream(tuple(table.columns), (), 0.0)
    for row in zip(*table.columns.values(), strict=True):
        stream.take({name: value for name, value in zip(table.columns, row, strict=True) if value is not None})
    t_s = columns["t_s"]
    interval_s = float(np.median(np.diff(t_s))) if t_s.size > 1 else 0.0
    pairs = zip(t_s, table.columns.get("event", ()), strict=False)
    unmeasured = {
        name: "no reading of it in the log"
        for name in table.columns
        if not records.is_text(name) and name not in columns
    }
    names = {f"gpu{n}": next(filter(None, table.columns[f"gpu{n}_name"]), None) for n in numbered(columns, "gpu")}
    return records.Monitored(
        command=f"xttsbench report {log}",
        started_utc=str(table.columns["time_utc"][0]),
        duration_s=round(float(t_s[-1]), 3),
        interval_s=round(interval_s, 4),
        readings=table.rows,
        log=str(log),
        machine={"processors": len(numbered(table.columns, "cpu")), **names},
        signals=stream.signals(),
        oscillations=tuple(_oscillations(columns, interval_s)),
        events=tuple(records.Event(t_s=float(at), text=str(said)) for at, said in pairs if said)[-100:],
        unmeasured=unmeasured | ({"torn": "the last row has no end and was left out"} if table.torn else {}),
    )


def _oscillations(columns: Mapping[str, npt.NDArray[np.float64]], interval_s: float) -> list[records.ColumnOscillation]:
    """Oscillations at the end of the log, on even times.

    Columns that few rows have are left to the live search's events. Of what was read in few rows the live search knows
    more: events.
    """
    found = []
    for name in records.oscillating(columns):
        read = ~np.isnan(columns[name])
        if read.mean() < _READ_OFTEN:
            continue
        t_s, values = columns["t_s"][read], columns[name][read]
        even_s = np.arange(t_s[-1], t_s[0], -interval_s)[:_SEARCHED][::-1]
        held = values[np.searchsorted(t_s, even_s, side="right") - 1]
        if (one := oscillation(name, held, interval_s, float(t_s[-1]))) is not None:
            found.append(one)
    return found


def _users(table: Table) -> doc.Table | None:
    """Processors that each process used, over all looks at them; only the largest few of a look were written down."""
    used: dict[tuple[str, str], float] = defaultdict(float)
    looks = sum(value is not None for value in table.columns.get("unseen_cpus", ()))
    for place in range(1, records.LISTED + 1):
        parts = (table.columns.get(f"top{place}_{what}", []) for what in ("name", "pid", "cpus"))
        for name, pid, cpus in zip(*parts, strict=True):
            if name is not None and isinstance(cpus, float) and isinstance(pid, float):
                used[str(name), f"{pid:.0f}"] += cpus
    if not used or not looks:
        return None
    rows = [
        (name, pid, units.number(cpus / looks))
        for (name, pid), cpus in sorted(used.items(), key=lambda one: -one[1])[:_USERS]
    ]
    head = doc.Column("process"), doc.Column("pid", numeric=True), doc.Column("processors, mean", numeric=True)
    return doc.table(head, rows)
