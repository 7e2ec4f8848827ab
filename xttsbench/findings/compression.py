"""The rule `compressed-records`: files of records that are decompressed anew in every epoch."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, cost_share, is_main, most_costly, pace_share, rule
from xttsbench.records.pipeline import every_op


@rule(
    "compressed-records",
    evidence="kind of compression, shares of cost and pace of the op that reads",
    threshold="the step waits for data, and the op that reads compressed files has 30 % of the pace",
    remedy="Write the records once without compression, or keep them behind the reader with .cache(); where the files "
    "have to stay as they are, read several at once.",
    false_alarms="from a disk or network slower than the decompression, compressed files are the quicker ones",
)
def compressed_records(evidence: Evidence) -> Findings:
    """Files of records that are decompressed in every epoch, each by the one thread that reads it."""
    if not evidence.limits("input"):
        return
    kinds = {
        op.name: kinds
        for op in evidence.graph.ops
        if not op.cached and (kinds := {own.compression for own in every_op([op]) if own.compression})
    }
    op = most_costly(evidence, [op for op in evidence.graph.ops if op.name in kinds])
    if op is None or not is_main(evidence, op):
        return
    kind = " and ".join(sorted(kinds[op.name]))
    yield compressed_records.finding(
        f"{op.name} decompresses its records ({kind}) in every epoch",
        {"compression": kind, "cost_share": cost_share(evidence, op), "pace_share": pace_share(evidence, op)},
        op=op,
        severity="warning",
    )
