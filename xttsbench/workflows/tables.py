"""Tables of stored runs and logs: a report with its journal, a monitor's log as a data frame, files of either kind."""

from __future__ import annotations

import csv
import io
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import NothingMeasuredError, UsageError
from xttsbench.execution.journal import TRIALS, read_trials
from xttsbench.execution.run_directory import read_record
from xttsbench.records.frames import Column, Table, steps_table
from xttsbench.records.machine import is_text
from xttsbench.records.report import Report
from xttsbench.reporting.traces import perfetto
from xttsbench.reporting.words import cell
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.monitor.log import read_log
from xttsbench.workflows.runs import read_run, redacted, report_of

REPORT: Final = "report.json"
_TIME: Final = "time_utc"  # column of a monitor's log


def read_report(path: Path) -> Report:
    """Report of a run's directory, with its journal beside it where there is one; or a ``report.json`` alone.

    Raises:
        JournalError: it is missing, malformed, or of another schema version.
    """
    file = path / REPORT if path.is_dir() else path
    report = read_record(file, Report, "a report of a run")
    journal = file.parent / TRIALS
    return report.beside(partial(read_trials, file.parent)) if journal.exists() else report


def read_monitor(path: Path) -> Any:
    """Data frame of the log of ``xttsbench monitor --log``, a row for each reading; an empty cell is missing.

    Raises:
        InvalidInputError: it cannot be read, or is no such log.
    """
    log = read_log(path).columns
    columns = tuple(
        Column(name, "time" if name == _TIME else "text" if is_text(name) else "number", "") for name in log
    )
    rows = [dict(zip(log, row, strict=True)) for row in zip(*log.values(), strict=True)]
    return Table(columns, rows).frame()


def exported(directory: Path, form: str, name: str, *, redact: bool = False) -> tuple[bytes, dict[str, int]]:
    """A run's time line as ``perfetto``, or its table of that name as ``csv`` or ``parquet``, and how much is in it.

    With ``redact`` it is made anew of the journal, without what tells who measured where.

    Raises:
        JournalError: a file of the run is missing, or cannot be read.
        NothingMeasuredError: there is nothing to export.
        UsageError: what writes Parquet is not installed.
    """
    run = redacted(read_run(directory)).kept if redact else None
    if name == "steps":
        trials = read_trials(directory) if run is None else run.trials
        held = {"trials": len(trials), "steps": sum(segment.steps for trial in trials for segment in trial.segments)}
        table = steps_table(trials if form != "perfetto" else ())
    else:
        report = read_report(directory) if run is None else _report_of(run)
        table = report.frames.table(name)
        held = {name: len(table.rows)}
    if not held[name]:
        raise NothingMeasuredError(f"{directory} has no {name} to export; name a run that measured some.")
    if form == "perfetto":
        return perfetto(trials).encode(), held
    return csv_of(table).encode() if form == "csv" else parquet_of(table), held


def _report_of(run: Recorded) -> Report:
    report: Report = run.redaction.kept(report_of(run))
    return report.beside(lambda: run.trials)


def csv_of(table: Table) -> str:
    """Rows of CSV below a line with the names; what is missing is empty, a flag is 0 or 1, and words stay words."""
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [one.name for one in table.columns], extrasaction="ignore", restval="", lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows({name: _written(value) for name, value in row.items()} for row in table.rows)
    return text.getvalue()


def _written(value: Any) -> Any:
    return cell(value) if isinstance(value, str) else int(value) if isinstance(value, bool) else value


def parquet_of(table: Table) -> bytes:
    """The table as a Parquet file, with its types; units and reasons are in the metadata of pandas.

    Raises:
        UsageError: pyarrow, which writes it, is not installed.
    """
    if find_spec("pyarrow") is None:
        raise UsageError("--format parquet needs pyarrow: pip install pyarrow, or take --format csv.")
    made: bytes = table.frame().to_parquet(engine="pyarrow", index=False)
    return made
