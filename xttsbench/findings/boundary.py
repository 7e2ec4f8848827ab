"""The boundary between two epochs: advice for what waits there, and the line that it is about."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence import Evidence
from xttsbench.records.base import Location

BEGUN: Final = "they begin an epoch"
BETWEEN: Final = "Look at what the loop does between two epochs: validation, checkpoints, callbacks."
_NO_LINE: Final = (
    "Write .repeat() at the end of the dataset (before its last prefetch, if it has one), make one iterator for all "
    "epochs, and count the steps of each. The ops were not read, so that no line can be named."
)


def over_the_boundary(evidence: Evidence) -> tuple[str, Location]:
    """Remedy of an iterator that is made anew for each epoch, beyond what the pipeline has, and the line to edit.

    That is the line of a counted repeat, else of the last prefetch, else of the last op.
    """
    ops = evidence.graph.ops
    counted = [op for op in ops if op.op.startswith("Repeat") and (op.cardinality or 0) > 0]
    op = next(reversed(counted or [op for op in ops if op.op.startswith("Prefetch")] or ops), None)
    if op is None:
        return _NO_LINE, Location()
    line = Location(file=op.location.file, line=op.location.line)  # without the op, which is not what takes the time
    at = f" ({line.file}:{line.line})" if line.file else ""
    if counted:
        return (
            f"Leave out the count of repeat(){at}, so that one iterator goes over all epochs; count their steps.",
            line,
        )
    where = f"before .prefetch(...){at}" if op.op.startswith("Prefetch") else f"behind {op.name}{at}"
    return f"Write .repeat() {where}, make one iterator for all epochs, and count the steps of each.", line
