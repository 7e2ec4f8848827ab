"""Rules about variation in time: what oscillates, what stalls, and what the length of batches explains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from xttsbench.records.report import Finding
from xttsbench.rules.evidence import Evidence

_STALL_SHARE: Final = 0.05
_LENGTH_SHARE: Final = 0.50


def oscillation(evidence: Evidence) -> Iterator[Finding]:
    """A period in the step times that chance does not explain, and which side of the step has it."""
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
    yield Finding(
        rule="oscillation",
        severity="warning" if spread >= 0.2 else "info",
        limiting=limiting,
        title=f"step times repeat every {found.period_steps:.1f} steps; the {source} side has the period",
        evidence={
            "period_steps": found.period_steps,
            "period_s": found.period_s,
            "variance_share": found.variance_share,
            "p_value": found.p_value,
            "std_over_mean": spread,
            "side": source,
        },
        remedy={
            "input": "Look for what happens every so many batches: a buffer that runs empty, a file boundary, a shard.",
            "host": "Look for what the training loop does every so many steps: logging, checkpoints, figures.",
        }.get(source, "Look for what changes every so many steps: the length of batches, accumulation, clocks."),
        predicted_speedup=evidence.ceilings.get(source) if limiting else None,
    )


def stragglers(evidence: Evidence) -> Iterator[Finding]:
    """Outlying steps, batch length considered, that take a noticeable share of the time."""
    if evidence.explanation is None or evidence.steps is None:
        return
    found, steps = evidence.explanation.stragglers, evidence.steps
    count = len(found.indices)
    if not count or found.share_of_time < _STALL_SHARE:
        return
    slow = steps[np.isin(np.arange(len(steps)), found.indices)]
    in_wait = float(slow.wait_s.sum() / slow.wall_s.sum())
    yield Finding(
        rule="stragglers",
        severity="warning",
        limiting=in_wait > 0.5 and evidence.limits("input"),
        title=f"{count} of {len(steps)} steps take {found.share_of_time:.0%} of the time beyond the median",
        evidence={
            "stragglers": count,
            "steps": len(steps),
            "excess_s_per_step": found.excess_s_per_step,
            "share_of_time": found.share_of_time,
            "in_wait": in_wait,
            "threshold_s": found.threshold_s,
            "first_steps": ", ".join(str(int(index)) for index in found.indices[:8]),
        },
        remedy="Look at the elements of those batches." if in_wait > 0.5 else "Look at what the step does there.",
    )


def length_variance(evidence: Evidence) -> Iterator[Finding]:
    """Variation that the length of the batches explains: not a fault of the loop."""
    length = evidence.explanation.length if evidence.explanation else None
    if length is None or length.p_value >= 0.01 or length.share < _LENGTH_SHARE:
        return
    yield Finding(
        rule="length-variance",
        severity="info",
        limiting=False,
        title=f"the length of batches explains {length.share:.0%} of the variation of step times",
        evidence={
            "variance_share": length.share,
            "slope_s_per_element": length.slope_s_per_element,
            "p_value": length.p_value,
        },
        remedy="Not a fault. For steadier steps, batch by a token budget within buckets of length.",
    )


RULES: Final = (oscillation, stragglers, length_variance)


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
