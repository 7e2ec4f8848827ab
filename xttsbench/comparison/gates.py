"""Limits that a run has to keep, for continuous integration: passed, failed, undecided, or not measured.

A gate fails only where the whole interval, of two processes at least, lies beyond its limit, and passes only where the
whole interval keeps it; what straddles the limit is undecided, and what was not measured never passes. That all arms
keep a limit needs no correction (each has to), but that one of several breaks it does: a regression fails the gate only
where the interval at Bonferroni's level for the number of arms is beyond the limit. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from xttsbench.comparison.effects import MIN_PROCESSES, Effect
from xttsbench.records.base import Estimate
from xttsbench.records.comparison_result import ComparedPair, Gate, Limit, Outcome


@dataclass(frozen=True, slots=True)
class _Kind:
    """Meaning of a limit: a field of `Limits`, words, factor and unit as written, and a field of `Figures`."""

    limit: str
    words: str
    factor: float
    unit: str
    figure: str = ""
    least: bool = False


_KINDS: Final[dict[Limit, _Kind]] = {
    "max-regression": _Kind("max_regression", "speed of B over A", 1, "x"),
    "max-step-time": _Kind("max_step_time_s", "step time", 1e3, " ms", "step_time_s"),
    "min-throughput": _Kind("min_throughput_per_s", "samples per second", 1, "", "throughput_per_s", least=True),
    "min-utilization": _Kind("min_utilization", "utilization", 100, " %", "utilization", least=True),
    "max-cv": _Kind("max_cv", "CV of the step time", 1, "", "cv_interval"),
    "max-input-wait": _Kind(
        "max_input_wait", "share of the step that waits for input", 100, " %", "input_wait_fraction"
    ),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Requested limits; ``None`` where not requested.

    Attributes:
        max_regression: share of A's speed that B may lose, below 1.
        max_step_time_s: mean seconds of a step.
        min_throughput_per_s: samples per second.
        min_utilization: 0..1.
        max_cv: robust coefficient of variation of the step time.
        max_input_wait: share of the wall time, 0..1.
    """

    max_regression: float | None = None
    max_step_time_s: float | None = None
    min_throughput_per_s: float | None = None
    min_utilization: float | None = None
    max_cv: float | None = None
    max_input_wait: float | None = None

    @property
    def absolute(self) -> dict[Limit, float]:
        """Limits on B alone."""
        every = {name: getattr(self, kind.limit) for name, kind in _KINDS.items() if kind.figure}
        return {name: value for name, value in every.items() if value is not None}


def judge_gates(limits: Limits, pairs: Sequence[ComparedPair], effects: Mapping[str, Effect]) -> tuple[Gate, ...]:
    """Every limit held against every pair."""
    found = []
    for pair in pairs:
        if limits.max_regression is not None:
            found.append(_regression(limits.max_regression, pair, effects[pair.name], len(pairs)))
        found += [_absolute(name, limit, pair) for name, limit in limits.absolute.items()]
    return tuple(found)


def _regression(limit: float, pair: ComparedPair, effect: Effect, arms: int) -> Gate:
    # One of 95 % for each configuration alone, since each has to keep the limit.
    floor, value = 1 - limit, effect.interval(0.95) if effect.sample else None
    outcome: Outcome
    if value is None or not effect.sure:
        # A value that tells nothing of the next process neither passes nor fails.
        outcome = "not measured" if pair.method == "not measured" else "undecided"
        why = effect.why or pair.why or "the two were not measured"
    else:
        outcome = place(value, floor, at_least=True)
        why = _said("max-regression", value, floor, outcome)
        if outcome == "failed" and effect.interval(1 - 0.05 / arms).high >= floor:
            outcome, why = "undecided", f"{why}, but not when {arms} configurations are tried"
    return Gate(limit="max-regression", pair=pair.name, threshold=limit, value=value, outcome=outcome, why=why)


def _absolute(name: Limit, limit: float, pair: ComparedPair) -> Gate:
    found = getattr(pair.b, _KINDS[name].figure)
    if found is None:
        why = f"{_KINDS[name].words} was not measured" + (f" ({pair.b.status})" if pair.b.status != "ok" else "")
        return Gate(limit=name, pair=pair.name, threshold=limit, outcome="not measured", why=why)
    outcome: Outcome = "undecided"
    if pair.b.processes < MIN_PROCESSES:
        why = (
            f"processes of B: {pair.b.processes}, and a gate takes {MIN_PROCESSES}, since one tells nothing of the next"
        )
    else:
        outcome = place(found, limit, at_least=_KINDS[name].least)
        why = _said(name, found, limit, outcome)
    return Gate(limit=name, pair=pair.name, threshold=limit, value=found, outcome=outcome, why=why)


def place(value: Estimate, limit: float, *, at_least: bool) -> Literal["passed", "failed", "undecided"]:
    """Compares an interval with a limit: all of it keeps the limit, all of it is beyond, or the limit is inside.

    The limit is the least that is allowed (``at_least``), or the most.
    """
    if (value.low >= limit) if at_least else (value.high <= limit):
        return "passed"
    if (value.high < limit) if at_least else (value.low > limit):
        return "failed"
    return "undecided"


def _said(name: Limit, value: Estimate, limit: float, outcome: Outcome) -> str:
    scale, unit = _KINDS[name].factor, _KINDS[name].unit
    ends = f"({scale * value.low:.4g} to {scale * value.high:.4g})"
    shown = f"{_KINDS[name].words} {scale * value.estimate:.4g}{unit} {ends}"
    edge = f"{scale * limit:.4g}{unit}"
    if outcome == "undecided":
        return f"{shown}: the limit {edge} lies within the interval"
    return f"{shown} {'keeps' if outcome == 'passed' else 'is beyond'} the limit {edge}"
