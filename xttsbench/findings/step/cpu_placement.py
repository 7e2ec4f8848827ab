"""The rule `cpu-placement`."""

from __future__ import annotations

from typing import Final

from xttsbench.analysis.attribution import THRESHOLD
from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.base import Location

_NAMED_FROM: Final = 0.02
"""Share of the time of the step's ops from which those on the CPU are named."""
_ASKED: Final = "asked for"


@rule(
    "cpu-placement",
    evidence="their share of the time of all ops, the heaviest of them, how many, and why",
    threshold="2 % of the time of the step's ops, or asked for by tf.device; a bottleneck from 10 % where the step "
    "computes",
    remedy="Use an op with a kernel for the GPU, or move the work into the input pipeline.",
    false_alarms="ops on shapes and small integers belong on the CPU",
)
def cpu_placement(evidence: Evidence) -> Findings:
    """Ops of the step on the CPU while a GPU is there, with the reason that TensorFlow had."""
    ops = evidence.step_ops
    if ops is None or not evidence.on_gpu:
        return
    on_cpu = [placed for placed in ops.placements if placed.device.startswith("CPU")]
    share = sum(placed.share or 0.0 for placed in on_cpu)
    asked = [placed for placed in on_cpu if placed.why.startswith(_ASKED)]
    if share < _NAMED_FROM and not (asked and all(placed.share is None for placed in asked)):
        return
    heaviest = max(asked or on_cpu, key=lambda placed: (placed.share or 0.0, placed.count))
    line = next((line for line in ops.lines if line.device.startswith("CPU") and line.file), None)
    limiting = evidence.bottleneck == "compute" and share >= THRESHOLD
    yield cpu_placement.finding(
        f"{sum(placed.count for placed in on_cpu)} ops of the step run on the CPU beside the GPU "
        f"({share:.0%} of the time of all ops)",
        {
            "share_of_op_time": share if any(placed.share is not None for placed in on_cpu) else None,
            "op": heaviest.op,
            "count": heaviest.count,
            "why": heaviest.why,
        },
        "Take the tf.device away." if asked else None,
        severity="warning" if limiting or share >= THRESHOLD else "info",
        limiting=limiting,
        location=Location(file=line.file, line=line.line, op=heaviest.op) if line else Location(op=heaviest.op),
    )
