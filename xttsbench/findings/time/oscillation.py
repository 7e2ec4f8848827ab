"""The rule `oscillation`."""

from __future__ import annotations

import numpy as np

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule
from xttsbench.findings.time.correlates import SIDES, with_the_period
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
        location=next((one.location for one in correlates if one.location.line is not None), Location()),
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
