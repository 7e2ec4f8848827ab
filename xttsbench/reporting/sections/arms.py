"""The table of one group of compared arms, in words: what each configuration gives, costs, and whether it is proven.

One row per arm, the same columns in every output. An estimate and its interval are kept apart, so that a narrow
terminal can put them below each other; what no arm has is a note, not a column of blanks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.records.base import FASTER, SLOWER, Estimate
from xttsbench.records.report import Arm, Report
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.groups import Group, groups
from xttsbench.reporting.rhythm import OSCILLATES
from xttsbench.reporting.text import plain

BASELINE: Final = "baseline"
AGAIN: Final = "baseline again"
_NEVER_BEGAN: Final = ("refused", "not run")
"""Statuses of an arm that none of its processes gave it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's head, and a short form for terminals, which may have two lines."""

    name: str
    short: str
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with its interval, both as text; ``share`` (0..1) is for whoever draws it as a bar."""

    value: str
    bounds: str = ""
    share: float | None = None

    @property
    def text(self) -> str:
        """Both in one line."""
        return f"{self.value} ({self.bounds})" if self.bounds else self.value


@dataclass(frozen=True, slots=True)
class Row:
    """One arm; for ``tone`` see :func:`tone`."""

    tone: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One group's table; every row has one cell per column."""

    slug: str
    title: str
    emulated: bool
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def comparisons(report: Report) -> tuple[Comparison, ...]:
    """The tables in order; none where no arm belongs to a group."""
    return tuple(map(_comparison, groups(report)))


def decision(arm: Arm) -> str:
    """The result in words: marked as the baseline, as the baseline again, or how the arm ended."""
    if (ended := how_it_ended(arm)) is not None:
        return ended[0] if ended[0] in _NEVER_BEGAN else f"ended: {ended[0]}"
    if arm.role == "candidate":
        return spoken(arm.decision)
    return {"baseline": BASELINE, "aa": AGAIN}[arm.role]


def spoken(word: str | None) -> str:
    """A word of the evidence as people read it: ``clearly faster``, ``no difference``."""
    return (word or "not tested").replace("_", " ")


def how_it_ended(arm: Arm) -> tuple[str, str] | None:
    """The status of an arm that did not end well, in words, and its cause if one is known."""
    if arm.status == "ok":
        return None
    status, _, cause = plain(arm.status).partition(":")
    return status.strip().replace("_", " ") or "unknown", cause.strip()


def tone(arm: Arm) -> str:
    """How to set an arm: ``baseline``, ``again``, ``faster``, ``slower``, ``ended``, or ``plain``."""
    if arm.status != "ok":
        return "ended"
    if arm.role == "candidate":
        return "faster" if arm.decision in FASTER else "slower" if arm.decision in SLOWER else "plain"
    return {"baseline": "baseline", "aa": "again"}[arm.role]


def _comparison(group: Group) -> Comparison:
    measured = {name: column for name, column in _COLUMNS.items() if any(_has(arm, name) for arm in group.arms)}
    nowhere = [column.name for name, column in _COLUMNS.items() if name not in measured]
    return Comparison(
        slug=group.slug,
        title=group.title,
        emulated=group.emulated,
        columns=tuple(measured.values()),
        rows=tuple(Row(tone(arm), tuple(_CELLS[name](arm) for name in measured)) for arm in group.shown),
        notes=_notes(group, nowhere),
    )


def _has(arm: Arm, column: str) -> bool:
    return column in {"id", "decision"} or getattr(arm, column) is not None


def _estimate(value: Estimate | None, format_: Callable[[Estimate], tuple[str, str]]) -> Cell:
    return Cell(NOT_MEASURED) if value is None else Cell(*format_(value))


def _speed_up(arm: Arm) -> Cell:
    if arm.role == "baseline" and arm.effect is None and arm.status == "ok":
        return Cell("1")
    return _estimate(arm.effect, units.ratio_bounds)


def _utilization(arm: Arm) -> Cell:
    cell = _estimate(arm.utilization, units.percent_bounds)
    share = None if arm.utilization is None else min(1.0, max(0.0, arm.utilization.estimate))
    return Cell(cell.value, cell.bounds, share)


def _plain_share(value: float | None) -> Cell:
    return Cell(NOT_MEASURED if value is None else units.percent(value))


_COLUMNS: Final[Mapping[str, Column]] = {
    "id": Column("configuration", "configuration", numeric=False),
    "utilization": Column("utilization", "util."),
    "step_time_s": Column("step time", "step\ntime"),
    "throughput_per_s": Column("samples/s", "samples\n/s"),
    "valid_frames_per_s": Column("valid frames/s", "valid\nframes/s"),
    "padding_efficiency": Column("padding efficiency", "pad.\neff."),
    "cv": Column("CV", "CV"),
    "effect": Column("speed-up", "speed-up"),
    "decision": Column("result", "result", numeric=False),
}
"""Field of :class:`~xttsbench.records.report.Arm` to its column."""

_CELLS: Final[Mapping[str, Callable[[Arm], Cell]]] = {
    "id": lambda arm: Cell(plain(arm.id)),
    "utilization": _utilization,
    "step_time_s": lambda arm: _estimate(arm.step_time_s, units.duration_bounds),
    "throughput_per_s": lambda arm: _estimate(arm.throughput_per_s, units.rate_bounds),
    "valid_frames_per_s": lambda arm: _estimate(arm.valid_frames_per_s, units.rate_bounds),
    "padding_efficiency": lambda arm: _plain_share(arm.padding_efficiency),
    "cv": lambda arm: Cell(NOT_MEASURED if arm.cv is None else f"{arm.cv:.3f}"),
    "effect": _speed_up,
    "decision": lambda arm: Cell(decision(arm)),
}


def _notes(group: Group, nowhere: Sequence[str]) -> tuple[str, ...]:
    """What has to be known to read the table, below it."""
    of = " and ".join(dict.fromkeys(plain(arm.utilization_of) for arm in group.arms if arm.utilization_of))
    notes = [f"Utilization: {of}." if of else ""]
    if group.emulated:
        notes.append(
            "EMULATED: a wait of known length stands in for the device's work. The input side is real; the utilization "
            "and the times are not those of a device."
        )
    notes.append(_sample(group.arms))
    if hidden := len(group.arms) - len(group.shown):
        notes.append(f"Another {hidden} arms, slower than these or ended, are in report.json.")
    spread = {plain(arm.id): arm.std_over_mean or 0.0 for arm in group.arms if arm.role != "aa"}
    shaky = "; ".join(f"{name} {units.number(float(value))}" for name, value in spread.items() if value > OSCILLATES)
    if shaky:
        notes.append(f"The step time oscillates (std/mean above {OSCILLATES:g}): {shaky}.")
    for arm in group.arms:
        if (ended := how_it_ended(arm)) is not None:
            how = f"was {ended[0]}" if ended[0] in _NEVER_BEGAN else f"ended, {ended[0]}"
            notes.append(": ".join(word for word in (f"{plain(arm.id)} {how}", ended[1]) if word))
    if nowhere:
        notes.append(f'Not measured in any arm: {", ".join(nowhere)}; the reasons stand under "Not measured".')
    return tuple(note for note in notes if note)


def _sample(arms: Sequence[Arm]) -> str:
    """How much stands behind a row."""
    ok = [arm for arm in arms if arm.status == "ok"]
    words = [
        f"{_range([arm.blocks for arm in ok])} {'block' if {arm.blocks for arm in ok} == {1} else 'blocks'}"
        if ok
        else "",
        f"{_range([arm.steps for arm in ok])} steps" if any(arm.steps for arm in ok) else "",
    ]
    behind = ", ".join(word for word in words if word)
    return (f"Each row: {behind}. " if behind else "") + "Intervals 95 %; CV is 1.4826 MAD / median of the step time."


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
