"""The rule `no-prefetch`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import PREFETCH
from xttsbench.findings.rule import Findings, Gain, finding, gain, rule
from xttsbench.fixes.spec import WORTH_UNSURE
from xttsbench.records.base import Estimate


@rule(
    "no-prefetch",
    evidence="the pipeline's last op, and whether TensorFlow adds a prefetch by itself",
    threshold="a prefetch at the end was measured or estimated to help; or the last op is prefetch(0) and the step "
    "waits",
    remedy="End the pipeline with .prefetch(tf.data.AUTOTUNE).",
    false_alarms="TensorFlow adds a prefetch where the pipeline's own options let it; nothing is reported then",
)
def no_prefetch(evidence: Evidence) -> Findings:
    """Step and input take turns: nothing is prepared while the step runs."""
    helps = gain(evidence, "prefetch")
    pipeline = evidence.graph
    if not pipeline.ops:
        return
    last = pipeline.ops[-1]
    empty = last.op.startswith(PREFETCH) and last.buffer_size == 0
    if empty and helps is None:
        helps = _overlapped(evidence)
    if helps is None and not (empty and evidence.limits("input") and _has_consumer(evidence)):
        return
    yield finding(
        no_prefetch,
        "step and input take turns: "
        + ("prefetch(0) prepares nothing" if empty else "nothing is prepared")
        + " while the step runs",
        last,
        {"last_op": last.op, "tensorflow_injects_prefetch": pipeline.injects_prefetch},
        "End the pipeline with .prefetch(tf.data.AUTOTUNE)" + (" in place of .prefetch(0)." if empty else "."),
        limits=helps,
        severity="warning",
    )


def _has_consumer(evidence: Evidence) -> bool:
    return evidence.has_step or evidence.emulated


def _overlapped(evidence: Evidence) -> Gain | None:
    """What it gives an input and a step that take turns to overlap: the longer of the two is left.

    For a pipeline of which it is known that they do, since its last op is a prefetch of nothing: TensorFlow adds none
    to that (tried on 2.21: 20 ms and 20 ms took 41 ms with ``prefetch(0)`` and 22 ms with ``prefetch(2)``).
    """
    alone = evidence.input_alone_s
    if not evidence.limits("input") or not _has_consumer(evidence) or alone is None or not evidence.wall_s:
        return None
    speedup = evidence.wall_s / max(alone.estimate, evidence.wall_s - evidence.parts.get("input", 0.0))
    return Gain("prefetch", Estimate(estimate=speedup, low=speedup, high=speedup)) if speedup >= WORTH_UNSURE else None
