"""What each shape of the batches cost to trace and to compile, and what the smaller last batch of an epoch did. Pure.

Over all segments of one trial, warm-up included: a shape is compiled once, most often before the steady state.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xttsbench.analysis.steps import FloatArray, Steps, steps_of
from xttsbench.records.trial import Segment

_INPUT_ONLY = ("input_only",)
_MOSTLY = 0.5
"""Share of the batches that have the usual size, at least, where one can speak of a usual size."""


@dataclass(frozen=True)
class ShapeCost:
    """One signature of shapes: how often it came, what it cost once, and what a step on it takes.

    Attributes:
        shape: its text, or its index where the text was not kept.
        steps: rows with it, over all segments.
        traces, trace_s: tf.function traces in those, and their time.
        compiles, xla_s: XLA compilations in those, and their time by XLA's own clock.
        lost_s: time of those steps that went to tracing, compilation, and what TensorFlow's clocks leave out.
        step_s: median time of a step that neither traced nor compiled; ``None`` where each one did.
    """

    shape_id: int
    shape: str
    steps: int
    traces: int
    trace_s: float
    compiles: int
    xla_s: float
    lost_s: float
    step_s: float | None


@dataclass(frozen=True)
class PartialBatch:
    """The smaller last batch of an epoch: its size, the usual one, and what came of it over all segments."""

    size: int
    usual: int
    steps: int
    traces: int
    compiles: int
    lost_s: float


def shape_costs(segments: Sequence[Segment], shapes: Sequence[str] = ()) -> list[ShapeCost]:
    """The shapes of a trial in order of appearance.

    Args:
        segments: of one trial; ``shape_id`` has one meaning in all of them.
        shapes: texts of the signatures by ``shape_id``, as far as they were kept.
    """
    rows: dict[int, list[tuple[Segment, int]]] = defaultdict(list)
    lost = {id(segment): _whole(segment).compile_s for segment in segments}
    for segment in segments:
        if segment.name in _INPUT_ONLY:
            continue
        for at, shape in enumerate(segment.columns.get("shape_id", ())):
            rows[shape].append((segment, at))
    return [
        _cost(shape, shapes[shape] if shape < len(shapes) else f"shape {shape}", own, lost)
        for shape, own in sorted(rows.items())
    ]


def _cost(shape_id: int, shape: str, rows: Sequence[tuple[Segment, int]], lost: Mapping[int, FloatArray]) -> ShapeCost:
    def total(column: str) -> int:
        return sum(segment.columns[column][at] for segment, at in rows if column in segment.columns)

    clean = [
        segment.columns["step_ns"][at] / 1e9
        for segment, at in rows
        if not segment.columns["traces"][at] and not segment.columns["xla_compiles"][at]
    ]
    return ShapeCost(
        shape_id=shape_id,
        shape=shape,
        steps=len(rows),
        traces=total("traces"),
        trace_s=total("trace_ns") / 1e9,
        compiles=total("xla_compiles"),
        xla_s=total("xla_ns") / 1e9,
        lost_s=float(sum(lost[id(segment)][at] for segment, at in rows)),
        step_s=float(np.median(clean)) if clean else None,
    )


def partial_batches(segments: Sequence[Segment]) -> PartialBatch | None:
    """What the smaller last batch of an epoch did to the step; ``None`` where there is none.

    A smaller batch is a last one where the next row begins another epoch (or there is none), each time that it comes:
    batches by tokens or by buckets vary in the middle of an epoch, and are something else.
    """
    own = [segment for segment in segments if segment.steps and segment.name not in _INPUT_ONLY]
    sizes = Counter(size for segment in own for size in segment.columns.get("batch_size", ()))
    if len(sizes) < 2:
        return None
    usual, times = sizes.most_common(1)[0]
    if times < _MOSTLY * sum(sizes.values()):
        return None
    found: list[tuple[Segment, int]] = []
    for segment in own:
        size, epoch = segment.columns["batch_size"], segment.columns.get("epoch", (0,) * segment.steps)
        for at in range(segment.steps):
            if size[at] > usual:
                return None
            if size[at] < usual:
                if at + 1 < segment.steps and epoch[at + 1] == epoch[at]:
                    return None
                found.append((segment, at))
    lost = {id(segment): _whole(segment).compile_s for segment in own}
    return PartialBatch(
        size=min(segment.columns["batch_size"][at] for segment, at in found),
        usual=usual,
        steps=len(found),
        traces=sum(segment.columns["traces"][at] for segment, at in found),
        compiles=sum(segment.columns["xla_compiles"][at] for segment, at in found),
        lost_s=float(sum(lost[id(segment)][at] for segment, at in found)),
    )


def _whole(segment: Segment) -> Steps:
    """All rows of a segment, its warm-up too."""
    return steps_of(segment.model_copy(update={"warmup_steps": 0}))
