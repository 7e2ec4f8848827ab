"""The rule `padding-waste`."""

from __future__ import annotations

from typing import Final

import numpy as np

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import BATCHES, last_of
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.pipeline import place

_WASTE: Final = 0.30
"""Share of padding from which it is worth a word."""
_SURE: Final = 0.01


@rule(
    "padding-waste",
    evidence="share of padding, batches and shapes examined, and what the padding costs a step where its time "
    "follows its length",
    threshold="30 % of a batch; a warning from 50 %; never a bottleneck",
    remedy="Batch elements of similar length together: bucket_by_sequence_length with fixed edges.",
    false_alarms="zeros that mean something at the end of an element count as padding; one shape may be what XLA needs",
)
def padding_waste(evidence: Evidence) -> Findings:
    """Most of a batch is padding, measured on the batches themselves."""
    batches = evidence.batches
    if batches is None or batches.padding_share is None or batches.padding_share < _WASTE:
        return
    useful = 1 - batches.padding_share
    buckets = last_of(evidence, ("GroupByWindowDataset",))
    if buckets is not None:
        remedy = "Its buckets are too wide: more bucket_boundaries, closer together where most elements are."
    elif len(batches.shapes) == 1:
        remedy = (
            "All batches are padded to one length: .bucket_by_sequence_length(length, bucket_boundaries=[...], "
            "bucket_batch_sizes=[...], pad_to_bucket_boundary=True) keeps shapes few and pads less."
        )
    else:
        remedy = (
            "Batch elements of similar length together: bucket_by_sequence_length with fixed edges "
            "(pad_to_bucket_boundary=True keeps shapes few)."
        )
    if buckets is None:
        remedy += " 'xttsbench optimize --allow batches' tries it on this target."
    yield padding_waste.finding(
        f"{batches.padding_share:.0%} of {batches.padding_component} is padding",
        {
            "padding_share": batches.padding_share,
            "padding_efficiency": useful,
            "batches": batches.cached,
            "shapes": len(batches.shapes),
            "step_s_that_goes_to_padding": _padding_s(evidence, batches.padding_share),
        },
        remedy,
        severity="warning" if batches.padding_share >= 0.5 else "info",
        location=place(buckets or last_of(evidence, BATCHES)),
    )


def _padding_s(evidence: Evidence, padding_share: float) -> float | None:
    """What the padding costs a step, where the time of a step is shown to grow with what is in its batch."""
    length = evidence.explanation.length if evidence.explanation is not None else None
    if length is None or evidence.steps is None or length.p_value >= _SURE or length.slope_s_per_element <= 0:
        return None
    return length.slope_s_per_element * float(np.mean(evidence.steps.batch_elements)) * padding_share
