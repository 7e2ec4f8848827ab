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
    """Meaning of a limit: words, factor and unit as written, and a field of `Figures`."""

    words: str
    factor: float
    unit: str
    figure: str = ""
    least: bool = False


_KINDS: Final[dict[Limit, _Kind]] = {
    "max-regression": _Kind("speed of B over A", 1, "x"),
    "max-step-time": _Kind("step time", 1e3, " ms", "step_time_s"),
    "min-throughput": _Kind("samples per second", 1, "", "throughput_per_s", least=True),
    "min-utilization": _Kind("utilization", 100, " %", "utilization", least=True),
    "max-cv": _Kind("CV of the step time", 1, "", "cv_interval"),
    "max-input-wait": _Kind("share of the step that waits for input", 100, " %", "input_wait_fraction"),
}


def judge_gates(
    limits: Mapping[Limit, float], pairs: Sequence[ComparedPair], effects: Mapping[str, Effect]
) -> tuple[Gate, ...]:
    """Every limit held against every pair.

    Limits are in the unit of what they limit, shares from 0 to 1; ``max-regression`` is the share of A's speed that B
    may lose, and the others are on B alone.
    """
    return tuple(
        _regression(limit, pair, effects[pair.name], len(pairs))
        if name == "max-regression"
        else _absolute(name, limit, pair)
        for pair in pairs
        for name, limit in limits.items()
    )


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
