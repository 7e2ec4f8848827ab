"""``xttsbench report FILE.csv``: the log of a monitor, read again, as a record and as a page beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.stream import Stream, oscillation
from xttsbench.errors import NothingMeasuredError, UsageError
from xttsbench.files import atomic_write
from xttsbench.records.monitoring import LISTED, ColumnOscillation, Event, Monitored, is_text, oscillating
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.monitoring.document import monitored_document
from xttsbench.reporting.monitoring.panels import figures, table_of
from xttsbench.reporting.monitoring.screen import numbered
from xttsbench.workflows.monitor.log import Table, read_log

_USERS: Final = 10
_READ_OFTEN: Final = 0.8
_SEARCHED: Final = 2048
"""Readings at the end of the log in which oscillations are looked for; those before were found while it was written."""


@dataclass(frozen=True)
class Page:
    """A log that was read, what stands on its page, and where that is."""

    record: Monitored
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
        if not is_text(name)
    }
    read = {name: values for name, values in columns.items() if not np.isnan(values).all()}
    record = _record(log, table, read)
    # Here and not above: Matplotlib is large.
    from xttsbench.reporting import html
    from xttsbench.reporting.plots.monitor import draw_panels

    images, drawn = {}, []
    for name, (title, panels) in figures(read).items():
        images[name] = draw_panels(title, panels, read, record.events).svg
        drawn.append(doc.Figure(name, f"{title} over time", table=table_of(panels, read), view=doc.View.FULL))
    document = monitored_document(record, drawn, _users(table))
    file = log.with_suffix(".html")
    try:
        atomic_write(file, html.render(document, images).encode())
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Copy the log to where it can.") from error
    return Page(record, document, file)


def _record(log: Path, table: Table, columns: Mapping[str, npt.NDArray[np.float64]]) -> Monitored:
    stream = Stream(tuple(table.columns), (), 0.0)
    for row in zip(*table.columns.values(), strict=True):
        stream.take({name: value for name, value in zip(table.columns, row, strict=True) if value is not None})
    t_s = columns["t_s"]
    interval_s = float(np.median(np.diff(t_s))) if t_s.size > 1 else 0.0
    pairs = zip(t_s, table.columns.get("event", ()), strict=False)
    unmeasured = {
        name: "no reading of it in the log" for name in table.columns if not is_text(name) and name not in columns
    }
    names = {f"gpu{n}": next(filter(None, table.columns[f"gpu{n}_name"]), None) for n in numbered(columns, "gpu")}
    return Monitored(
        command=f"xttsbench report {log}",
        started_utc=str(table.columns["time_utc"][0]),
        duration_s=round(float(t_s[-1]), 3),
        interval_s=round(interval_s, 4),
        readings=table.rows,
        log=str(log),
        machine={"processors": len(numbered(table.columns, "cpu")), **names},
        signals=stream.signals(),
        oscillations=tuple(_oscillations(columns, interval_s)),
        events=tuple(Event(t_s=float(at), text=str(said)) for at, said in pairs if said)[-100:],
        unmeasured=unmeasured | ({"torn": "the last row has no end and was left out"} if table.torn else {}),
    )


def _oscillations(columns: Mapping[str, npt.NDArray[np.float64]], interval_s: float) -> list[ColumnOscillation]:
    """Those at the end of the log, on even times. Of what was read in few rows the live search knows more: events."""
    found = []
    for name in oscillating(columns):
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
    for place in range(1, LISTED + 1):
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
