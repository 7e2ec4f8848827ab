"""Rules about the batches themselves: padding, shapes, values that are not numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from xttsbench.evidence.evidence import Evidence
from xttsbench.records.pipeline import PipelineOp, place
from xttsbench.records.report import Finding

_WASTE: Final = 0.30
"""Share of padding from which it is worth a word."""
_BATCHES: Final = ("PaddedBatchDataset", "BatchDataset", "ParallelBatchDataset", "RaggedBatchDataset")
_SURE: Final = 0.01


def padding_waste(evidence: Evidence) -> Iterator[Finding]:
    """Most of a batch is padding, measured on the batches themselves."""
    batches = evidence.batches
    if batches is None or batches.padding_share is None or batches.padding_share < _WASTE:
        return
    useful = 1 - batches.padding_share
    buckets = _op(evidence, ("GroupByWindowDataset",))
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
    yield Finding(
        rule="padding-waste",
        severity="warning" if batches.padding_share >= 0.5 else "info",
        limiting=False,
        title=f"{batches.padding_share:.0%} of {batches.padding_component} is padding",
        location=place(buckets or _op(evidence, _BATCHES)),
        evidence={
            "padding_share": batches.padding_share,
            "padding_efficiency": useful,
            "batches": batches.cached,
            "shapes": len(batches.shapes),
            "step_s_that_goes_to_padding": _padding_s(evidence, batches.padding_share),
        },
        remedy=remedy,
    )


def dynamic_shape(evidence: Evidence) -> Iterator[Finding]:
    """Batch shapes that make the step trace or compile again."""
    batches, steps = evidence.batches, evidence.steps
    if batches is None or steps is None or not evidence.has_step or len(batches.shapes) < 3:
        return
    by_shape = [trace for trace in evidence.traces if trace.reason == "shape"]
    compiles = int(steps.xla_compiles.sum())
    recurs = evidence.share("compile") > 0 and bool(by_shape or compiles)
    if not recurs:
        return
    limiting = evidence.limits("compile")
    count_only = _differ_in_count_only(batches.shapes)
    yield Finding(
        rule="dynamic-shape",
        severity="warning" if limiting else "info",
        limiting=limiting,
        title=f"{len(batches.shapes)} different batch shapes; the step is traced or compiled again for new ones",
        location=place(_op(evidence, ("GroupByWindowDataset",)) or _op(evidence, _BATCHES)),
        evidence={
            "shapes": len(batches.shapes),
            "traces_by_shape": len(by_shape),
            "xla_compiles_in_steady_state": compiles,
            "example": batches.shapes[-1],
            "only_the_number_of_elements_differs": count_only,
        },
        remedy="Only the number of elements differs: .batch(n, drop_remainder=True), or buckets of one batch size."
        if count_only
        else "Pad to a few fixed edges (buckets), so that each shape is compiled once, before training: "
        "bucket_by_sequence_length(..., pad_to_bucket_boundary=True, drop_remainder=True).",
        predicted_speedup=evidence.ceilings.get("compile") if limiting else None,
    )


def nan_batch(evidence: Evidence) -> Iterator[Finding]:
    """Batches that hold NaN or infinity: their timing says little and training on them nothing."""
    if evidence.batches is not None and evidence.batches.nonfinite:
        names = ", ".join(evidence.batches.nonfinite)
        yield Finding(
            rule="nan-batch",
            severity="critical",
            limiting=False,
            title=f"the batches hold NaN or infinity ({names})",
            evidence={"components": names, "batches": evidence.batches.cached},
            remedy="Find the element that does: tf.debugging.check_numerics in the last map names it.",
        )


RULES: Final = (padding_waste, dynamic_shape, nan_batch)


def _op(evidence: Evidence, kinds: tuple[str, ...]) -> PipelineOp | None:
    """The last op of some kinds; of a data set that a function makes, the op that makes it."""
    found = None
    for op in evidence.pipeline.ops if evidence.pipeline is not None else ():
        if op.op.startswith(kinds):
            found = op
    return found


def _padding_s(evidence: Evidence, padding_share: float) -> float | None:
    """What the padding costs a step, where the time of a step is shown to grow with what is in its batch."""
    length = evidence.explanation.length if evidence.explanation is not None else None
    if length is None or evidence.steps is None or length.p_value >= _SURE or length.slope_s_per_element <= 0:
        return None
    return length.slope_s_per_element * float(np.mean(evidence.steps.batch_elements)) * padding_share


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
