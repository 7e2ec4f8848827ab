"""The rule `device-prefetch-not-last`."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import PREFETCH, downstream
from xttsbench.findings.rule import Findings, finding, rule

_TO_DEVICE: Final = ("CopyToDevice", "PrefetchToDevice")


@rule(
    "device-prefetch-not-last",
    evidence="the ops that come after, and the line of the first",
    threshold="any op but a prefetch after the copy; a warning where the step waits for data or copies",
    remedy="Move .apply(tf.data.experimental.prefetch_to_device(...)) to the very end of the pipeline.",
    false_alarms="none known",
)
def device_prefetch_not_last(evidence: Evidence) -> Findings:
    """Ops after the copy to the device: they run on the processor, so that the copy is undone or late."""
    pipeline = evidence.graph
    for op in pipeline.ops:
        if not op.op.startswith(_TO_DEVICE):
            continue
        after = [own for own in downstream(pipeline, op) if not own.op.startswith((PREFETCH, "Options"))]
        if not after:
            continue
        waits = evidence.limits("input") or evidence.limits("transfer")
        yield finding(
            device_prefetch_not_last,
            f"{len(after)} op(s) after the copy to the device, {after[0].op} first: they run on the processor",
            op,
            {"ops_after": ", ".join(own.op for own in after), "line_after": after[0].location.line},
            severity="warning" if waits else "info",
        )
