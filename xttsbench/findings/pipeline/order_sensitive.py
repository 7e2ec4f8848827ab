"""The rule `order-sensitive`."""

from __future__ import annotations

from typing import Final

import numpy as np

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import upstream
from xttsbench.findings.rule import Findings, blamed, finding, gain, is_main, most_costly, pace_share, rule

_UNEVEN: Final = 0.5
"""Waits that vary this much beside their mean are those of a few slow elements, or of bursts."""


@rule(
    "order-sensitive",
    evidence="share of the pace, parallel calls, spread of the waits, and whether the order is random anyway",
    threshold="any order was measured or estimated to help; or it was not tried, waits vary by half of their mean, "
    "and the op has 30 % of the pace",
    remedy="Set options.deterministic = False, or deterministic=False in this call: the same elements in another "
    "order.",
    false_alarms="waits vary for other reasons too; what any order gives has to be measured",
)
def order_sensitive(evidence: Evidence) -> Findings:
    """Parallel calls that wait for the slowest of them to keep the order, where any order is faster."""
    pipeline = evidence.graph
    helps = gain(evidence, "any-order")
    if pipeline.deterministic is False or not evidence.limits("input"):
        return
    ordered = [
        op for op in pipeline.ops if op.op.startswith(("Parallel", "LegacyParallel")) and op.deterministic != "false"
    ]
    op = most_costly(evidence, [op for op in ordered if op.parallelism != 1])
    if op is None:
        return
    tried, spread = evidence.fixes.get("any-order"), _wait_spread(evidence)
    suspect = tried is None and spread >= _UNEVEN and is_main(evidence, op)
    if not (blamed(evidence, helps, op) if helps is not None else suspect):
        return
    shuffled = any(own.random for own in (*upstream(pipeline, op), op))
    yield finding(
        order_sensitive,
        f"{op.name} keeps the order of its elements, so a slow one holds up those that are ready",
        op,
        {
            "pace_share": pace_share(evidence, op),
            "parallelism": op.chosen_parallelism or op.parallelism,
            "order_is_random_anyway": shuffled,
            "wait_std_over_mean": spread,
        },
        "options.deterministic = False, or deterministic=False in this call: the same elements in another order, "
        "which differs from run to run"
        + (". Its input is shuffled, so that order carries nothing but the seed's repeatability." if shuffled else ".")
        + ("" if helps is not None else " What that gives was not tried here."),
        limits=helps,
    )


def _wait_spread(evidence: Evidence) -> float:
    """How uneven the waits for batches are, as standard deviation over mean; 0 where they were not measured."""
    waits = evidence.steps.wait_s if evidence.steps is not None else np.zeros(0)
    return float(waits.std() / waits.mean()) if len(waits) > 1 and waits.mean() > 0 else 0.0
