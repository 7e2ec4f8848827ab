"""The rule `dynamic-shape`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import BATCHES, last_of
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.pipeline import place


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
    recurs = evidence.share("compile") > 0 and bool(by_shape or compiles)
    if not recurs:
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
        location=place(last_of(evidence, ("GroupByWindowDataset",)) or last_of(evidence, BATCHES)),
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
