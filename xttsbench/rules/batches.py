"""Rules about the batches themselves: padding, shapes, values that are not numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.records.report import Finding
from xttsbench.rules.evidence import Evidence

_WASTE: Final = 0.30
"""Share of padding from which it is worth a word."""


def padding_waste(evidence: Evidence) -> Iterator[Finding]:
    """Most of a batch is padding, measured on the batches themselves."""
    batches = evidence.batches
    if batches is None or batches.padding_share is None or batches.padding_share < _WASTE:
        return
    useful = 1 - batches.padding_share
    yield Finding(
        rule="padding-waste",
        severity="warning" if batches.padding_share >= 0.5 else "info",
        limiting=False,
        title=f"{batches.padding_share:.0%} of {batches.padding_component} is padding",
        evidence={"padding_share": batches.padding_share, "padding_efficiency": useful, "batches": batches.cached},
        remedy="Batch elements of similar length together: bucket_by_sequence_length with fixed edges.",
    )


def dynamic_shape(evidence: Evidence) -> Iterator[Finding]:
    """Batch shapes that make the step trace or compile again."""
    batches, steps = evidence.batches, evidence.steps
    if batches is None or steps is None or not evidence.has_step or len(batches.shapes) < 3:
        return
    by_shape = [trace for trace in evidence.traces if trace.reason == "shape"]
    compiles = int(steps.compiles.sum())
    recurs = evidence.share("compile") > 0 and bool(by_shape or compiles)
    if not recurs:
        return
    limiting = evidence.limits("compile")
    yield Finding(
        rule="dynamic-shape",
        severity="warning" if limiting else "info",
        limiting=limiting,
        title=f"{len(batches.shapes)} different batch shapes; the step is traced or compiled again for new ones",
        evidence={
            "shapes": len(batches.shapes),
            "traces_by_shape": len(by_shape),
            "xla_compiles_in_steady_state": compiles,
            "example": batches.shapes[-1],
        },
        remedy="Pad to a few fixed edges (buckets), so that each shape is compiled once, before training.",
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
