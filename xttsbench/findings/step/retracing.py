"""The rule `retracing`."""

from __future__ import annotations

from collections import Counter
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.step import costliest_shape, place_in_step
from xttsbench.findings.rule import Findings, rule

_AGAIN: Final = {
    "new function object": "the tf.function is made anew",
    "shape": "each new shape of a batch is traced",
    "python value": "each new Python value among its arguments is traced",
    "other": "its arguments differ from call to call",
}


@rule(
    "retracing",
    evidence="traces in the steady state by reason, seconds of a trace, seconds lost, and the shape that cost most",
    threshold="one trace in the steady state that is not a function's first; a bottleneck where compilation is",
    remedy="Fix shapes, pass Python numbers as tensors, and make tf.functions once, outside of the loop.",
    false_alarms="a few traces while the last shapes are first seen",
)
def retracing(evidence: Evidence) -> Findings:
    """A tf.function that is traced again and again, and why."""
    steps = evidence.steps
    if steps is None or int(steps.traces.sum()) == 0:
        return
    again = [trace for trace in evidence.traces if trace.reason != "first"]
    if not again:
        return
    reason, times = Counter(trace.reason for trace in again).most_common(1)[0]
    example = next(trace for trace in again if trace.reason == reason)
    limiting, costliest = evidence.limits("compile"), costliest_shape(evidence)
    remedies = {
        "new function object": "Make the tf.function once, outside of the loop.",
        "shape": "Pad the batches to a few fixed shapes (buckets), or let one trace serve all: "
        "@tf.function(reduce_retracing=True), or an input_signature with None for what varies.",
        "python value": "Pass Python numbers as tensors, or keep them out of the arguments.",
        "other": "See the signatures of the traces; make arguments alike from call to call.",
    }
    yield retracing.finding(
        f"{example.function} is traced again after the first step: {_AGAIN[reason]}",
        {
            "traces_in_steady_state": int(steps.traces.sum()),
            "steps": len(steps),
            "reason": reason,
            "traces_with_this_reason": times,
            "trace_time_s": sum(trace.time_s for trace in again) / len(again),
            "signature": example.signature,
            "lost_s_in_steady_state": float(steps.compile_s.sum()),
            "costliest_shape": costliest.shape if costliest else None,
            "costliest_shape_lost_s": costliest.lost_s if costliest else None,
        },
        remedies[reason],
        severity="critical" if limiting else "warning",
        limiting=limiting,
        location=place_in_step(evidence, ("function", "tensorflow")),
        predicted_speedup=evidence.max_speedups.get("compile") if limiting else None,
    )
