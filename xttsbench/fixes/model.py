"""A pipeline and its step as the model takes them, and what fixes of the pipeline would give: alone and together.

Pure. The costs are those of the pipeline as it was read, scaled to the pace at which it was measured; a fix is an edit
of its record, so what it would give is known before it is tried. Besides the rates of the stages, two things that cost
a step are taken from its measured waits: beginning the dataset anew, and an input that comes in bursts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from xttsbench.evidence import Evidence, allowed_cpus
from xttsbench.evidence.pipeline import Bursts, bursts, bytes_of, consumer, lost_to_bursts_s, pipeline_pace
from xttsbench.fixes.calls import reset_autotune, settled
from xttsbench.fixes.registry import candidates
from xttsbench.fixes.service import SERVICE
from xttsbench.fixes.spec import WORTH, Candidate, Setting, each
from xttsbench.records.base import Record
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Pipeline, PipelineOp, Prediction, PythonFunction
from xttsbench.throughput.pace import STEP, Consumer
from xttsbench.throughput.threads import inputs_of

_FAR: Final = 2.0  # a model that is this many times off what was measured is not believed
_HALVINGS: Final = 30
_MOST: Final = 3  # fixes in one combination
_SHOWN: Final = 3
"""Combinations that are named, of those that leave the data alone and of those that have to be run to know it."""
_AS_GOOD: Final = 0.98  # of caches that give as much as this of the best, the one that holds least is taken


@dataclass(frozen=True)
class Model:
    """A pipeline and its step as the model takes them."""

    evidence: Evidence  # with the pipeline's costs settled, and scaled to what was measured of the target as it is
    step: Consumer
    period_s: float  # of the target as it is; as measured where the costs could be scaled to that
    limited_by: str  # what sets that
    bursts: Bursts | None  # how its batches vary, where that holds the step up

    @property
    def pipeline(self) -> Pipeline:
        """With settled costs."""
        return self.evidence.pipeline or Pipeline()


@dataclass(frozen=True)
class Modelled:
    """Predictions of the model for a target."""

    model: Model  # with which more can be asked
    known: tuple[Candidate, ...]  # the candidates, of several caches only the best
    rows: tuple[Prediction, ...]  # a prediction for each of them
    combined: tuple[Prediction, ...]  # combinations worth more than their parts
    as_read_s: float  # seconds of a step of the target as it is, by the costs as they were read
    off: str | None  # why the model is not believed, where it is not


def modelled(evidence: Evidence, *, wall_s: float | None, alone_s: float | None) -> Modelled | None:
    """The model of the evidence's pipeline with its candidates; ``None`` where nothing was priced.

    Args:
        evidence: with a pipeline.
        wall_s: mean step of the target as it is, where that was measured.
        alone_s: mean step alone, where that was measured.
    """
    if evidence.pipeline is None or not any(op.cost_s for op in evidence.pipeline.ops):
        return None
    cpus, step = allowed_cpus(evidence), consumer(evidence, alone_s)
    pipeline = settled(infer_cardinality(evidence), cpus)
    evidence = replace(evidence, pipeline=pipeline)
    given = pipeline_pace(pipeline, step, evidence)
    if given.period_s <= 0:
        return None
    alone = evidence.input_alone_s
    input_s = alone.estimate if alone is not None else pipeline_pace(pipeline, Consumer(), evidence).period_s
    uneven = bursts(evidence, pipeline, input_s)
    beside_s = restart_s(evidence) + lost_to_bursts_s(uneven, pipeline, cpus)
    as_read_s = given.period_s + beside_s
    off = _off(as_read_s, wall_s)
    if wall_s is not None and off is None:
        pipeline = as_measured(pipeline, step, replace(evidence, wall_s=wall_s), beside_s)
        evidence, given = replace(evidence, pipeline=pipeline), pipeline_pace(pipeline, step, evidence)
    model = Model(evidence, step, given.period_s + beside_s, given.limited_by, uneven)
    buffer = uneven.enough if uneven else None
    goal_s, workers = step.alone_s or None, workers_asked(evidence)
    known = candidates(Setting(pipeline, cpus, evidence.environment, goal_s, workers, buffer))
    rows = {one.name: predict(model, (one,)) for one in known}
    best = _best_cache([one for one in known if one.kind == "cache"], rows, believed=off is None)
    known = tuple(one for one in known if one.kind != "cache" or one is best)
    alone_rows = tuple(rows[one.name] for one in known)
    return Modelled(model, known, alone_rows, tuple(combine(model, known, alone_rows)), as_read_s, off)


def as_measured(pipeline: Pipeline, step: Consumer, evidence: Evidence, beside_s: float = 0.0) -> Pipeline:
    """The pipeline with all of its costs times one factor, with which it takes as long as was measured.

    Costs are read op by op, in runs of their own, and the pipeline that is measured is slower or faster than their sum:
    of what a fix takes away, and of what it leaves, as much more or less is there. It was measured twice, with the step
    and by itself, and the factor is the one that is as far above the one as below the other (the geometric mean). Where
    the step sets the pace it tells nothing of the input; where no factor within reason explains what was measured, the
    costs are left as they were read.

    Args:
        pipeline: with costs.
        step: the consumer.
        evidence: with what a step, and the input alone, were measured to take.
        beside_s: seconds of a measured step that no rate explains.
    """
    paced = pipeline_pace(pipeline, step, evidence).limited_by != STEP
    alone, bare = evidence.input_alone_s, Consumer(handoff_s=evidence.facts.handoff_s)
    measured_s: list[tuple[Consumer, float]] = []
    if evidence.wall_s is not None and paced:
        measured_s.append((step, evidence.wall_s - beside_s))
    if alone is not None and step.alone_s:
        measured_s.append((bare, alone.estimate - restart_s(evidence)))
    if not measured_s or any(seconds <= 0 for _, seconds in measured_s):
        return pipeline

    def above(factor: float) -> float:
        """Bias of the model with that factor: the sum of log(modelled time / measured time)."""
        given = scaled(pipeline, factor)
        return sum(math.log(pipeline_pace(given, by, evidence).period_s / seconds) for by, seconds in measured_s)

    least, most = 1 / _FAR, _FAR
    if not above(least) < 0 < above(most):
        return pipeline
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if above(middle) < 0 else (least, middle)
    return scaled(pipeline, (least + most) / 2)


def scaled(pipeline: Pipeline, factor: float) -> Pipeline:
    """A pipeline whose ops and Python functions take so many times as long."""

    def times(record: Record, *names: str) -> dict[str, float]:
        return {name: value * factor for name in names if (value := getattr(record, name)) is not None}

    def of_function(one: PythonFunction) -> dict[str, object]:
        native = one.native and one.native.model_copy(update=times(one.native, "call_time_s", "call_cpu_s"))
        parts = one.parts and one.parts.model_copy(update=times(one.parts, "head_s"))
        return {**times(one, "call_time_s", "call_cpu_s", "around_call_s"), "native": native, "parts": parts}

    return each(pipeline, lambda op: times(op, "cost_s", "cpu_s"), of_function)


def predict(model: Model, fixes: Sequence[Candidate]) -> Prediction:
    """Predicts some fixes together, applied in the order in which they are given."""
    row = Prediction(
        name=str(FixSet.of(fix.name for fix in fixes)),
        fixes=tuple(fix.name for fix in fixes),
        batches_per_s=None,
        why_not=next(filter(None, (getattr(fix, of) for of in ("why_not", "hazard", "proof") for fix in fixes)), None),
    )
    changed = with_fixes(model, fixes)
    if changed is None:
        return row
    found = pipeline_pace(changed, model.step, model.evidence)
    if found.period_s <= 0:
        return row.model_copy(update={"why_not": row.why_not or "nothing that was priced would be left"})
    anew_s = restart_s(model.evidence) * _left_of_restart(model.pipeline, changed, row.fixes)
    period_s = found.period_s + anew_s + lost_to_bursts_s(model.bursts, changed, allowed_cpus(model.evidence))
    by = limits(found.limited_by, anew_s, period_s)
    told = {"batches_per_s": 1 / period_s, "speedup": model.period_s / period_s, "limited_by": by}
    return row.model_copy(update=told)


def with_fixes(model: Model, fixes: Sequence[Candidate]) -> Pipeline | None:
    """The pipeline with some fixes, in the order in which they are given; ``None`` where one cannot be judged."""
    changed = reset_autotune(model.pipeline, model.limited_by)
    for fix in fixes:
        if fix.edit is None:
            return None
        changed = fix.edit(changed)
    return changed


def workers_asked(evidence: Evidence) -> int | None:
    """Workers of the tf.data service that the user asked for."""
    return next((fix.number for fix in FixSet.of(evidence.asked) if fix.kind == SERVICE.name), None)


def infer_cardinality(evidence: Evidence) -> Pipeline:
    """The pipeline with sizes and lengths that TensorFlow does not know and the steps show.

    The last ops yield the batches that were kept; a generator has the elements that were counted; and where the dataset
    was begun anew twice, an epoch is what lies in between, of each op as many elements as its batches take.
    """
    pipeline = evidence.pipeline or Pipeline()
    batches = _batches_in_an_epoch(evidence)
    counted = {one.token: one.elements for one in pipeline.python_functions if one.elements is not None}
    once = {op.name for op in pipeline.ops if op.cardinality == 1}

    def told(op: PipelineOp) -> dict[str, object]:
        update: dict[str, object] = {} if op.element_bytes is not None else {"element_bytes": bytes_of(evidence, op)}
        own = counted.keys() & set(op.python_functions) if op.op.startswith("FlatMap") else set[str]()
        if op.cardinality == -2 and len(own) == 1 and once.issuperset(inputs_of(op, pipeline)):
            update["cardinality"] = counted[own.pop()]
        elif op.cardinality == -2 and batches is not None and op.elements_per_batch:
            update["cardinality"] = max(round(batches * op.elements_per_batch), 1)
        return update

    return each(pipeline, told)


def _batches_in_an_epoch(evidence: Evidence) -> float | None:
    """Steps from one beginning of the dataset to the next; ``None`` where no epoch was seen whole."""
    steps = evidence.steps
    if steps is None or not len(steps):
        return None
    begins = np.flatnonzero(np.diff(steps.epoch) > 0)
    return float(np.diff(begins).mean()) if len(begins) > 1 else None


def _best_cache(places: Sequence[Candidate], rows: dict[str, Prediction], *, believed: bool = True) -> Candidate | None:
    """Best place for a cache: the least held bytes among places whose rate is near the highest; ``None`` for none.

    Where the rates are not believed it is the place that spares most, the first.
    """
    if not places:
        return None
    rates = {one.name: rows[one.name].batches_per_s or 0.0 for one in places}
    # One that the data forbid is named only where there is no other.
    usable = [one for one in places if one.why_not is None or one.edit is None] or list(places)
    if not believed:
        return usable[0]
    most = max(rates[one.name] for one in usable)
    return min((one for one in usable if rates[one.name] >= _AS_GOOD * most), key=lambda one: one.held_bytes)


def _off(period_s: float, wall_s: float | None) -> str | None:
    """Reason to distrust a model that is far from the measured time of the same target; ``None`` where it is near."""
    if wall_s is None or wall_s <= 0 or 1 / _FAR <= period_s / wall_s <= _FAR:
        return None
    times = max(period_s / wall_s, wall_s / period_s)
    sentence = f"the model is {times:.1f} times off what was measured of the target as it is"
    return f"{sentence}, so that what it says of fixes is not relied on"


def restart_s(evidence: Evidence) -> float:
    """Seconds per step for beginning the dataset anew, beyond a usual wait, as they were measured.

    Stages have rates, and know nothing of an epoch's end.
    """
    steps = evidence.steps
    if steps is None or not len(steps):
        return 0.0
    first = np.diff(steps.epoch, prepend=steps.epoch[0]) > 0
    if not first.any() or first.all():
        return 0.0
    excess_s = float(steps.wait_s[first].mean() - np.median(steps.wait_s[~first]))
    return max(excess_s, 0.0) * float(first.mean())


def limits(by: str, anew_s: float, period_s: float) -> str:
    """Limit of the pace, in words; with the beginning of each epoch where that takes more of a step than all rates."""
    return f"{by} and the beginning of each epoch" if 2 * anew_s > period_s else by


def _left_of_restart(before: Pipeline, after: Pipeline, fixes: Sequence[str]) -> float:
    """Share of beginning the dataset anew that is left: a cache spares the rest."""
    if "cache" not in FixSet.of(fixes):
        return 1.0
    was_s, is_s = (sum(op.cost_s or 0.0 for op in one.ops) for one in (before, after))
    return min(is_s / was_s, 1.0) if was_s > 0 else 0.0


def combine(model: Model, known: Sequence[Candidate], alone: Sequence[Prediction]) -> list[Prediction]:
    """Combinations worth more than any part of them, the fastest first.

    All of them leave the data as they are, as far as it can be told without running them.
    """
    sound = [fix for fix in known if fix.edit and not fix.hazard and fix.why_not is None]
    rates = {row.fixes: row.batches_per_s or 0.0 for row in alone}
    sure: list[Prediction] = []
    to_prove: list[Prediction] = []
    for size in range(2, min(_MOST, len(sound)) + 1):
        for fixes in combinations(sound, size):
            row = predict(model, fixes)
            rates[row.fixes] = row.batches_per_s or 0.0
            parts = [rates[part] for less in range(1, size) for part in combinations(row.fixes, less)]
            if rates[row.fixes] > WORTH * max(1 / model.period_s, *parts):
                (to_prove if any(fix.proof for fix in fixes) else sure).append(row)

    def fastest(rows: Sequence[Prediction]) -> list[Prediction]:
        return sorted(rows, key=lambda row: -rates[row.fixes])

    return fastest([*fastest(sure)[:_SHOWN], *fastest(to_prove)[:_SHOWN]])


def with_faster_step(model: Model, ratio: float) -> Model:
    """The model with a step that runs so many times as fast; its Python goes with the ops that it launched."""
    step = model.step
    faster = replace(step, alone_s=step.alone_s / ratio, lock_s=step.lock_s / ratio, cpu_s=step.cpu_s / ratio)
    return replace(model, step=faster)


def period_with_faster_step_s(model: Model, ratio: float) -> float:
    """Seconds of the target's steps where the step alone runs so many times as fast."""
    extra_s = model.period_s - pipeline_pace(model.pipeline, model.step, model.evidence).period_s
    faster = with_faster_step(model, ratio)
    return pipeline_pace(faster.pipeline, faster.step, faster.evidence).period_s + max(extra_s, 0.0)
