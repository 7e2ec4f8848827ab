"""Tables of a report: its steps, configurations, findings and trials, as typed columns and as pandas data frames.

:data:`TABLES` is the one place that says which columns there are. A value that was not measured is missing, and a frame
keeps the reasons in ``attrs["missing"]``, and the units of its columns in ``attrs["units"]``. pandas is imported when a
frame is made, and not before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from xttsbench.errors import NothingMeasuredError
from xttsbench.records.base import Estimate
from xttsbench.records.rows import COLUMNS

if TYPE_CHECKING:
    from xttsbench.records.report import Report
    from xttsbench.records.trial import TrialRecord

Type = Literal["text", "number", "count", "flag", "time"]
DTYPES: Final[Mapping[Type, str]] = {
    "text": "string",
    "number": "Float64",
    "count": "Int64",
    "flag": "boolean",
    "time": "datetime64[ns, UTC]",
}
"""Type of a column -> that of its pandas array; each of them has a value for what is missing."""
_UNITS: Final = (
    ("_bytes_per_s", "bytes per second"),
    ("_per_s", "per second"),
    ("_ns", "nanoseconds"),
    ("_s", "seconds"),
    ("_bytes", "bytes"),
    ("_mhz", "MHz"),
    ("_w", "watts"),
    ("_cpus", "processors"),
    (("_share", "_fraction", "utilization", "efficiency"), "share, 0 to 1"),
    (("effect", "speedup"), "ratio: 2 is twice as fast"),
)
_TYPES: Final[Mapping[type, Type]] = {bool: "flag", int: "count", float: "number"}
CONFIG: Final = "config_"
"""Begin of the names of columns that hold one argument of a configuration each."""


class Column(NamedTuple):
    """Column of a table: its name, its type, and its meaning in words."""

    name: str
    type: Type
    meaning: str

    @property
    def unit(self) -> str:
        """Unit of its numbers, which the name ends with; empty for counts and what is none."""
        return unit_of(self.name)


def unit_of(name: str) -> str:
    """Unit of a column by the end of its name."""
    name = name.removesuffix("_low").removesuffix("_high")
    return next((unit for end, unit in _UNITS if name.endswith(end)), "")


def _estimate(name: str, meaning: str) -> tuple[Column, ...]:
    return (
        Column(name, "number", meaning),
        Column(f"{name}_low", "number", "low end of its 95 % interval"),
        Column(f"{name}_high", "number", "high end of its 95 % interval"),
    )


TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "steps": (
        Column("trial", "text", "id of the trial, as in the table of trials"),
        Column("kind", "text", "kind of the trial: `ladder`, `arm`, `script` and others"),
        Column("configuration", "text", "id of the configuration, or the fix; missing for the target as it is"),
        Column("segment", "text", "condition: `as_is`, `step_only`, `input_only`, or a mode of the step"),
        Column("step", "count", "number of the step among those kept of its segment, from 0"),
        Column("warm_up", "flag", "whether the step belongs to the warm-up of its segment"),
        *(Column(name, "count", meaning) for name, meaning in COLUMNS.items()),
    ),
    "configurations": (
        Column("id", "text", "id of the configuration"),
        Column("role", "text", "`baseline`, `candidate`, or `aa`: the baseline against itself"),
        Column("group", "text", "comparison, such as `modes of the step`; empty for the target as it is"),
        Column("accelerator", "text", "real device, or emulated accelerator with its milliseconds"),
        Column("chosen", "flag", "whether a sweep chose it; missing where there was no choice"),
        Column("status", "text", "`ok`, or how its trials ended, or why it was not measured"),
        Column("decision", "text", "result against the baseline, by the evidence"),
        *_estimate("effect", "speed against the baseline"),
        *_estimate("step_time_s", "mean step"),
        *_estimate("throughput_per_s", "samples a second"),
        *_estimate("utilization", "share of the time in which what `utilization_of` names works"),
        Column("utilization_of", "text", "device, or what stands for it, whose utilization it is"),
        *_estimate("input_wait_fraction", "part of the step that waits for the next batch"),
        *_estimate("valid_frames_per_s", "frames without padding, a second"),
        Column("padding_efficiency", "number", "valid frames over padded frames"),
        Column("cv", "number", "robust coefficient of variation of the step time"),
        Column("std_over_mean", "number", "standard deviation of the step time over its mean"),
        Column("steps", "count", "steady steps; 0 for the target as it is"),
        Column("blocks", "count", "processes that its figures are of"),
        Column(
            "processes",
            "count",
            "processes of both sides, paired, that the effect rests on; 0 for a baseline and for a mode of the step",
        ),
        Column("rounds", "count", "rounds in those processes: a turn of each side"),
        Column("evidence", "number", "e-value that it differs from the baseline"),
        Column("gain_ruled_out", "flag", "whether a gain that matters is ruled out at 95 %"),
    ),
    "findings": (
        Column("rule", "text", "id of the rule, for `xttsbench explain`"),
        Column("severity", "text", "`info`, `warning` or `critical`"),
        Column(
            "limiting", "flag", "whether the finding is a bottleneck: it limits the step now, or is part of what does"
        ),
        Column("title", "text", "finding in one line"),
        Column("file", "text", "file of the user's code"),
        Column("line", "count", "line of that file"),
        Column("op", "text", "op of the graph"),
        *_estimate("predicted_speedup", "estimated speed-up of the step, by the remedy or without the loss"),
        *_estimate("verified_speedup", "measured speed-up of the step by a fix that mends the finding"),
        Column(
            "same_data", "text", "whether the remedy leaves the data as they are: `proved`, `differs` or `not_proved`"
        ),
        Column("evidence", "text", "numbers that the finding rests on, by name, as JSON"),
        Column("remedy", "text", "advice to the user"),
        Column("patch", "text", "unified diff, where there is one"),
    ),
    "trials": (
        Column("id", "text", "id of the trial, unique in its run"),
        Column("kind", "text", "kind of the trial"),
        Column("configuration", "text", "id of the configuration, or the fix; missing for the target as it is"),
        Column("block", "count", "number of the repeat that the trial belongs to"),
        Column("status", "text", "`ok`, or how the trial ended"),
        Column("cause", "text", "reason, where the status is not `ok`"),
        Column("started_utc", "time", "start of the trial"),
        Column("duration_s", "number", "time from the start of the trial to its end"),
        Column("setup_s", "number", "time in which the target was built"),
        Column("steps", "count", "rows that the trial has in the table of steps"),
    ),
}
"""Name of each table -> its columns in order. ``config_<name>`` follows for each argument of the configurations."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Table of typed columns.

    Attributes:
        columns: in their order.
        rows: column -> value; ``None`` or no entry where there is none.
        missing: number of a row, column and reason of values that were not measured.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    missing: tuple[Row, ...] = ()

    def frame(self) -> Any:
        """Data frame of the table, with units and reasons in its ``attrs``."""
        import pandas as pd

        values = {one: [row.get(one.name) for row in self.rows] for one in self.columns}
        found = pd.DataFrame({one.name: pd.array(values[one], dtype=DTYPES[one.type]) for one in self.columns})
        units = {one.name: one.unit for one in self.columns if one.unit and one.type != "text"}
        found.attrs |= {"units": units, "missing": list(self.missing)}
        return found


@dataclass(frozen=True)
class Frames:
    """Tables of one report; ``read_trials`` reads its journal, where that is at hand."""

    report: Report
    read_trials: Callable[[], Sequence[TrialRecord]] | None = None

    def steps(self) -> Any:
        """Every step of every trial, warm-up included.

        Raises:
            NothingMeasuredError: the run's ``trials.jsonl``, which has them, is not at hand.
        """
        return self.table("steps").frame()

    def configurations(self) -> Any:
        """The target as it is, configurations and modes of the step; a sweep's results."""
        return self.table("configurations").frame()

    def findings(self) -> Any:
        """Findings, ordered by what the remedy is worth."""
        return self.table("findings").frame()

    def trials(self) -> Any:
        """Trials, with what became of them."""
        return self.table("trials").frame()

    def table(self, name: str) -> Table:
        """One of :data:`TABLES` as columns and rows.

        Raises:
            NothingMeasuredError: as :meth:`steps`.
        """
        made: Table = getattr(self, f"_{name}")()
        return made

    def _steps(self) -> Table:
        if self.read_trials is None:
            raise NothingMeasuredError(
                "A report alone has no steps: they are in the trials.jsonl beside it; "
                "read both with xttsbench.read_report(DIRECTORY)."
            )
        return steps_table(self.read_trials())

    def _configurations(self) -> Table:
        best = self.report.best
        rows = [_flat(arm) | {"chosen": best and arm.id == best.arm and bool(arm.group)} for arm in self.report.arms]
        return Table((*TABLES["configurations"], *_of_configurations(rows)), rows, self._missing("arms", rows))

    def _findings(self) -> Table:
        rows = [
            _flat(one) | one.location.model_dump() | {"evidence": json.dumps(one.evidence)}
            for one in self.report.findings
        ]
        return Table(TABLES["findings"], rows, self._missing("findings", rows))

    def _trials(self) -> Table:
        journal = {one.spec.trial_id: one for one in self.read_trials()} if self.read_trials else {}
        rows = [dict(told) | _of_journal(journal.get(told["id"])) for told in self.report.trials]
        return Table(TABLES["trials"], rows, self._missing("trials", rows))

    def _missing(self, path: str, rows: Sequence[Row]) -> tuple[Row, ...]:
        reasons = self.report.unmeasured
        return tuple(
            {"row": number, "column": name, "reason": reason}
            for number, row in enumerate(rows)
            for name in row
            if row[name] is None and (reason := reasons.get(f"{path}.{number}.{name}"))
        )


def steps_table(trials: Iterable[TrialRecord]) -> Table:
    """Every step of some trials as a row with the columns of the journal; what an older one lacks is missing."""
    return Table(TABLES["steps"], [*_steps(trials)])


def _steps(trials: Iterable[TrialRecord]) -> Iterator[Row]:
    for trial in trials:
        for segment in trial.segments:
            about = {"trial": trial.spec.trial_id, "segment": segment.name} | _of_trial(trial)
            kept = {name: values for name, values in segment.columns.items() if values}
            for step, row in enumerate(zip(*kept.values(), strict=True)):
                yield about | {"step": step, "warm_up": step < segment.warmup_steps} | dict(zip(kept, row, strict=True))


def _flat(record: Any) -> Row:
    """Fields of a record, an estimate as three of them, and each argument of a configuration as its own."""
    row: Row = {}
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, Estimate):
            row |= {name: value.estimate, f"{name}_low": value.low, f"{name}_high": value.high}
        elif name == "config":
            row |= {f"{CONFIG}{key}": argument for key, argument in value.items()}
        else:
            row[name] = value
    return row


def _of_configurations(rows: Sequence[Row]) -> Iterator[Column]:
    """Column for each argument that any configuration sets; values of several types become text."""
    for name in dict.fromkeys(name for row in rows for name in row if name.startswith(CONFIG)):
        kinds = {type(row[name]) for row in rows if row.get(name) is not None}
        of: Type = "number" if kinds == {int, float} else _TYPES.get(kinds.pop(), "text") if len(kinds) == 1 else "text"
        for row in rows if of == "text" else ():
            row[name] = None if row.get(name) is None else str(row[name])
        yield Column(name, of, f"argument `{name.removeprefix(CONFIG)}`")


def _of_trial(trial: TrialRecord) -> Row:
    return {"kind": trial.spec.kind, "configuration": trial.spec.arm or trial.spec.fix}


def _of_journal(trial: TrialRecord | None) -> Row:
    if trial is None:
        return {}
    steps = sum(segment.steps for segment in trial.segments)
    return _of_trial(trial) | {"started_utc": trial.started_utc, "setup_s": trial.setup_s, "steps": steps}
