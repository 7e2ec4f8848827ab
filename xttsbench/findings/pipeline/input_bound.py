"""The rule `input-bound`."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import explains_wait, no_op_explains, ops_cost_s, slowest_op
from xttsbench.findings.rule import Findings, cost_share, pace_share, rule
from xttsbench.records.pipeline import place

_UNEXPLAINED: Final = (
    "Making an op cheaper gives little. Hand over larger batches or several at once, let a distributed iterator fetch "
    "ahead (tf.distribute.InputOptions), and repeat() before the last prefetch where epochs are short."
)


@rule(
    "input-bound",
    evidence="what a step waits, a batch without a step, and the costly op's time, processor time and shares of "
    "cost and pace",
    threshold="the input is the verdict, or takes 10 % of the step; always a bottleneck",
    remedy="Make the costly op cheaper, parallel or cached; other findings say what was tried here.",
    false_alarms="a dataset alone has nothing but its input to wait for, so that it always fires there",
)
def input_bound(evidence: Evidence) -> Findings:
    """The step waits for data; the op that costs most is named where the graph was read."""
    if not evidence.limits("input"):
        return
    op = slowest_op(evidence)
    what = f"{op.name} costs most" if op is not None else "no op's cost is known" if evidence.pipeline else ""
    unexplained = not explains_wait(evidence)
    if unexplained:
        what = no_op_explains(evidence)
    alone = evidence.input_alone_s
    yield input_bound.finding(
        # A dataset alone has nothing else to wait for, so that nothing says what would be left.
        f"{evidence.share('input'):.0%} of the step is waiting for data; {what or 'its graph was not read'}",
        {
            "wait_s_per_step": evidence.parts.get("input"),
            "batch_s_without_a_step": alone.estimate if alone is not None else None,
            "op_cost_s_per_batch": op.cost_s if op is not None else None,
            "op_cpu_s_per_batch": op.cpu_s if op is not None else None,
            "cost_share": cost_share(evidence, op),
            "pace_share": pace_share(evidence, op) if op is not None else None,
            "ops_s_per_batch": ops_cost_s(evidence) if unexplained else None,
        },
        _UNEXPLAINED if unexplained else None,
        severity="warning",
        limiting=True,
        location=place(op),
        predicted_speedup=evidence.max_speedups.get("input") if evidence.has_step or evidence.emulated else None,
    )
