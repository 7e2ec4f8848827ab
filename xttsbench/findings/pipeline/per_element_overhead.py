"""The rule `per-element-overhead`."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import MAPS, function_of
from xttsbench.findings.rule import Findings, cost_share, finding, gain, most_costly, pace_share, rule
from xttsbench.records.pipeline import PipelineOp

_MANY_ELEMENTS: Final = 32
"""Elements per batch from which what each costs on its own adds up."""
_TINY_COST_S: Final = 100e-6
"""An op that takes less for an element spends it on the call, as far as elements are small."""
_TINY_WHERE_BUSY_S: Final = 300e-6
"""The same for an op of which the processor time alone is that small: the rest is waiting for a core, or a little."""
_TINY_BYTES: Final = 16 * 1024
_ADDS_UP: Final = 0.50
_BATCHES: Final = ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset")


@rule(
    "per-element-overhead",
    evidence="elements in a batch, ops for each, seconds and bytes of an element, shares of cost and pace",
    threshold="32 elements in a batch at under 100 us and 16 KiB each, in ops with half of the pace",
    remedy="Batch first: .batch(n).map(f), with f written for a whole batch.",
    false_alarms="ops that really need that long for an element gain nothing from a batch",
)
def per_element_overhead(evidence: Evidence) -> Findings:
    """Tiny elements, whose calls cost more than what they do."""
    pipeline = evidence.graph
    if not (evidence.limits("input") or evidence.limits("contention")):
        return
    tiny = [op for op in pipeline.ops if _is_tiny(op)]
    share = pace_share(evidence, *tiny)
    maps = [op for op in tiny if op.op.startswith((*MAPS, "FilterDataset", "FlatMapDataset", "InterleaveDataset"))]
    costly = most_costly(evidence, maps)
    if costly is None or share is None or share < _ADDS_UP:
        return
    elements = costly.elements_per_batch or 0.0
    batch = next((op for op in pipeline.ops if op.op.startswith(_BATCHES)), None)
    number = str(batch.batch_size) if batch is not None and batch.batch_size else "n"
    total_s = sum(op.cost_s or 0.0 for op in tiny)
    function = function_of(costly)
    python = [one for one in pipeline.python_functions if one.token in costly.python_functions]
    remedy = (
        f"Batch first: .batch({number}) before .map(...), and let {python[0].name}() take a whole batch: one call in "
        f"place of {elements:.0f}."
        if python
        else f"Batch first: .batch({number}).map({function}), with {function} written for a whole batch (most "
        "TensorFlow ops take a leading dimension as they are)."
    )
    yield finding(
        per_element_overhead,
        f"{elements:.0f} elements a batch at {1e6 * total_s / elements:.0f} us each: most of that is calls, not work",
        costly,
        {
            "elements_per_batch": elements,
            "ops_per_element": len(tiny),
            "cost_s_per_element": total_s / elements,
            "pace_share": share,
            "element_bytes": costly.element_bytes,
            "cost_share": cost_share(evidence, costly),
        },
        remedy,
        limits=gain(evidence, "batch-first"),
        severity="warning" if evidence.limits("input") else "info",
    )


def _is_tiny(op: PipelineOp) -> bool:
    """Whether an op handles many elements for a batch, each small and cheap."""
    if op.cost_s is None or op.elements_per_batch is None or op.elements_per_batch < _MANY_ELEMENTS:
        return False
    small = op.element_bytes is None or op.element_bytes <= _TINY_BYTES
    each_s = op.cost_s / op.elements_per_batch
    computed = op.cpu_s is not None and op.cpu_s / op.elements_per_batch < _TINY_COST_S
    return small and each_s < (_TINY_WHERE_BUSY_S if computed else _TINY_COST_S)
