"""What goes with slow steps: the columns, lines and buffers that share a period, and what stragglers have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.steps import Steps
from xttsbench.evidence.evidence import Evidence
from xttsbench.records.base import Location
from xttsbench.records.trial import Batches

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SIDES: Final = {"input": "the input", "host": "work between steps", "step": "the step itself"}
"""Side of a step, as evidence has it, in words."""
_ALIKE: Final = 0.7  # Correlation of two folded profiles that counts as one shape
_AMOUNT: Final = 0.3  # Of the swing of the step time that a time must have, to be said to make it
_NEAR: Final = 0.1  # How far, relatively, a number may lie from the period and still be it
_RATE_NEAR: Final = 0.35  # The same for how often a line was seen: a sampler misses some
_MOST: Final = 0.8
_CHANCE: Final = 0.3

_TIMES: Final[Mapping[str, tuple[str, str]]] = {
    "gc_s": (
        "Python's garbage collection",
        "Make fewer objects a step, or gc.freeze() after the start and collect between epochs.",
    ),
    "sync_s": (
        "fetching values from the device",
        "Fetch losses and metrics less often, and together.",
    ),
    "compile_s": (
        "tracing or compilation",
        "Keep shapes and Python arguments the same, so that nothing is traced or compiled again.",
    ),
    "emulated_s": ("the emulated accelerator", "The period is in the step times that are replayed."),
}
_COUNTS: Final[Mapping[str, tuple[str, str]]] = {
    "batch_elements": ("the length of the batches", "Batch by length within buckets, so that neighbours are alike."),
    "batch_size": ("the number of samples in a batch", "Drop or pad the smaller batch (drop_remainder=True)."),
    "shape_id": ("the shape of the batches", "Fix the shapes, or the edges of the buckets."),
    "syncs": ("the number of values fetched from the device", "Fetch losses and metrics less often, and together."),
    "calls": ("the number of functions called", "Look for what the loop calls every so many steps."),
}


@dataclass(frozen=True)
class Correlate:
    """Something that goes with slow steps, in words, and what to do about it."""

    name: str
    remedy: str
    likeness: float
    location: Location = field(default_factory=Location)


def with_the_period(evidence: Evidence, steps: Steps, period_steps: float) -> list[Correlate]:
    """What has the period of the steps, the likest first: columns, epochs, lines of the code, buffers."""
    wall = _folded(steps.wall_s, period_steps)
    swing = float(np.ptp(wall))
    found: list[Correlate] = []
    for column, (name, remedy) in (*_TIMES.items(), *_COUNTS.items()):
        values = np.asarray(getattr(steps, column), dtype=np.float64)
        own = _folded(values, period_steps)
        enough = column in _COUNTS or float(np.ptp(own)) >= _AMOUNT * swing
        likeness = _likeness(wall, own)
        if enough and abs(likeness) >= _ALIKE and _is_periodic(values, period_steps):
            found.append(Correlate(name, remedy, abs(likeness)))
    return [
        *sorted(found, key=lambda one: -one.likeness),
        *_epochs(steps, period_steps),
        *_lines(evidence, period_steps),
        *_buffers(evidence, period_steps),
    ]


def in_slow_steps(steps: Steps, slow: IntArray, batches: Batches | None) -> list[Correlate]:
    """What most of the outlying steps share and few of the others do, the most telling first."""
    mask = np.isin(np.arange(len(steps)), slow)
    begins = np.diff(steps.epoch, prepend=steps.epoch[:1]) > 0
    excess = steps.wall_s - np.median(steps.wall_s)
    signs: list[tuple[str, str, npt.NDArray[np.bool_]]] = [
        ("they begin an epoch", "Prefetch over the boundary: repeat() before prefetch(), no new iterator.", begins),
        ("Python collects garbage in them", _TIMES["gc_s"][1], steps.gc_s >= _AMOUNT * np.maximum(excess, 1e-9)),
        ("something is traced or compiled in them", _TIMES["compile_s"][1], steps.compiling),
        ("values are fetched from the device in them", _TIMES["sync_s"][1], steps.sync_s >= 0.5 * steps.wall_s),
        (
            "their batches hold another number of samples",
            _COUNTS["batch_size"][1],
            steps.batch_size != _usual(steps.batch_size),
        ),
    ]
    for shape in np.unique(steps.shape_id[mask]):
        if batches is not None and 0 <= shape < len(batches.shapes):
            name = f"their batches have the shape {batches.shapes[shape]}"
            signs.append((name, "Look at the elements of that shape.", steps.shape_id == shape))
    found = []
    for name, remedy, has in signs:
        among, elsewhere = float(has[mask].mean()), float(has[~mask].mean()) if (~mask).any() else 0.0
        if among >= _MOST and elsewhere <= _CHANCE:
            found.append(Correlate(name, remedy, among - elsewhere))
    return sorted(found, key=lambda one: -one.likeness)


def same_place_in_epoch(steps: Steps, slow: IntArray) -> list[int]:
    """Numbers (from 0) of batches within an epoch that are slow in two epochs at least, and in most that reach them.

    Only epochs whose beginning is among the steps can be counted from it.
    """
    starts = np.flatnonzero(np.diff(steps.epoch) > 0) + 1
    if len(starts) < 2:
        return []
    lengths = np.diff([*starts, len(steps)])
    epochs = np.searchsorted(starts, slow, side="right") - 1
    times = Counter((slow - starts[epochs])[epochs >= 0].tolist())
    return [place for place, count in sorted(times.items()) if count >= 2 and count > (lengths > place).sum() / 2]


def _folded(values: FloatArray, period_steps: float) -> FloatArray:
    """Mean over the cycles at each phase of the period, shape ``(round(period),)``."""
    bins = max(round(period_steps), 2)
    phase = (np.arange(len(values)) % period_steps) / period_steps * bins
    index = np.minimum(phase.astype(np.int64), bins - 1)
    counts = np.bincount(index, minlength=bins)
    return np.bincount(index, weights=values, minlength=bins) / np.maximum(counts, 1)


def _likeness(one: FloatArray, other: FloatArray) -> float:
    """Correlation of two profiles; 0 where one is flat."""
    if np.ptp(one) <= 0 or np.ptp(other) <= 1e-12 * max(float(np.abs(other).max()), 1e-30):
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _is_periodic(values: FloatArray, period_steps: float) -> bool:
    """Whether folding leaves more of the variance than chance: bins over steps is what noise leaves."""
    variance = float(values.var())
    if variance <= 0:
        return False
    bins = max(round(period_steps), 2)
    return float(_folded(values, period_steps).var()) / variance >= max(3 * bins / len(values), 0.2)


def _epochs(steps: Steps, period_steps: float) -> list[Correlate]:
    starts = np.flatnonzero(np.diff(steps.epoch) > 0)
    if len(starts) < 3 or abs(float(np.median(np.diff(starts))) / period_steps - 1) > _NEAR:
        return []
    remedy = "Keep the iterator over epochs: dataset.repeat() before prefetch, and count the steps of an epoch."
    return [Correlate("the epoch: a pass over the data set has as many steps", remedy, 1.0)]


def _lines(evidence: Evidence, period_steps: float) -> list[Correlate]:
    """Lines of the step that are seen as seldom as the period says; every step has the others."""
    found = []
    for line in evidence.anatomy.lines if evidence.anatomy else ():
        if line.kind == "function" or abs(line.steps_share * period_steps - 1) > _RATE_NEAR:
            continue
        name = f"{line.function} ({line.file}:{line.line}), seen in every {1 / line.steps_share:.0f}th step"
        remedy = "Do it less often, or on another thread that the step does not wait for."
        found.append(Correlate(name, remedy, line.share, Location(file=line.file, line=line.line)))
    return sorted(found, key=lambda one: -one.likeness)


def _buffers(evidence: Evidence, period_steps: float) -> list[Correlate]:
    """Ops of the pipeline one of whose sizes comes to the period, in batches."""
    found = []
    for op in evidence.graph.ops:
        per_batch = op.elements_per_batch
        sizes: Sequence[tuple[str, float | None]] = (
            ("buffer", op.chosen_buffer_size or op.buffer_size),
            ("cycle", op.cycle_length),
            ("length", op.cardinality if (op.cardinality or 0) > 0 else None),
        )
        for word, size in sizes:
            if per_batch and size and size > 1 and abs(size / per_batch / period_steps - 1) <= _NEAR:
                name = f"the {word} of {op.op}: {size:g} elements are {size / per_batch:.1f} batches"
                found.append(
                    Correlate(name, "Another size of it moves the period; see whether it does.", 0.0, op.location)
                )
    return found


def _usual(values: IntArray) -> int:
    numbers, counts = np.unique(values, return_counts=True)
    return int(numbers[np.argmax(counts)])
