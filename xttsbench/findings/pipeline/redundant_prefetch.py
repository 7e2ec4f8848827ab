"""The rule `redundant-prefetch`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import PREFETCH, buffered, bytes_of
from xttsbench.findings.rule import Findings, finding, rule
from xttsbench.fixes.spec import WORTH
from xttsbench.records.pipeline import Pipeline, PipelineOp


@rule(
    "redundant-prefetch",
    evidence="number of prefetches, elements and bytes that they hold, speed without them where that was measured",
    threshold="a prefetch right before another, or any before the last whose removal was measured to cost less than "
    "5 %; never a bottleneck",
    remedy="Keep the last prefetch and remove the others.",
    false_alarms="one before an uneven op may smooth it; such a one is named only after a measurement",
)
def redundant_prefetch(evidence: Evidence) -> Findings:
    """Several prefetches, of which only the last hides anything."""
    pipeline = evidence.graph
    if not pipeline.ops or not pipeline.ops[-1].op.startswith(PREFETCH):
        return
    inner = [op for op in pipeline.ops[:-1] if op.op.startswith(PREFETCH)]
    if not inner:
        return
    fix = evidence.fixes.get("drop-prefetch")
    measured = fix.speedup if fix is not None else None
    adjacent = [op for op in inner if _feeds_prefetch(pipeline, op)]
    # One prefetch into the next hides nothing by construction; of others it takes a measurement to say so.
    if not adjacent and (measured is None or measured.high < 1 / WORTH):
        return
    idle = inner if measured is not None and measured.high >= 1 / WORTH else adjacent
    held = [buffered(op) * each for op in idle if (each := bytes_of(evidence, op)) is not None]
    found = finding(
        redundant_prefetch,
        f"{len(idle)} prefetch(es) before the last hold memory and hide nothing",
        idle[0],
        {
            "prefetches": len(inner) + 1,
            "buffered_elements": sum(buffered(op) for op in idle),
            "buffered_bytes": sum(held) if held else None,
            "speed_without_them": measured.estimate if measured else None,
        },
    )
    yield found.model_copy(update={"predicted_speedup": measured})


def _feeds_prefetch(pipeline: Pipeline, op: PipelineOp) -> bool:
    """Whether the only consumer of ``op`` is a prefetch too."""
    consumers = [other for other in pipeline.ops if op.name in other.inputs]
    return bool(consumers) and all(other.op.startswith(PREFETCH) for other in consumers)
