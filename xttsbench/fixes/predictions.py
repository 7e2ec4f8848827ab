"""What the model says of the target: as it is, with each candidate fix, and if its input cost nothing.

Pure. The costs are those of the pipeline as it was read; a fix is an edit of its record, so what it would give is
known before it is tried, and where it was tried the measurement stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.stages import consumer, machine
from xttsbench.fixes.model import modelled, per_s
from xttsbench.records.base import Estimate
from xttsbench.records.pipeline import Pipeline, Prediction
from xttsbench.throughput.pace import Consumer, Stage, pace

AS_IT_IS: Final = "as it is"
COSTS_NOTHING: Final = "input costs nothing"


def predictions(
    evidence: Evidence, *, wall: Estimate | None = None, alone: Estimate | None = None
) -> tuple[Prediction, ...]:
    """The model's predictions for the pipeline of the evidence; empty where no pipeline was read.

    Args:
        evidence: with the pipeline, the trials of the main rung, and the fixes that were tried.
        wall: mean seconds of a step of the target as it is, where that was measured.
        alone: mean seconds of the step alone, where that was measured.
    """
    pipeline = evidence.pipeline
    if pipeline is None:
        return ()
    alone_s = alone.estimate if alone is not None else None
    ceiling = _ceiling(evidence, consumer(evidence, alone_s), alone)
    if not any(op.cost_s for op in pipeline.ops):
        why = pipeline.costs_from or pipeline.unserialisable or "no costs were read"
        missing = Prediction(name=AS_IT_IS, batches_per_s=None, measured_per_s=per_s(wall), why_not=why)
        return (missing, ceiling)
    said = modelled(evidence, wall_s=wall.estimate if wall is not None else None, alone_s=alone_s)
    if said is None:
        return ()
    as_it_is = Prediction(
        name=AS_IT_IS,
        batches_per_s=1 / said.model.period_s,
        speedup=1.0,
        limited_by=said.model.limited_by,
        measured_per_s=per_s(wall),
        why_not=said.off,
    )
    if said.off is not None:
        return (
            as_it_is,
            *(_unrated(row, said.off) for row in (*said.rows, *said.together)),
            _unrated(ceiling, said.off),
        )
    if ceiling.batches_per_s is not None:
        ceiling = ceiling.model_copy(update={"speedup": ceiling.batches_per_s * said.model.period_s})
    return (as_it_is, *said.rows, *said.together, ceiling)


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


def _unrated(row: Prediction, why: str) -> Prediction:
    return row.model_copy(update={"speedup": None, "why_not": row.why_not or why})


def _ceiling(evidence: Evidence, step: Consumer, alone: Estimate | None) -> Prediction:
    """The step alone, which no fix of the input can beat."""
    if not evidence.has_step and not evidence.emulated:
        return Prediction(name=COSTS_NOTHING, batches_per_s=None, why_not="there is no step to set the pace")
    own_machine = machine(evidence.pipeline or Pipeline(), evidence)
    found = pace(Stage(), step, own_machine)
    if found.period_s <= 0:
        return Prediction(name=COSTS_NOTHING, batches_per_s=None, why_not="the step took no time")
    return Prediction(
        name=COSTS_NOTHING,
        batches_per_s=1 / found.period_s,
        limited_by=found.limited_by,
        measured_per_s=per_s(alone),
    )
