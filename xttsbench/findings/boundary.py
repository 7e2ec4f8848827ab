"""The boundary between two epochs: advice for what waits there, and the line that it is about."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence import Evidence
from xttsbench.records.pipeline import PipelineOp

BEGUN: Final = "they begin an epoch"
BETWEEN: Final = "Look at what the loop does between two epochs: validation, checkpoints, callbacks."
_NO_LINE: Final = (
    "Write .repeat() at the end of the dataset (before its last prefetch, if it has one), make one iterator for all "
    "epochs, and count the steps of each. The ops were not read, so that no line can be named."
)


def boundary(evidence: Evidence) -> PipelineOp | None:
    """Op where an iterator can go on into the next epoch: a counted repeat, else the last prefetch, else the end."""
    ops = evidence.graph.ops
    counted = [op for op in ops if op.op.startswith("Repeat") and (op.cardinality or 0) > 0]
    last = [op for op in ops if op.op.startswith("Prefetch")]
    return next(reversed(counted or last or ops), None)


def over_the_boundary(evidence: Evidence) -> str:
    """Remedy of an iterator that is made anew for each epoch, beyond what the pipeline has already."""
    op = boundary(evidence)
    if op is None:
        return _NO_LINE
    at = f" at {op.location.file}:{op.location.line}" if op.location.file else ""
    if op.op.startswith("Repeat"):
        return f"Leave out the count of repeat(){at}, so that one iterator goes over all epochs, and count their steps."
    where = f"before .prefetch(...){at}" if op.op.startswith("Prefetch") else f"behind {op.name}{at}"
    return f"Write .repeat() {where}, make one iterator for all epochs, and count the steps of each."
