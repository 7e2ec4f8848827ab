"""The rule `shuffle-after-batch`."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import BATCHES, bytes_of, upstream
from xttsbench.findings.rule import Findings, finding, rule

_NO_FAULT: Final = ("Shuffle", "Unbatch", "GroupByWindow")
"""Ops before it that mix the elements already, take the batches apart, or make buckets whose order is to be mixed."""


@rule(
    "shuffle-after-batch",
    evidence="batches in the buffer, the bytes that they hold, and the op that makes them",
    threshold="a shuffle that reads batches, and neither another shuffle nor buckets before it; never a bottleneck",
    remedy="Shuffle before .batch(...): the elements mix, and the buffer counts elements, not batches.",
    false_alarms="batches that belong together, such as consecutive pieces of one recording",
)
def shuffle_after_batch(evidence: Evidence) -> Findings:
    """A shuffle of whole batches: the same elements share a batch in every epoch, and the buffer counts batches."""
    for op in evidence.graph.ops:
        before = upstream(evidence.graph, op)
        batch = next((own for own in before if own.op.startswith(BATCHES)), None)
        if not op.op.startswith("Shuffle") or batch is None or any(own.op.startswith(_NO_FAULT) for own in before):
            continue
        count, each = op.buffer_size or 0, bytes_of(evidence, op)
        yield finding(
            shuffle_after_batch,
            f"{op.name} shuffles whole batches: what {batch.name} put together stays together in every epoch",
            op,
            {
                "buffer_size": op.buffer_size,
                "buffered_bytes": count * each if each is not None and count > 0 else None,
                "batch": batch.name,
                "batch_line": batch.location.line,
            },
        )
