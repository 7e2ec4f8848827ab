"""The rules on what is in a batch: `padding-waste`, `dynamic-shape`, `nan-batch`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

import numpy as np

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import BATCHES, last_of
from xttsbench.findings.rule import Findings, rule

_WASTE: Final = 0.30  # Share of padding from which it is worth a word
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
        at=buckets or last_of(evidence, BATCHES),
    )


def _padding_s(evidence: Evidence, padding_share: float) -> float | None:
    """What the padding costs a step, where the time of a step is shown to grow with what is in its batch."""
    length = evidence.explanation.length if evidence.explanation is not None else None
    if length is None or evidence.steps is None or length.p_value >= _SURE or length.slope_s_per_element <= 0:
        return None
    return length.slope_s_per_element * float(np.mean(evidence.steps.batch_elements)) * padding_share


@rule(
    "dynamic-shape",
    evidence="number of shapes, traces by shape, compilations in the steady state, and an example",
    threshold="three shapes, and tracing or compilation by shape that recurs; a bottleneck where compilation is",
    remedy="Pad to a few fixed edges (buckets), so that each shape is compiled once, before training.",
    false_alarms="shapes that are all seen early cost only a slow start",
)
def dynamic_shape(evidence: Evidence) -> Findings:
    """Batch shapes that make the step trace or compile again."""
    batches, steps = evidence.batches, evidence.steps
    if batches is None or steps is None or not evidence.has_step or len(batches.shapes) < 3:
        return
    by_shape = [trace for trace in evidence.traces if trace.reason == "shape"]
    compiles = int(steps.xla_compiles.sum())
    if evidence.share("compile") <= 0 or not (by_shape or compiles):
        return
    limiting = evidence.limits("compile")
    count_only = _differ_in_count_only(batches.shapes)
    yield dynamic_shape.finding(
        f"{len(batches.shapes)} different batch shapes; the step is traced or compiled again for new ones",
        {
            "shapes": len(batches.shapes),
            "traces_by_shape": len(by_shape),
            "xla_compiles_in_steady_state": compiles,
            "example": batches.shapes[-1],
            "only_the_number_of_elements_differs": count_only,
        },
        "Only the number of elements differs: .batch(n, drop_remainder=True), or buckets of one batch size."
        if count_only
        else "Pad to a few fixed edges (buckets), so that each shape is compiled once, before training: "
        "bucket_by_sequence_length(..., pad_to_bucket_boundary=True, drop_remainder=True).",
        severity="warning" if limiting else "info",
        limiting=limiting,
        at=last_of(evidence, ("GroupByWindowDataset",)) or last_of(evidence, BATCHES),
        predicted_speedup=evidence.max_speedups.get("compile") if limiting else None,
    )


def _differ_in_count_only(shapes: Sequence[str]) -> bool | None:
    """Whether signatures such as ``[(8, 9), (8,)]`` differ in first dimensions only; ``None`` where one is no such."""
    rests = set()
    for shape in shapes:
        try:
            signature = ast.literal_eval(shape)
            rests.add(tuple(tuple(tensor[1:]) for tensor in signature))
        except (ValueError, SyntaxError, TypeError):
            return None
    return len(rests) == 1


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
