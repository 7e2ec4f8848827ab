"""A pipeline and its step as the model takes them, and what fixes of the pipeline would give: alone and together.

Pure. The costs are those of the pipeline as it was read, scaled to the pace at which it was measured; a fix is an edit
of its record, so what it would give is known before it is tried, and where it was tried the measurement stands beside
it. Besides the rates of the stages, two things that cost a step are taken from its measured waits: beginning the
dataset anew, and an input that comes in bursts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from xttsbench.analysis.steps import Steps, measured
from xttsbench.evidence import Compared, Evidence, allowed_cpus
from xttsbench.evidence.pipeline import Bursts, bursts, bytes_of, consumer, lost_to_bursts_s, machine, pipeline_pace
from xttsbench.fixes.calls import reset_autotune, settled
from xttsbench.fixes.prefetch import longer_name
from xttsbench.fixes.registry import candidates
from xttsbench.fixes.spec import WORTH, Candidate, Setting, each
from xttsbench.records.base import Estimate, Record
from xttsbench.records.fix import Fix, FixSet
from xttsbench.records.pipeline import Pipeline, PipelineOp, Prediction, PythonFunction
from xttsbench.throughput.pace import STEP, Consumer, Stage, pace
from xttsbench.throughput.threads import inputs_of

AS_IT_IS: Final = "as it is"
COSTS_NOTHING: Final = "input costs nothing"
_ANEW: Final = " and the beginning of each epoch"  # where that takes more of a step than all rates
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
    beside_s = _restart_s(evidence) + lost_to_bursts_s(uneven, pipeline, cpus)
    as_read_s = given.period_s + beside_s
    off = _off(as_read_s, wall_s)
    if wall_s is not None and off is None:
        pipeline = as_measured(pipeline, step, replace(evidence, wall_s=wall_s), beside_s)
        evidence, given = replace(evidence, pipeline=pipeline), pipeline_pace(pipeline, step, evidence)
    model = Model(evidence, step, given.period_s + beside_s, given.limited_by, uneven)
    buffer = uneven.enough if uneven else None
    known = candidates(Setting(pipeline, cpus, evidence.environment, step.alone_s or None, buffer))
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
        measured_s.append((bare, alone.estimate - _restart_s(evidence)))
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
    anew_s = _restart_s(model.evidence) * _left_of_restart(model.pipeline, changed, row.fixes)
    period_s = found.period_s + anew_s + lost_to_bursts_s(model.bursts, changed, allowed_cpus(model.evidence))
    by = found.limited_by + (_ANEW if 2 * anew_s > period_s else "")
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


def _restart_s(evidence: Evidence) -> float:
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


def per_s(time_s: Estimate | None) -> Estimate | None:
    """Seconds for one as a rate; the ends of the interval change places."""
    if time_s is None or time_s.low <= 0 or time_s.estimate <= 0:
        return None
    return Estimate(estimate=1 / time_s.estimate, low=1 / time_s.high, high=1 / time_s.low)


def predictions(
    evidence: Evidence, *, wall: Estimate | None = None, alone: Estimate | None = None
) -> tuple[Prediction, ...]:
    """The model's predictions for the pipeline of the evidence; empty where no pipeline was read.

    Args:
        evidence: with the pipeline and the trials of the main kind.
        wall: mean seconds of a step of the target as it is, where that was measured.
        alone: mean seconds of the step alone, where that was measured.
    """
    pipeline = evidence.pipeline
    if pipeline is None:
        return ()
    alone_s = alone.estimate if alone is not None else None
    ceiling = _ceiling(evidence, consumer(evidence, alone_s), alone)
    as_it_is = Prediction(name=AS_IT_IS, batches_per_s=None, measured_per_s=per_s(wall))
    if not any(op.cost_s for op in pipeline.ops):
        why_not = pipeline.costs_from or pipeline.unserialisable or "no costs were read"
        return (as_it_is.model_copy(update={"why_not": why_not}), ceiling)
    said = modelled(evidence, wall_s=wall.estimate if wall is not None else None, alone_s=alone_s)
    if said is None:
        return ()
    by = said.model.limited_by + (_ANEW if 2 * _restart_s(evidence) > said.model.period_s else "")
    told = {"batches_per_s": 1 / said.as_read_s, "speedup": 1.0, "limited_by": by}
    rows = [as_it_is.model_copy(update={**told, "why_not": said.off})]
    if said.off is None and ceiling.batches_per_s is not None:
        most = evidence.max_speedups.get("input")  # of the measured step, as the verdict has it
        free = most.estimate if most is not None else ceiling.batches_per_s * said.model.period_s
        ceiling = ceiling.model_copy(update={"speedup": free})
    for row in (*said.rows, *said.combined, ceiling):
        speedup = evidence.within_losses(row.speedup) if said.off is None else None
        rows.append(row.model_copy(update={"speedup": speedup, "why_not": row.why_not or said.off}))
    return tuple(rows)


def beside(rows: Sequence[Prediction], tried: Mapping[str, Compared]) -> tuple[Prediction, ...]:
    """The predictions with what was measured: of a fix the target's own rate, times the speed-up in paired rounds."""
    given = next((row.measured_per_s for row in rows if row.name == AS_IT_IS), None)
    paired = {name: one.speedup.times(given.estimate) for name, one in tried.items() if given and one.speedup}
    rates = {name: per_s(one.time_s) for name, one in tried.items()} | paired
    return tuple(
        row.model_copy(update={"measured_per_s": rates[row.name]}) if row.name in rates else row for row in rows
    )


def unmeasured(rows: Sequence[Prediction]) -> dict[str, str]:
    """Path in the report -> reason, for every number of the predictions that is not there."""
    found = {}
    for index, row in enumerate(rows):
        for name in ("batches_per_s", "speedup"):
            if getattr(row, name) is None:
                found[f"predictions.{index}.{name}"] = row.why_not or "the model says nothing of the target as it is"
        if row.measured_per_s is None:
            found[f"predictions.{index}.measured_per_s"] = "not tried in this run"
    return found


def _ceiling(evidence: Evidence, step: Consumer, alone: Estimate | None) -> Prediction:
    """The step alone, which no fix of the input can beat."""
    found = pace(Stage(), step, machine(evidence.pipeline or Pipeline(), evidence))
    why_not = "the step took no time" if found.period_s <= 0 else None
    if not evidence.has_step and not evidence.emulated:
        why_not = "there is no step to set the pace"
    if why_not is not None:
        return Prediction(name=COSTS_NOTHING, batches_per_s=None, why_not=why_not)
    return Prediction(
        name=COSTS_NOTHING,
        batches_per_s=1 / found.period_s,
        limited_by=found.limited_by,
        measured_per_s=per_s(alone),
    )


def predict_speedup(evidence: Evidence, fixes: FixSet) -> float | None:
    """The speed-up of fixes of the input, applied in turn; ``None`` where the model cannot say, or is not believed."""
    found = _known(evidence, fixes)
    return predict(*found).speedup if found is not None else None


def longer_buffer(evidence: Evidence, fixes: FixSet, steps: Steps) -> Fix | None:
    """The fix that keeps more batches ready, where beside some fixes the input still comes in bursts; else ``None``.

    Only once a pipeline is fast enough on the whole does it show that it is not so at every moment: files that are
    read ahead are there all at once, and the first of the next ones are not.

    Args:
        evidence: as above, of the target as it is.
        fixes: in the order in which they are applied.
        steps: of the target with these fixes.
    """
    found = _known(evidence, fixes)
    if found is None or "buffer" in fixes or "prefetch" in fixes:
        return None
    model, parts = found
    pipeline = with_fixes(model, parts)
    if pipeline is None:
        return None
    input_s = pipeline_pace(pipeline, Consumer(), model.evidence).period_s
    uneven = bursts(replace(model.evidence, steps=steps, pipeline=pipeline), pipeline, input_s)
    if uneven is None or uneven.enough is None:
        return None
    return Fix.parse(longer_name(pipeline, uneven.enough))


def _known(evidence: Evidence, fixes: FixSet) -> tuple[Model, list[Candidate]] | None:
    """The model and the candidates of these names, where it knows and is believed."""
    said_of = modelled(evidence, wall_s=evidence.wall_s, alone_s=step_alone_s(evidence))
    if said_of is None or said_of.off is not None:
        return None
    by_name = {one.name: one for one in said_of.known}
    return (said_of.model, [by_name[name] for name in fixes.names]) if by_name.keys() >= set(fixes.names) else None


def step_alone_s(evidence: Evidence) -> float | None:
    """Mean step alone: as the predictions were given it, or as the trials of the main kind measured it."""
    ceiling = next((row for row in evidence.predictions if row.name == COSTS_NOTHING), None)
    if ceiling is not None and ceiling.measured_per_s is not None:
        return 1 / ceiling.measured_per_s.estimate
    alone = [steps for trial in evidence.ladder if (steps := measured(trial, "step_only")) is not None]
    times_s = [float(steps.working_s.mean()) for steps in alone if len(steps)]
    return sum(times_s) / len(times_s) if times_s else None


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
