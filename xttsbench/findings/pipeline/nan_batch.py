"""The rule `nan-batch`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule


@rule(
    "nan-batch",
    evidence="the components that hold them, and how many batches were examined",
    threshold="one such number in the batches that were kept; never a bottleneck",
    remedy="Find the element that does: tf.debugging.check_numerics in the last map names it.",
    false_alarms="infinity as a mask, as in attention",
)
def nan_batch(evidence: Evidence) -> Findings:
    """Batches that hold NaN or infinity: their timing says little, and training on them nothing."""
    if evidence.batches is not None and evidence.batches.nonfinite:
        names = ", ".join(evidence.batches.nonfinite)
        yield nan_batch.finding(
            f"the batches hold NaN or infinity ({names})",
            {"components": names, "batches": evidence.batches.cached},
            severity="critical",
        )
