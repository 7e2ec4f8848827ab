"""Predictions of the model for a run's evidence: the rows of its report, and what fixes give that are named.

Pure. Where a fix was tried, the measurement stands beside what was predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from xttsbench.analysis.steps import Steps, measured
from xttsbench.evidence import Compared, Evidence
from xttsbench.evidence.pipeline import bursts, consumer, machine, pipeline_pace
from xttsbench.fixes.model import Model, limits, modelled, predict, restart_s, with_fixes
from xttsbench.fixes.prefetch import longer_name
from xttsbench.fixes.spec import Candidate
from xttsbench.records.base import Estimate
from xttsbench.records.fix import Fix, FixSet
from xttsbench.records.pipeline import Pipeline, Prediction
from xttsbench.throughput.pace import Consumer, Thread, pace

AS_IT_IS: Final = "as it is"
COSTS_NOTHING: Final = "input costs nothing"


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
    by = limits(said.model.limited_by, restart_s(evidence), said.model.period_s)
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
    found = pace(Thread(), step, machine(evidence.pipeline or Pipeline(), evidence))
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
