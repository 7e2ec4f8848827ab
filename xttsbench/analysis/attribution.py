"""Parts of the mean step: waits, dispatch, compilation, host work, contention, and the rest for the device.

Means add up where medians do not, so attribution is in means. Every function takes arrays of resampled means (one
entry per draw, or one entry for the estimate itself) and works on all of them at once; the same code
gives the estimate and its uncertainty. What each shape of the batches cost to trace and to compile is counted over all
segments of one trial (:func:`shape_costs`), warm-up included: a shape is compiled once, most often before the steady
state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.steps import FloatArray, Steps, steps_of
from xttsbench.records.trial import Segment

SATURATED = 0.80
"""Share of the processors from which input and step compete for them."""
SATURATED_SPREAD = 0.04
"""Standard deviation of that share, and of what is compared with it: whether they compete is a part of the draw."""
PARTS = ("input", "dispatch", "compute", "compile", "host", "transfer", "contention", "residual")
AVOIDABLE = ("input", "dispatch", "compile", "host", "transfer", "contention")
THRESHOLD = 0.10
"""An avoidable loss below this share of the step is not a bottleneck."""


@dataclass(frozen=True)
class Means:
    """Mean seconds per step of the measured conditions, each an array over resamples.

    ``alone_s`` is the step alone on cached batches without compilation, paired with the rest in one process;
    ``compiled_gain_s`` is what one compiled graph saved of it, paired in another; ``input_alone_s`` the pipeline
    without a step, and ``input_cpu_s`` the processor time of the threads and processes that make a batch: competing for
    it cannot cost more than that. ``cpu_s`` is the processor time of the whole process. ``None`` is not measured.
    ``saturated_from`` is the share of the processors from which input and step compete, drawn with the rest.
    """

    wall_s: FloatArray
    wait_s: FloatArray
    step_s: FloatArray
    emulated_s: FloatArray
    compile_s: FloatArray
    outside_s: FloatArray
    alone_s: FloatArray | None = None
    compiled_gain_s: FloatArray | None = None
    input_alone_s: FloatArray | None = None
    input_cpu_s: FloatArray | None = None
    cpu_s: FloatArray | None = None
    saturated_from: FloatArray | float = SATURATED


@dataclass(frozen=True)
class StepFacts:
    """Properties of the step beside its measured times.

    Attributes:
        has_step: False for a bare dataset.
        eager: ops are dispatched one by one from Python.
        opaque: the step's time is outside TensorFlow on every step (it sleeps, or computes elsewhere).
        recompiles: (nearly) every step traces or compiles, so no step shows what it costs without.
        host_share: share of the step (of its time outside tf.functions where it is compiled) in the user's own
            Python or in saving; for an opaque step only what some steps have beyond the others.
        dispatch_floor_s: launching the step's eager ops costs at least this; used where it cannot be compiled.
        handoff_s: ``next()`` on a ready batch.
        handoff_after_pause_s: the same after an emulated accelerator's pause; 0 where none is emulated.
        transfer_s: copying a batch to the device.
        cores_busy: share of the processor time that others left which the process itself used while input and step ran
            together.
        allowed_cpus: processors that the process may use; ``None`` where that is not known.
        lost_share: share of the processor time wanted by the step alone that others took; see
            :func:`cores_wanted`.
        taken_share: share of the processors that others took while the target ran as it is, above what they take of a
            quiet machine.
        foreign_share: the part of it that ran beside the target, and not beneath its machine.
        holds_gil: the pipeline runs Python that holds the interpreter lock.
        anew_share: share of the time from the first call of ``fit``, ``evaluate`` or ``predict`` to the last in which
            Keras makes a dataset, an iterator and callbacks anew, where the calls are for a batch or two each; 0 where
            the loop is none of such calls.
    """

    has_step: bool
    eager: bool = False
    opaque: bool = False
    recompiles: bool = False
    host_share: float = 0.0
    dispatch_floor_s: float = 0.0
    handoff_s: float = 0.0
    handoff_after_pause_s: float = 0.0
    transfer_s: float = 0.0
    cores_busy: float | None = None
    allowed_cpus: float | None = None
    lost_share: float = 0.0
    taken_share: float = 0.0
    foreign_share: float = 0.0
    holds_gil: bool = False
    anew_share: float = 0.0

    @property
    def handed_over_s(self) -> float:
        """Seconds that handing over a ready batch costs beside the step, which may have paused."""
        return max(self.handoff_s, self.handoff_after_pause_s)


_MOSTLY_HANDING_OVER = 1.5  # Times what handing over takes, up to which that is what an input does for a batch
_NOTICEABLE = 0.03  # A step must be this much slower beside the input than alone before it is called contention


def attribute(means: Means, facts: StepFacts) -> dict[str, FloatArray]:
    """Seconds per step by part (:data:`PARTS`); without the residual they add up to ``wait_s + step_s``."""
    zero = np.zeros_like(means.wall_s)
    parts = dict.fromkeys(PARTS, zero)
    parts["residual"] = means.wall_s - means.wait_s - means.step_s
    if not facts.has_step and not means.emulated_s.any():
        return parts | {"input": means.wait_s}

    floor = np.minimum(means.wait_s, facts.handed_over_s)
    handed = np.minimum(floor, facts.handoff_s)  # the rest is waking up, as the emulated accelerator has it
    launched = _launched(means, facts, handed)
    late = _late_for_others(means, facts, means.wait_s - floor)
    waited, worked = means.wait_s - floor - late, np.maximum(means.step_s - _compile(means, facts), 0.0)
    host = _host(means, facts, worked)
    inflated, delayed = _contention(means, facts, waited, worked, host)
    paced = _paced_by_input(means, inflated + delayed)
    left = worked - host - inflated
    dispatch = np.clip(_dispatch(means, facts, host), 0.0, np.maximum(left - means.emulated_s, 0.0))
    transfer = np.clip(facts.transfer_s, 0.0, np.maximum(left - dispatch - means.emulated_s, 0.0))
    parts |= {
        "input": waited - delayed + paced + handed - launched,
        "dispatch": dispatch + launched,
        "compute": left - dispatch - transfer + floor - handed + late,
        "compile": means.step_s - worked,
        "host": host,
        "transfer": transfer,
        "contention": inflated + delayed - paced,
    }
    return _with_calls(parts, facts.anew_share * (means.wait_s + means.step_s), means.emulated_s)


def _with_calls(parts: Mapping[str, FloatArray], anew_s: FloatArray, emulated_s: FloatArray) -> dict[str, FloatArray]:
    """The parts with what Keras makes anew in each call, all of it outside of compiled functions, as host work.

    It looks like a wait for the first batch, like ops that are launched and like compilation: of these it is taken, of
    each in proportion; what is more looks like the step's own computing.
    """
    looks_like = ("input", "dispatch", "compile", "transfer", "contention")
    there_s = sum((parts[name] for name in looks_like), np.zeros_like(anew_s))
    more_s = np.maximum(anew_s - parts["host"], 0.0)
    moved_s = np.minimum(more_s, there_s)
    left = 1 - np.divide(moved_s, there_s, out=np.zeros_like(moved_s), where=there_s > 0)
    computed_s = np.clip(more_s - moved_s, 0.0, np.maximum(parts["compute"] - emulated_s, 0.0))
    found = {**parts, **{name: parts[name] * left for name in looks_like}}
    return found | {"host": parts["host"] + moved_s + computed_s, "compute": parts["compute"] - computed_s}


def _launched(means: Means, facts: StepFacts, handed: FloatArray) -> FloatArray:
    """The part of handing over batches that is lost: where the input's own work sets the pace, it lies within that."""
    if means.input_alone_s is None:
        return handed
    lost = np.clip(means.wall_s - means.input_alone_s, 0.0, handed)
    return np.where(means.input_alone_s > _MOSTLY_HANDING_OVER * facts.handoff_s, lost, handed)


def _late_for_others(means: Means, facts: StepFacts, waited: FloatArray) -> FloatArray:
    """The part of a wait that is the neighbours': beyond the input's own pace, at most what they took of the time.

    It stays with the device's work, which they make longer too. On a quiet machine there is none: an input that is fast
    enough on the whole and late now and then is late for itself.
    """
    if means.alone_s is None or means.input_alone_s is None:
        return np.zeros_like(waited)
    beyond = np.clip(waited - np.maximum(means.input_alone_s - means.alone_s, 0.0), 0.0, None)
    return np.minimum(beyond, facts.taken_share * np.maximum(means.wall_s, 0.0))


def verdicts(parts: Mapping[str, FloatArray], wall_s: FloatArray) -> npt.NDArray[np.str_]:
    """The bottleneck of each resample: the largest avoidable part, if it is 10 % of the step, else ``compute``."""
    names, lost_s = largest(parts)
    return np.where(lost_s >= THRESHOLD * wall_s, names, "compute")


def largest(parts: Mapping[str, FloatArray]) -> tuple[npt.NDArray[np.str_], FloatArray]:
    """Name and seconds of the largest avoidable part of each resample."""
    losses = np.stack([parts[name] for name in AVOIDABLE])
    return np.array(AVOIDABLE)[losses.argmax(axis=0)], losses.max(axis=0)


def _compile(means: Means, facts: StepFacts) -> FloatArray:
    """Seconds of tracing and compilation; all that one compiled graph saves where every step compiles anew."""
    if not facts.recompiles or means.compiled_gain_s is None:
        return means.compile_s
    outside = np.minimum(facts.host_share * means.outside_s, means.step_s)
    return np.asarray(np.maximum(means.compile_s, np.minimum(means.compiled_gain_s, means.step_s) - outside))


def _host(means: Means, facts: StepFacts, worked: FloatArray) -> FloatArray:
    """The host's own share: of the whole step where it is eager or opaque, else of what is outside its functions."""
    base = worked - means.emulated_s if facts.eager or facts.opaque else np.minimum(means.outside_s, worked)
    return np.asarray(np.clip(facts.host_share * base, 0.0, None))


def _contention(
    means: Means, facts: StepFacts, waited: FloatArray, worked: FloatArray, host: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Excess of step and input for running at once, in seconds: (inside the step, inside ``next()``).

    Only where they do compete: they use all the cores that they get and together want more, or both need the
    interpreter lock. A wait that the pipeline alone would cause too (its own time beyond the step's) is the input's.
    """
    zero = np.zeros_like(worked)
    if means.alone_s is None:
        return zero, zero
    wanted = cores_wanted(means, facts)
    full = np.minimum(facts.cores_busy or 0.0, np.inf if wanted is None else wanted)
    saturated = np.broadcast_to(full >= means.saturated_from, worked.shape)
    excess = worked - means.alone_s
    inflated = np.where(excess >= _NOTICEABLE * means.alone_s, np.clip(excess, 0.0, None), 0.0)
    if means.input_cpu_s is not None:
        inflated = np.minimum(inflated, means.input_cpu_s)
    inflated = np.minimum(inflated, np.maximum(worked - host - means.emulated_s, 0.0))
    inflated = np.where(saturated | facts.holds_gil, inflated, 0.0)
    if means.input_alone_s is None:
        return inflated, zero
    expected = np.maximum(means.input_alone_s - means.alone_s, 0.0)
    delayed = np.where(saturated, np.clip(waited - expected, 0.0, waited), 0.0)
    if means.input_cpu_s is not None:
        # An input that sleeps is late for itself.
        delayed = np.minimum(delayed, np.maximum(means.input_cpu_s - inflated, 0.0))
    return inflated, delayed


def unexplained(means: Means, parts: Mapping[str, FloatArray]) -> FloatArray | None:
    """Seconds by which the step is slower beside its input than alone, for no reason that is known.

    What contention explains is taken out, and what the step would have to wait for its input anyway. ``None`` where the
    step alone was not measured.
    """
    if means.alone_s is None:
        return None
    pace = means.alone_s if means.input_alone_s is None else np.maximum(means.alone_s, means.input_alone_s)
    lost = np.minimum(means.step_s - means.alone_s, means.wait_s + means.step_s - pace)
    return np.asarray(np.clip(lost - parts["compile"] - parts["contention"], 0.0, None))


def cores_wanted(means: Means, facts: StepFacts) -> FloatArray | None:
    """Processor time that input and step take together, over what the processors give in the time of the slower one.

    From 1 on they cannot run at once without one being late for it. Unlike the share of the processors that is busy it
    does not rise because neighbours are: what they take of the step alone (``lost_share``) is taken out of its time.
    ``None`` where it was not measured.
    """
    if means.alone_s is None or means.cpu_s is None or not facts.allowed_cpus:
        return None
    pace = means.alone_s if means.input_alone_s is None else np.maximum(means.alone_s, means.input_alone_s)
    return means.cpu_s / np.maximum(pace * (1 - facts.lost_share) * facts.allowed_cpus, 1e-12)


def _paced_by_input(means: Means, contention: FloatArray) -> FloatArray:
    """The part of what looks like contention that is the input's: without any, the slower of the two sets the pace.

    A step that runs slowly while it would have to wait for the next batch anyway loses nothing by that.
    """
    if means.input_alone_s is None or means.alone_s is None:
        return np.zeros_like(contention)
    lost = np.maximum(means.wall_s - np.maximum(means.input_alone_s, means.alone_s), 0.0)
    return np.where(means.input_alone_s > means.alone_s, np.maximum(contention - lost, 0.0), 0.0)


def _dispatch(means: Means, facts: StepFacts, host: FloatArray) -> FloatArray:
    """Seconds that compiling the step would save, or the least cost of launching its ops where not measured."""
    if not facts.eager:
        return np.zeros_like(host)
    if means.compiled_gain_s is None:
        return np.full_like(host, facts.dispatch_floor_s)
    return np.maximum(means.compiled_gain_s - host, 0.0)


_MOSTLY = 0.5  # Share of the batches that have the usual size, at least, where one can speak of a usual size


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

    A ``shape_id`` has one meaning in all segments, which are of one trial; its text is in ``shapes``, as far as it was
    kept.
    """
    whole = _whole(segments, "shape_id")
    if not whole:
        return []
    rows, lost_s = _joined(whole)
    found = []
    for shape in np.unique(rows.shape_id).tolist():
        own = rows.shape_id == shape
        clean = rows.step_s[own & ~rows.compiling]
        cost = ShapeCost(
            shape_id=shape,
            shape=shapes[shape] if shape < len(shapes) else f"shape {shape}",
            steps=int(own.sum()),
            traces=int(rows.traces[own].sum()),
            trace_s=float(rows.trace_s[own].sum()),
            compiles=int(rows.xla_compiles[own].sum()),
            xla_s=float(rows.xla_s[own].sum()),
            lost_s=float(lost_s[own].sum()),
            step_s=float(np.median(clean)) if len(clean) else None,
        )
        found.append(cost)
    return found


def partial_batches(segments: Sequence[Segment]) -> PartialBatch | None:
    """Effect of an epoch's smaller last batch on the step; ``None`` where there is none.

    A smaller batch is a last one where the next row begins another epoch (or there is none), each time that it comes:
    batches by tokens or by buckets vary in the middle of an epoch, and are something else.
    """
    whole = _whole(segments, "batch_size")
    if not whole:
        return None
    rows, lost_s = _joined(whole)
    usual, times = Counter(rows.batch_size.tolist()).most_common(1)[0]
    smaller = rows.batch_size < usual
    last = np.concatenate([np.append(np.diff(one.epoch) != 0, True) for one in whole])
    if times < _MOSTLY * len(rows) or (rows.batch_size > usual).any() or not smaller.any() or (smaller & ~last).any():
        return None
    return PartialBatch(
        size=int(rows.batch_size[smaller].min()),
        usual=usual,
        steps=int(smaller.sum()),
        traces=int(rows.traces[smaller].sum()),
        compiles=int(rows.xla_compiles[smaller].sum()),
        lost_s=float(lost_s[smaller].sum()),
    )


def _whole(segments: Sequence[Segment], column: str) -> list[Steps]:
    """All rows of the segments with a step that have a column, their warm-up too."""
    own = [one for one in segments if one.steps and one.name != "input_only" and column in one.columns]
    return [steps_of(segment.model_copy(update={"warmup_steps": 0})) for segment in own]


def _joined(whole: Sequence[Steps]) -> tuple[Steps, FloatArray]:
    """The rows of all segments, and what of each went to tracing and compilation beside the others of its segment."""
    rows = Steps({name: np.concatenate([one.columns[name] for one in whole]) for name in whole[0].columns})
    return rows, np.concatenate([one.compile_s for one in whole])
