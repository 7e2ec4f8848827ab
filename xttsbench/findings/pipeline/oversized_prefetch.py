"""The rule `oversized-prefetch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import LARGE, PREFETCH, TOO_LARGE, buffered, bytes_of, memory_bytes, upstream
from xttsbench.findings.rule import Findings, finding, rule
from xttsbench.records.pipeline import size
from xttsbench.records.report import Severity

_TO_DEVICE: Final = ("CopyToDevice", "PrefetchToDevice")


@rule(
    "oversized-prefetch",
    evidence="size of the buffer and of an element, bytes held, share of the memory (the GPU's after a copy to it)",
    threshold="10 % of the memory; a warning from 25 %, critical from 80 %",
    remedy="A prefetch hides one batch's time, not more: .prefetch(2), or .prefetch(tf.data.AUTOTUNE).",
    false_alarms="an input that comes in bursts may need a large buffer",
)
def oversized_prefetch(evidence: Evidence) -> Findings:
    """A prefetch whose buffer takes a good part of the memory: after `batch` it counts batches, not elements."""
    pipeline = evidence.graph
    for op in pipeline.ops:
        each, count = bytes_of(evidence, op), buffered(op)
        if not op.op.startswith(PREFETCH) or each is None or count <= 1:
            continue
        on_device = any(own.op.startswith(_TO_DEVICE) for own in upstream(pipeline, op))
        memory = (_gpu_memory_bytes(evidence) if on_device else None) or memory_bytes(evidence)
        held = count * each
        if memory is None or held < LARGE * memory:
            continue
        batched = any("Batch" in own.op for own in upstream(pipeline, op))
        unit = "batches" if batched else "elements"
        autotuned = (op.buffer_size or 0) < 0
        remedy = (
            "AUTOTUNE took that much: give it a number (.prefetch(2)), or options.autotune.ram_budget."
            if autotuned
            else f"A prefetch hides one batch's time, not more: .prefetch(2), or .prefetch(tf.data.AUTOTUNE)."
            f"{' Its buffer counts batches here, since it stands after batch().' if batched else ''}"
        )
        yield finding(
            oversized_prefetch,
            f"{op.name} holds {count} {unit}, {size(held)} of {size(memory)} of {'GPU ' if on_device else ''}memory",
            op,
            {
                "buffer_size": count,
                "element_bytes": each,
                "buffered_bytes": held,
                "share_of_memory": held / memory,
                "on_device": on_device,
            },
            remedy,
            severity=_by_share(held / memory),
        )


def _by_share(share: float) -> Severity:
    return "critical" if share >= 0.8 else "warning" if share >= TOO_LARGE else "info"


def _gpu_memory_bytes(evidence: Evidence) -> int | None:
    gpus = evidence.environment.get("gpus") or ()
    known = [int(gpu["memory_total_bytes"]) for gpu in gpus if isinstance(gpu, Mapping) and gpu["memory_total_bytes"]]
    return min(known) if known else None
