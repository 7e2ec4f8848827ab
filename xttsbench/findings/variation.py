"""The rules on how step times vary: `oscillation`, `stragglers`, `length-variance`, `drift`."""

from __future__ import annotations

from typing import Final

import numpy as np

from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.analysis.variation import Trend, explain, trend
from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.correlates import SIDES, in_slow_steps, same_place_in_epoch, with_the_period
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.base import Location


@rule(
    "oscillation",
    evidence="period in steps and seconds, share of the variance, p-value, spread, side, and what has the same period",
    threshold="p < 1 %, a tenth of the variance, a spread of 5 % of the mean; a bottleneck where that side is",
    remedy="Look for what changes every so many steps: the length of batches, accumulation, clocks.",
    false_alarms="batches of different length in turn are length-variance",
)
def oscillation(evidence: Evidence) -> Findings:
    """A period in the step times that chance does not explain, which side of the step has it, and what shares it."""
    found, steps = evidence.oscillation, evidence.steps
    if found.period_steps is None or found.variance_share is None or steps is None or found.variance_share < 0.1:
        return
    if evidence.length_has_the_period:
        return  # batches of different length in turn: `length_variance` says so
    spread = float(steps.wall_s.std() / steps.wall_s.mean())
    if spread < 0.05:
        return  # a real period of no consequence
    source = _source(evidence)
    limiting = source in ("input", "host") and evidence.limits(source)
    correlates = with_the_period(evidence, steps, found.period_steps)
    shared = f", and so has {correlates[0].name}" if correlates else ""
    yield oscillation.finding(
        f"step times repeat every {found.period_steps:.1f} steps; {SIDES[source]} has the period{shared}",
        {
            "period_steps": found.period_steps,
            "period_s": found.period_s,
            "variance_share": found.variance_share,
            "p_value": found.p_value,
            "std_over_mean": spread,
            "side": source,
            "same_period": "; ".join(one.name for one in correlates) or None,
        },
        correlates[0].remedy
        if correlates
        else {
            "input": "Look for what happens every so many batches: a buffer that runs empty, a file boundary, a shard.",
            "host": "Look for what the training loop does every so many steps: logging, checkpoints, figures.",
        }.get(source, "Look for what changes every so many steps: the length of batches, accumulation, clocks."),
        severity="warning" if spread >= 0.2 else "info",
        limiting=limiting,
        at=next((one.location for one in correlates if one.location.line is not None), Location()),
        predicted_speedup=evidence.max_speedups.get(source) if limiting else None,
    )


def _source(evidence: Evidence) -> str:
    """The side whose variance moves most with the step time: ``input``, ``host`` (outside functions) or ``step``."""
    steps = evidence.steps
    if steps is None:
        return "step"
    outside = steps.outside_s if evidence.has_step else np.zeros(len(steps))
    sides = {"input": steps.wait_s, "host": outside, "step": steps.step_s - outside}
    centred = steps.wall_s - steps.wall_s.mean()
    covariances = {name: float(np.mean((values - values.mean()) * centred)) for name, values in sides.items()}
    return max(covariances, key=lambda name: covariances[name])


_STALL_SHARE: Final = 0.05


@rule(
    "stragglers",
    evidence="how many, their excess and share of the time, how much of it is waiting, and what most of them share",
    threshold="5 % of the time beyond the median; a bottleneck where most of it is waiting and the step waits for data",
    remedy="Look at the elements of those batches, or at what the step does there.",
    false_alarms="neighbours make stragglers too; rounds that they disturbed are left out",
)
def stragglers(evidence: Evidence) -> Findings:
    """Outlying steps, the length of their batches considered, and what they have in common."""
    if evidence.explanation is None or evidence.steps is None:
        return
    found, steps = evidence.explanation.stragglers, evidence.steps
    count = len(found.indices)
    if not count or found.share_of_time < _STALL_SHARE:
        return
    slow = steps[np.isin(np.arange(len(steps)), found.indices)]
    in_wait = float(slow.wait_s.sum() / slow.wall_s.sum())
    common = in_slow_steps(steps, found.indices, evidence.batches)
    place = same_place_in_epoch(steps, found.indices)
    said = f"; {common[0].name}" if common else ""
    remedy = "Look at the elements of those batches." if in_wait > 0.5 else "Look at what the step does there."
    if place:
        remedy = f"Batch {place[0]} of an epoch is slow again and again: look at its elements. {remedy}"
    yield stragglers.finding(
        f"{count} of {len(steps)} steps take {found.share_of_time:.0%} of the time beyond the median{said}",
        {
            "stragglers": count,
            "steps": len(steps),
            "excess_s_per_step": found.excess_s_per_step,
            "share_of_time": found.share_of_time,
            "in_wait": in_wait,
            "threshold_s": found.threshold_s,
            "first_steps": ", ".join(str(int(index)) for index in found.indices[:8]),
            "in_common": "; ".join(one.name for one in common) or None,
            "same_batch_of_epochs": ", ".join(str(number) for number in place[:8]) or None,
        },
        f"{common[0].remedy} {remedy}" if common else remedy,
        severity="warning",
        limiting=in_wait > 0.5 and evidence.limits("input"),
    )


_LENGTH_SHARE: Final = 0.50


@rule(
    "length-variance",
    evidence="share of the variance, seconds for each element, p-value",
    threshold="half of the variance at p < 1 %; never a bottleneck",
    remedy="Not a fault. For steadier steps, batch by a token budget within buckets of length.",
    false_alarms="none known",
)
def length_variance(evidence: Evidence) -> Findings:
    """Variation that the length of the batches explains: not a fault of the loop."""
    length = evidence.explanation.length if evidence.explanation else None
    if length is None or length.p_value >= 0.01 or length.share < _LENGTH_SHARE:
        return
    yield length_variance.finding(
        f"the length of batches explains {length.share:.0%} of the variation of step times",
        {
            "variance_share": length.share,
            "slope_s_per_element": length.slope_s_per_element,
            "p_value": length.p_value,
        },
    )


_DRIFT_SHARE: Final = 0.05
_DRIFT_STEPS: Final = 40
_DRIFT_LEVEL: Final = 0.01


@rule(
    "drift",
    evidence="relative change from the first step to the last, slope, p-value, the side that drifts, and processes "
    "that agree",
    threshold="40 steps, 5 % of change at p < 1 %; a warning where it is slower in most processes; never a bottleneck",
    remedy="Look for what grows with every step: histories, caches, traces; or for clocks that fall with heat.",
    false_alarms="a machine that warms up; where other processes do not agree the finding says so",
)
def drift(evidence: Evidence) -> Findings:
    """Steady steps that become slower or faster all along, length and compilation considered."""
    steps = evidence.steps
    if steps is None or (own := _drift(steps)) is None:
        return
    found, change = own
    others = [
        _drift(steady(rows)[0]) for trial in evidence.ladder[1:] if (rows := measured(trial, "as_is")) is not None
    ]
    agree = sum(other is not None and np.sign(other[1]) == np.sign(change) for other in others)
    again = not others or agree >= len(others) / 2
    side = _drifting_side(evidence, steps, found)
    direction = "slower" if change > 0 else "faster"
    yield drift.finding(
        f"steps became {abs(change):.0%} {direction} over {len(steps)} steps; {SIDES[side]} does"
        + ("" if again else ", in this process and not in another"),
        {
            "change": change,
            "slope_s_per_step": found.slope,
            "p_value": found.p_value,
            "effective_steps": found.effective_points,
            "steps": len(steps),
            "side": side,
            "processes": 1 + len(others),
            "processes_that_agree": 1 + agree,
        },
        _drift_remedy(side, slower=change > 0, again=again),
        severity="warning" if again and change > 0 else "info",
    )


def _drift(steps: Steps) -> tuple[Trend, float] | None:
    """The trend of the step times, and their relative change from the first step to the last."""
    if len(steps) < _DRIFT_STEPS:
        return None
    own = steps.wall_s - steps.compile_s
    length = explain(own, steps.batch_elements).length
    if length is not None and length.p_value < 0.01:
        own = own - length.slope_s_per_element * (steps.batch_elements - np.median(steps.batch_elements))
    found, median = trend(own), float(np.median(own))
    if found is None or median <= 0 or found.p_value >= _DRIFT_LEVEL:
        return None
    change = found.slope * (len(steps) - 1) / median
    return (found, change) if abs(change) >= _DRIFT_SHARE else None


def _drifting_side(evidence: Evidence, steps: Steps, found: Trend) -> str:
    """``input``, ``host`` or ``step``: the one whose own slope makes up most of the drift."""
    outside = steps.outside_s if evidence.has_step else np.zeros(len(steps))
    slopes = {}
    for name, values in (("input", steps.wait_s), ("host", outside), ("step", steps.working_s - outside)):
        own = trend(values)
        slopes[name] = own.slope * np.sign(found.slope) if own is not None else 0.0
    return max(slopes, key=lambda name: slopes[name])


def _drift_remedy(side: str, *, slower: bool, again: bool) -> str:
    if not again:
        return "Other processes show none, so it is the machine: look for what else runs, and for clocks that fall."
    if not slower:
        return "Still warming up: caches, tuned buffers or clocks. Measure longer (--steps) before comparing."
    return {
        "input": "Look for a buffer that empties, a cache or list that grows, or files that become larger or farther.",
        "host": "Look for what grows with every step on the Python side: histories, logs, figures, objects collected.",
    }.get(
        side, "Look for state that grows with every step, traces added to a function, and clocks that fall with heat."
    )
