"""What a comparison says, in words, before any markup: tables and sentences that the console and Markdown share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from xttsbench.records.comparison_result import ComparedPair, ComparisonReport, Figures
from xttsbench.reporting import units
from xttsbench.reporting.rows import Table
from xttsbench.reporting.sections.arms import spoken
from xttsbench.reporting.text import plain

BLANK: Final = "–"
"""What was not measured; its reason is in ``unmeasured`` of the record."""
MARKS: Final = {
    "passed": "pass",
    "failed": "FAIL",
    "undecided": "UNDECIDED",
    "not measured": "NOT MEASURED",
}
_METHODS: Final = {
    "paired blocks": "rounds of one run, paired; 95 % intervals over rounds and processes",
    "separate sessions": "two sessions, unpaired: 95 % intervals over the processes of each",
    "one process": "too few processes: nothing is decided",
    "not measured": "",
}


@dataclass(frozen=True, slots=True)
class Said:
    """Everything that is said, in order; every text is one line without control characters."""

    summary: str
    sides: tuple[str, ...]
    """What A and B are."""
    warnings: tuple[str, ...]
    gates: Table | None
    effects: Table
    figures: tuple[Table, ...]
    remarks: tuple[str, ...]
    """Why an arm is not decided, and what could have been seen of it."""
    differences: Table | None
    notes: tuple[str, ...]


def describe(report: ComparisonReport) -> Said:
    """The comparison in words."""
    methods = dict.fromkeys(pair.method for pair in report.pairs)
    notes = [f"{_METHODS[method][0].upper()}{_METHODS[method][1:]}." for method in methods if _METHODS[method]]
    if len(report.pairs) > 1:
        notes.append(f"With {len(report.pairs)} arms each has to show {20 * len(report.pairs)} for its evidence.")
    notes.append(
        f"No difference: none beyond {report.margin:.0%}. {BLANK} is not measured; report.json has the reasons."
    )
    return Said(
        summary=plain(report.verdict.summary),
        sides=tuple(_side(name, run) for name, run in (("A", report.a), ("B", report.b))),
        warnings=tuple(map(plain, report.warnings)),
        gates=_gates(report),
        effects=_effects(report),
        figures=tuple(_figures(pair) for pair in report.pairs),
        remarks=tuple(_remark(pair) for pair in report.pairs),
        differences=_differences(report),
        notes=tuple(notes),
    )


def _remark(pair: ComparedPair) -> str:
    visible = pair.smallest_visible_effect
    words = [
        pair.why or "",
        f"an effect of {units.percent(visible)} would have been decided" if visible is not None else "",
    ]
    return f"{plain(pair.name)}: {'; '.join(plain(word) for word in words if word) or 'nothing to add'}."


def _side(name: str, run: object) -> str:
    given, kind, created = (plain(getattr(run, field)) for field in ("given", "kind", "created_utc"))
    known = "" if getattr(run, "processes_known", True) else ", the report alone"
    machine = f". Machine: {plain(disturbed.sentence)}" if (disturbed := getattr(run, "disturbance", None)) else ""
    return f"{name}: {given} ({kind} of {created}{known}){machine}"


def _gates(report: ComparisonReport) -> Table | None:
    if not report.gates:
        return None
    rows = [(MARKS[gate.outcome], gate.limit, plain(gate.pair), plain(gate.why)) for gate in report.gates]
    return Table("Gates", ("outcome", "gate", "arm", "why"), tuple(rows))


def _effects(report: ComparisonReport) -> Table:
    header = ("arm", "A per s", "B per s", "speed of B over A (95 %)", "result", "evidence", "processes")
    return Table("Speed", header, tuple(_effect(pair) for pair in report.pairs))


def _effect(pair: ComparedPair) -> tuple[str, ...]:
    ours, theirs = (
        f"{units.number(side.rate_per_s.estimate)} {pair.unit}" if side.rate_per_s else BLANK
        for side in (pair.a, pair.b)
    )
    return (
        plain(pair.name),
        ours,
        theirs,
        units.ratio_interval(pair.effect) if pair.effect else BLANK,
        spoken(pair.decision),
        units.evidence(pair.evidence) if pair.evidence is not None else BLANK,
        f"{pair.a.processes}, {pair.b.processes}",
    )


def _share(value: float) -> str:
    return units.percent(value)


_ROWS: Final[tuple[tuple[str, Callable[[Figures], str | None]], ...]] = (
    ("step time, mean", lambda f: units.duration_interval(f.step_time_s) if f.step_time_s else None),
    ("samples per second", lambda f: units.rate_interval(f.throughput_per_s) if f.throughput_per_s else None),
    ("utilization", lambda f: units.percent_interval(f.utilization) if f.utilization else None),
    ("waiting for input", lambda f: units.percent_interval(f.input_wait_fraction) if f.input_wait_fraction else None),
    ("CV of the step time", lambda f: None if f.cv is None else f"{f.cv:.3f}"),
    ("padding efficiency", lambda f: None if f.padding_efficiency is None else _share(f.padding_efficiency)),
    ("first step", lambda f: None if f.first_step_s is None else units.duration(f.first_step_s)),
    ("memory, largest", lambda f: None if f.memory_bytes is None else units.size(f.memory_bytes)),
    ("steady steps", lambda f: None if f.steps is None else units.number(f.steps)),
)


def _figures(pair: ComparedPair) -> Table:
    """Side by side, without a verdict; what neither run measured is left out."""
    rows = []
    for label, text in _ROWS:
        ours, theirs = text(pair.a), text(pair.b)
        if ours is not None or theirs is not None:
            rows.append((label, ours or BLANK, theirs or BLANK))
    return Table(f"{plain(pair.name)}: other figures, without a verdict", ("", "A", "B"), tuple(rows))


def _differences(report: ComparisonReport) -> Table | None:
    if not report.differences:
        return None
    rows = [
        (plain(found.field), plain(found.a), plain(found.b), "" if found.comparable else "NOT COMPARABLE")
        for found in report.differences
    ]
    return Table("What differs", ("what", "A", "B", ""), tuple(rows))
