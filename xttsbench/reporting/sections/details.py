"""The tables at the end of a report, for who wants to check: pipeline, readings, trials, target and environment.

The records leave the keys of these dictionaries open, so they are flattened as they come, with units from the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError

from xttsbench.records.pipeline import Pipeline
from xttsbench.records.report import Arm, Report
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.predictions import predictions_table
from xttsbench.reporting.rows import Table
from xttsbench.reporting.sections import pipeline as pipeline_tree
from xttsbench.reporting.sections.step import step_tables
from xttsbench.reporting.text import plain
from xttsbench.reporting.training import training_tables


def tables(report: Report) -> tuple[Table, ...]:
    """The tables that have rows, in order."""
    found = (
        *training_tables(report),
        _arms(report),
        _pipeline(report),
        predictions_table(report),
        *step_tables(report),
        _pairs("Readings beside the steps", report.readings),
        _pairs("Accelerator", report.accelerator),
        _pairs("Profile", report.profile or {}),
        _trials(report),
        _pairs("Target", report.target),
        _pairs("Environment", report.environment),
    )
    return tuple(table for table in found if table.rows)


def _arms(report: Report) -> Table:
    """What the tables of compared arms have no room for."""
    header = (
        "group",
        "accelerator",
        "arm",
        "settings",
        "blocks",
        "steps",
        "waiting for input",
        "std / mean",
        "evidence against the baseline",
    )
    return Table("Compared arms in full", header, tuple(_arm(arm) for arm in report.arms if arm.group))


def _arm(arm: Arm) -> tuple[str, ...]:
    wait = arm.input_wait_fraction
    return (
        plain(arm.group),
        plain(arm.accelerator),
        plain(arm.id),
        plain(", ".join(f"{name} {value}" for name, value in arm.config.items()) or "as given"),
        f"{arm.blocks:,}",
        f"{arm.steps:,}",
        NOT_MEASURED if wait is None else units.percent_interval(wait),
        NOT_MEASURED if arm.std_over_mean is None else units.number(float(arm.std_over_mean)),
        "" if arm.role == "baseline" else NOT_MEASURED if arm.evidence is None else units.evidence(arm.evidence),
    )


def _pairs(title: str, values: Mapping[str, object]) -> Table:
    """A table of two columns from a (nested) dictionary."""
    rows = tuple((plain(label), plain(value)) for label, value in _flat(values))
    return Table(title, ("what", "value"), rows)


def _flat(values: Mapping[str, object], prefix: str = "", unit: str = "") -> Iterator[tuple[str, str]]:
    """Label and value of every leaf; numbers below a key with a unit (``cpu_s: {python: 2.2}``) have that unit."""
    for name, value in values.items():
        key = f"{name}_{unit}" if unit and isinstance(value, int | float) else str(name)
        label, text = units.named(key, value)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{label}: ", units.unit(key))
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _flat(item, f"{prefix}{label} {index}: ")
            leaves = [units.named(key, item)[1] for item in value if not isinstance(item, Mapping)]
            if leaves or not value:
                yield f"{prefix}{label}", ", ".join(leaves) or "none"
        else:
            yield f"{prefix}{label}", text


def _trials(report: Report) -> Table:
    keys = tuple(dict.fromkeys(key for trial in report.trials for key in trial))
    header = tuple(plain(units.named(key, 0.0)[0]) for key in keys)
    rows = tuple(
        tuple(plain(units.named(key, value)[1]) if (value := trial.get(key)) is not None else "" for key in keys)
        for trial in report.trials
    )
    return Table("Trials", header, rows)


def pipeline_of(report: Report) -> Pipeline | None:
    """The pipeline that the report holds; ``None`` where none was read, or another version wrote it."""
    try:
        return None if report.pipeline is None else Pipeline.model_validate(report.pipeline, strict=False)
    except ValidationError:
        return None


def _pipeline(report: Report) -> Table:
    """The ops as a tree from the end on."""
    pipeline = pipeline_of(report)
    if pipeline is None:
        return _pairs("Pipeline", report.pipeline or {})
    return Table("Pipeline, from its end to its sources", pipeline_tree.HEADER, pipeline_tree.rows(pipeline))
