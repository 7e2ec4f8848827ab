"""The rule `device-copies`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.findings.rule import Findings, rule


@rule(
    "device-copies",
    evidence="seconds of copying a step",
    threshold="copying is the verdict, or takes 10 % of the step; always a bottleneck",
    remedy="End the pipeline with tf.data.experimental.prefetch_to_device; copy smaller types (uint8, float16).",
    false_alarms="none known",
)
def device_copies(evidence: Evidence) -> Findings:
    """Copying batches to the device takes a good part of the step."""
    if not evidence.limits("transfer"):
        return
    yield device_copies.finding(
        f"copying batches to the device is {evidence.share('transfer'):.0%} of the step",
        {"transfer_s_per_step": evidence.parts.get("transfer")},
        severity="warning",
        limiting=True,
        predicted_speedup=evidence.max_speedups.get("transfer"),
    )
