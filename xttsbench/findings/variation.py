"""The rules on how step times vary: `oscillation`, `stragglers`, `length-variance`, `drift`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.steps import Steps, in_one_stretch, measured, steady
from xttsbench.analysis.variation import Trend, changed, trend
from xttsbench.analysis.variation import drift as drift_of
from xttsbench.evidence import Evidence
from xttsbench.findings.boundary import BEGUN, BETWEEN, over_the_boundary
from xttsbench.findings.rule import Findings, rule
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
    "sync_s": ("fetching values from the device", "Fetch losses and metrics less often, and together."),
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
class _Correlate:
    """Something that goes with slow steps, in words, and what to do about it."""

    name: str
    remedy: str
    likeness: float
    location: Location = field(default_factory=Location)


def _with_the_period(evidence: Evidence, steps: Steps, period_steps: float) -> list[_Correlate]:
    """Correlates with the period of the steps, the likest first: columns, epochs, lines of the code, buffers."""
    wall = _folded(steps.wall_s, period_steps)
    swing = float(np.ptp(wall))
    found: list[_Correlate] = []
    for column, (name, remedy) in (*_TIMES.items(), *_COUNTS.items()):
        values = np.asarray(getattr(steps, column), dtype=np.float64)
        own = _folded(values, period_steps)
        enough = column in _COUNTS or float(np.ptp(own)) >= _AMOUNT * swing
        likeness = _likeness(wall, own)
        if enough and abs(likeness) >= _ALIKE and _is_periodic(values, period_steps):
            found.append(_Correlate(name, remedy, abs(likeness)))
    found.sort(key=lambda one: -one.likeness)
    epochs = _epochs(evidence, steps, period_steps)
    sizes = [] if epochs else _buffers(evidence, period_steps)  # those of the whole data set have it too
    return [*found, *epochs, *_lines(evidence, period_steps), *sizes]


def _in_slow_steps(steps: Steps, slow: IntArray, batches: Batches | None, begun: str) -> list[_Correlate]:
    """Correlates that most outlying steps share, and few others, the best first; ``begun`` mends epochs' starts."""
    mask = np.isin(np.arange(len(steps)), slow)
    begins = _begins(steps)
    excess, other_size = steps.wall_s - np.median(steps.wall_s), steps.batch_size != _usual(steps.batch_size)
    signs: list[tuple[str, str, npt.NDArray[np.bool_]]] = [
        (BEGUN, begun, begins),
        ("Python collects garbage in them", _TIMES["gc_s"][1], steps.gc_s >= _AMOUNT * np.maximum(excess, 1e-9)),
        ("something is traced or compiled in them", _TIMES["compile_s"][1], steps.compiling),
        ("values are fetched from the device in them", _TIMES["sync_s"][1], steps.sync_s >= 0.5 * steps.wall_s),
        ("their batches hold another number of samples", _COUNTS["batch_size"][1], other_size),
    ]
    for shape in np.unique(steps.shape_id[mask]):
        if batches is not None and 0 <= shape < len(batches.shapes):
            name = f"their batches have the shape {batches.shapes[shape]}"
            signs.append((name, "Look at the elements of that shape.", steps.shape_id == shape))
    found = []
    for name, remedy, has in signs:
        among, elsewhere = float(has[mask].mean()), float(has[~mask].mean()) if (~mask).any() else 0.0
        if among >= _MOST and elsewhere <= _CHANCE:
            found.append(_Correlate(name, remedy, among - elsewhere))
    return sorted(found, key=lambda one: -one.likeness)


def _begins(steps: Steps) -> npt.NDArray[np.bool_]:
    """Mask of the steps that begin an epoch; those before may be of the same one, where others drew batches between."""
    return np.where(steps.batch < 0, np.diff(steps.epoch, prepend=steps.epoch[:1]) > 0, steps.batch == 0)


def _same_place_in_epoch(steps: Steps, slow: IntArray) -> list[int]:
    """Numbers (from 0) of batches within an epoch that are slow in two epochs at least, and in most that reach them."""
    times, seen = Counter(steps.batch[slow].tolist()), Counter(steps.batch.tolist())
    return [place for place, count in sorted(times.items()) if place >= 0 and count >= 2 and count > seen[place] / 2]


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


def _epochs(evidence: Evidence, steps: Steps, period_steps: float) -> list[_Correlate]:
    starts = np.flatnonzero(np.diff(steps.epoch) > 0)
    if len(starts) < 3 or abs(float(np.median(np.diff(starts))) / period_steps - 1) > _NEAR:
        return []
    return [_Correlate("the epoch: a pass over the data set has as many steps", over_the_boundary(evidence)[0], 1.0)]


def _lines(evidence: Evidence, period_steps: float) -> list[_Correlate]:
    """Lines of the step that are seen as seldom as the period says; every step has the others."""
    found = []
    for line in evidence.anatomy.lines if evidence.anatomy else ():
        if line.kind == "function" or abs(line.steps_share * period_steps - 1) > _RATE_NEAR:
            continue
        name = f"{line.function} ({line.file}:{line.line}), seen in every {1 / line.steps_share:.0f}th step"
        remedy = "Do it less often, or on another thread that the step does not wait for."
        found.append(_Correlate(name, remedy, line.share, Location(file=line.file, line=line.line)))
    return sorted(found, key=lambda one: -one.likeness)


def _buffers(evidence: Evidence, period_steps: float) -> list[_Correlate]:
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
                name = f"the {word} of {op.name}: {size:g} elements are {size / per_batch:.1f} batches"
                found.append(
                    _Correlate(name, "Another size of it moves the period; see whether it does.", 0.0, op.location)
                )
    return found


def _usual(values: IntArray) -> int:
    numbers, counts = np.unique(values, return_counts=True)
    return int(numbers[np.argmax(counts)])


@rule(
    "oscillation",
    threshold="a p-value of 1 % at most, a tenth of the variance, a standard deviation of 5 % of the mean, and a "
    "period that the length of the batches does not have; a bottleneck where the input or host work has it and is one",
    remedy="Look for what changes every so many steps: the length of batches, accumulation, clocks.",
    false_alarms="none known",
)
def oscillation(evidence: Evidence) -> Findings:
    """A period in the step times that chance does not explain, which side of the step has it, and what shares it."""
    found, steps = evidence.oscillation, evidence.steps
    if found.period_steps is None or found.variance_share is None or steps is None or found.variance_share < 0.1:
        return
    steps = steps[in_one_stretch(steps)]
    if evidence.length_has_the_period:
        return  # batches of different length in turn: `length_variance` says so
    if (spread := found.std_over_mean or float(steps.wall_s.std() / steps.wall_s.mean())) < 0.05:
        return  # a real period of no consequence
    source = _source(evidence, steps)
    limiting = source in ("input", "host") and evidence.limits(source)
    correlates = _with_the_period(evidence, steps, found.period_steps)
    shared = f", and so has {correlates[0].name}" if correlates else ""
    yield oscillation.finding(
        f"step times repeat every {found.period_steps:.1f} steps; {SIDES[source]} has the period{shared}",
        {
            "period_steps": found.period_steps,
            "period_s": found.period_s,
            "variance_share": found.variance_share,
            "p_value": found.p_value,
            "std_over_mean": spread,
            "side": source,
            "same_period": "; ".join(one.name for one in correlates) or None,
        },
        correlates[0].remedy
        if correlates
        else {
            "input": "Look for what happens every so many batches: a buffer that runs empty, a file boundary, a shard.",
            "host": "Look for what the training loop does every so many steps: logging, checkpoints, figures.",
        }.get(source, "Look for what changes every so many steps: the length of batches, accumulation, clocks."),
        severity="warning" if spread >= 0.2 else "info",
        limiting=limiting,
        at=next((one.location for one in correlates if one.location.line is not None), Location()),
        predicted_speedup=evidence.max_speedups.get(source) if limiting else None,
    )


def _outside_s(evidence: Evidence, steps: Steps) -> npt.NDArray[np.float64]:
    """Seconds of each step in the host's own Python; 0 where there is neither a step nor a loop around it."""
    ours = evidence.has_step or evidence.script is not None
    return np.asarray(steps.outside_s if ours else np.zeros(len(steps)))


def _source(evidence: Evidence, steps: Steps) -> str:
    outside = _outside_s(evidence, steps)
    sides = {"input": steps.wait_s, "host": outside, "step": steps.step_s - outside}
    centred = steps.wall_s - steps.wall_s.mean()
    return max(sides, key=lambda name: float(np.mean((sides[name] - sides[name].mean()) * centred)))


_STALL_SHARE: Final = 0.05
_STALLS_LEAD: Final = 0.4  # of all waiting, from which on the few steps are what to mend


@rule(
    "stragglers",
    threshold="their time beyond the median is 5 % of all time; a bottleneck only where the step waits for data",
    remedy="Look at the elements of the batches of those steps, or at what the step does there.",
    false_alarms="other processes of the machine make steps outlie, too",
)
def stragglers(evidence: Evidence) -> Findings:
    """Outlying steps, the length of their batches considered, and what they have in common."""
    if evidence.explanation is None or evidence.steps is None:
        return
    found, steps = evidence.explanation.stragglers, evidence.steps
    if not (count := len(found.indices)) or found.share_of_time < _STALL_SHARE:
        return
    slow = steps[np.isin(np.arange(len(steps)), found.indices)]
    in_wait = float(slow.wait_s.sum() / slow.wall_s.sum())
    begun, line = over_the_boundary(evidence) if in_wait > 0.5 else (BETWEEN, Location())
    common = _in_slow_steps(steps, found.indices, evidence.batches, begun)
    place = _same_place_in_epoch(steps, found.indices)
    said = f"; {common[0].name}" if common else ""
    said = said.replace("they begin", "it begins").replace(" in them", " in it") if count == 1 else said
    named = " and ".join(_place(steps, int(index)) for index in found.indices[:2])
    looked = f"the elements of those batches, first of all {named}" if in_wait > 0.5 else "what the step does there"
    remedy = f"Look at {looked}."
    if common or place[:1] == [0]:
        first = common[0] if common else _Correlate(BEGUN, f"An epoch's first batch is often one. {begun}", 0.0)
        remedy = first.remedy if first.name == BEGUN else f"{first.remedy} {remedy}"
    elif place and not any(op.random for op in evidence.graph.ops):  # else it has other elements each time
        remedy = f"Batch {place[0]} of an epoch is slow again and again: look at its elements. {remedy}"
    yield stragglers.finding(
        f"{count} of {len(steps)} steps are far slower: {found.share_of_time:.0%} of all time is what they take beyond "
        f"a median step{said}",
        {
            "stragglers": count,
            "steps": len(steps),
            "mean_of_these_s": float(steps.wall_s.mean()),
            "excess_s_per_step": found.excess_s_per_step,
            "excess_share": found.share_of_time,
            "own_wait_share": in_wait,
            "threshold_s": found.threshold_s,
            "first_steps": ", ".join(_place(steps, int(index)) for index in found.indices[:8]),
            "in_common": "; ".join(one.name for one in common) or None,
            "same_batch_of_epochs": ", ".join(str(number) for number in place[:8]) or None,
        },
        remedy,
        severity="warning",
        at=line if begun in remedy else None,
        # Beside a much larger wait in all steps these few are not what to mend first.
        limiting=in_wait > 0.5
        and evidence.limits("input")
        and found.share_of_time >= _STALLS_LEAD * float(steps.wait_s.sum() / steps.wall_s.sum()),
    )


def _place(steps: Steps, index: int) -> str:
    """Batch and epoch of a step, since others may have drawn batches between; its number where they are not known."""
    batch = int(steps.batch[index])
    return str(index) if batch < 0 else f"batch {batch} of epoch {int(steps.epoch[index])}"


_LENGTH_SHARE: Final = 0.50


@rule(
    "length-variance",
    threshold="half of the variance at p < 1 %; never a bottleneck",
    remedy="Not a fault. For steadier steps, batch by a token budget within buckets of length.",
    false_alarms="none known",
)
def length_variance(evidence: Evidence) -> Findings:
    """Variation that the length of the batches explains: not a fault of the loop."""
    length = evidence.explanation.length if evidence.explanation else None
    if length is None or length.p_value >= 0.01 or length.share < _LENGTH_SHARE:
        return
    yield length_variance.finding(
        f"the length of batches explains {length.share:.0%} of the variation of step times",
        {"variance_share": length.share, "slope_s_per_element": length.slope_s_per_element, "p_value": length.p_value},
    )


_DRIFT_SHARE: Final = 0.05
_DRIFT_STEPS: Final = 40


@rule(
    "drift",
    threshold="5 % of change over 40 steps or more at p < 1 %; never a bottleneck",
    remedy="Look for what grows with every step: histories, caches, traces; or for clocks that fall with heat.",
    false_alarms="a machine that warms up",
)
def drift(evidence: Evidence) -> Findings:
    """Steady steps that become slower or faster all along, length and compilation considered."""
    steps = evidence.steps
    if steps is None or (own := _drift(steps)) is None:
        return
    found, change = own
    others = [
        _drift(steady(rows)[0]) for trial in evidence.ladder[1:] if (rows := measured(trial, "as_is")) is not None
    ]
    agree = sum(other is not None and np.sign(other[1]) == np.sign(change) for other in others)
    again = not others or agree >= len(others) / 2
    side = _drifting_side(evidence, steps, found)
    yield drift.finding(
        f"step times {changed(change, len(steps))}; most of it is {SIDES[side]}"
        + ("" if again else ", in this process and not in another"),
        {
            "change": change,
            "slope_s_per_step": found.slope,
            "p_value": found.p_value,
            "effective_steps": found.effective_points,
            "steps": len(steps),
            "side": side,
            "processes": 1 + len(others),
            "processes_that_agree": 1 + agree,
        },
        _drift_remedy(side, slower=change > 0, again=again),
        severity="warning" if again and change > 0 else "info",
    )


def _drift(steps: Steps) -> tuple[Trend, float] | None:
    own = drift_of(steps.wall_s - steps.compile_s, steps.batch_elements) if len(steps) >= _DRIFT_STEPS else None
    return own if own is not None and abs(own[1]) >= _DRIFT_SHARE else None


def _drifting_side(evidence: Evidence, steps: Steps, found: Trend) -> str:
    """``input``, ``host`` or ``step``: the one whose own slope makes up most of the drift."""
    outside = _outside_s(evidence, steps)
    sides = {"input": steps.wait_s, "host": outside, "step": steps.working_s - outside}
    return max(sides, key=lambda name: own.slope * np.sign(found.slope) if (own := trend(sides[name])) else 0.0)


_DRIFT_REMEDIES: Final = {
    "input": "Look for a buffer that empties, a cache or list that grows, or files that become larger or farther.",
    "host": "Look for what grows with every step on the Python side: histories, logs, figures, objects collected.",
    "step": "Look for state that grows with every step, traces added to a function, and clocks that fall with heat.",
}


def _drift_remedy(side: str, *, slower: bool, again: bool) -> str:
    if not again:
        return "Other processes show none, so it is the machine: look for what else runs, and for clocks that fall."
    if not slower:
        return "Still warming up: caches, tuned buffers or clocks. Measure longer (--steps) before comparing."
    return _DRIFT_REMEDIES[side]
