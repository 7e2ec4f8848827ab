"""The rule `drift`."""

from __future__ import annotations

from typing import Final

import numpy as np

from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.analysis.variation import Trend, explain, trend
from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule
from xttsbench.findings.time.correlates import SIDES

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
