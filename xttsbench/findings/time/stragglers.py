"""The rule `stragglers`."""

from __future__ import annotations

from typing import Final

import numpy as np

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule
from xttsbench.findings.time.correlates import in_slow_steps, same_place_in_epoch

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
