"""What the model says of the target: as it is, with each candidate fix, and if its input cost nothing.

Pure. The costs are those of the pipeline as it was read; a fix is an edit of its record, so what it would give is
known before it is tried, and where it was tried the measurement stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np

from xttsbench.analysis.prediction import Consumer, Stage, pace
from xttsbench.records.base import Estimate
from xttsbench.records.pipeline import Pipeline
from xttsbench.records.prediction import Prediction
from xttsbench.rules.candidates import Candidate, candidates, retuned, settled
from xttsbench.rules.evidence import Evidence, allowed_cpus
from xttsbench.rules.stages import consumer, machine, pipeline_pace

AS_IT_IS: Final = "as it is"
COSTS_NOTHING: Final = "input costs nothing"
_TOGETHER: Final = 1.05
"""Fixes are named together where they give this much more than any of them without the others."""
_FAR: Final = 2.0
"""A model that is this many times off what was measured is not believed."""
_MOST: Final = 3
"""Fixes in one combination."""
_SHOWN: Final = 3
"""Combinations that are named."""


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
    step = consumer(evidence, alone.estimate if alone is not None else None)
    ceiling = _ceiling(evidence, step, alone)
    if not any(op.cost_s for op in pipeline.ops):
        why = pipeline.costs_from or pipeline.unserialisable or "no costs were read"
        missing = Prediction(name=AS_IT_IS, batches_per_s=None, measured_per_s=_per_s(wall), why_not=why)
        return (missing, ceiling)
    evidence = replace(evidence, pipeline=settled(pipeline, allowed_cpus(evidence)))
    pipeline = evidence.pipeline or pipeline
    given = pipeline_pace(pipeline, step, evidence)
    if given.period_s <= 0:
        return ()
    given = replace(given, period_s=given.period_s + _restart_s(evidence, ()))
    known = candidates(pipeline, allowed_cpus(evidence), evidence.environment)
    rows = [_predicted(evidence, step, given.period_s, given.limited_by, (one,)) for one in known]
    together = _together(evidence, step, given.period_s, given.limited_by, known, rows)
    off = _off(given.period_s, wall)
    as_it_is = Prediction(
        name=AS_IT_IS,
        batches_per_s=1 / given.period_s,
        speedup=1.0,
        limited_by=given.limited_by,
        measured_per_s=_per_s(wall),
        why_not=off,
    )
    if off is not None:
        return (as_it_is, *(_unrated(row, off) for row in (*rows, *together)), _unrated(ceiling, off))
    if ceiling.batches_per_s is not None:
        ceiling = ceiling.model_copy(update={"speedup": ceiling.batches_per_s * given.period_s})
    return (as_it_is, *rows, *together, ceiling)


def _off(period_s: float, wall: Estimate | None) -> str | None:
    """What is wrong with a model that is far from what was measured of the same target, or ``None``."""
    if wall is None or wall.estimate <= 0 or 1 / _FAR <= period_s / wall.estimate <= _FAR:
        return None
    times = max(period_s / wall.estimate, wall.estimate / period_s)
    return (
        f"the model is {times:.1f} times off what was measured of the target as it is, "
        "so that what it says of fixes is not relied on"
    )


def _unrated(row: Prediction, why: str) -> Prediction:
    return row.model_copy(update={"speedup": None, "why_not": row.why_not or why})


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


def _predicted(
    evidence: Evidence, step: Consumer, given_s: float, limited_by: str, fixes: Sequence[Candidate]
) -> Prediction:
    name = " + ".join(fix.name for fix in fixes)
    why_not = next((fix.why_not for fix in fixes if fix.why_not), None)
    measured = _measured(evidence, name)
    names = tuple(fix.name for fix in fixes)
    changed = _changed(evidence.pipeline, limited_by, fixes)
    if changed is None:
        return Prediction(name=name, fixes=names, batches_per_s=None, measured_per_s=measured, why_not=why_not)
    found = pipeline_pace(changed, step, evidence)
    if found.period_s <= 0:
        why_not = why_not or "nothing that was priced would be left"
        return Prediction(name=name, fixes=names, batches_per_s=None, measured_per_s=measured, why_not=why_not)
    period_s = found.period_s + _restart_s(evidence, names)
    return Prediction(
        name=name,
        fixes=names,
        batches_per_s=1 / period_s,
        speedup=given_s / period_s,
        limited_by=found.limited_by,
        measured_per_s=measured,
        why_not=why_not,
    )


def _restart_s(evidence: Evidence, fixes: Sequence[str]) -> float:
    """Seconds per step for beginning the dataset anew, beyond a usual wait, as they were measured.

    Stages have rates, and know nothing of an epoch's end; what fills up again then comes from memory after a cache.
    """
    steps = evidence.steps
    if steps is None or not len(steps) or any(fix.startswith("cache@") for fix in fixes):
        return 0.0
    first = np.diff(steps.epoch, prepend=steps.epoch[0]) > 0
    if not first.any() or first.all():
        return 0.0
    excess_s = float(steps.wait_s[first].mean() - np.median(steps.wait_s[~first]))
    return max(excess_s, 0.0) * float(first.mean())


def _changed(pipeline: Pipeline | None, limited_by: str, fixes: Sequence[Candidate]) -> Pipeline | None:
    if pipeline is None:
        return None
    changed = retuned(pipeline, limited_by)
    for fix in fixes:
        if fix.edit is None:
            return None
        changed = fix.edit(changed)
    return changed


def _together(
    evidence: Evidence,
    step: Consumer,
    given_s: float,
    limited_by: str,
    known: Sequence[Candidate],
    alone: Sequence[Prediction],
) -> list[Prediction]:
    """Combinations worth more than any part of them, the fastest first; all of them leave the data as they are."""
    sound = [fix for fix in known if fix.edit is not None and fix.why_not is None]
    rates = {row.fixes: row.batches_per_s or 0.0 for row in alone}
    found: list[Prediction] = []
    for size in range(2, min(_MOST, len(sound)) + 1):
        for fixes in combinations(sound, size):
            row = _predicted(evidence, step, given_s, limited_by, fixes)
            rates[row.fixes] = row.batches_per_s or 0.0
            parts = [rates[part] for less in range(1, size) for part in combinations(row.fixes, less)]
            if (row.batches_per_s or 0.0) > _TOGETHER * max(1 / given_s, *parts):
                found.append(row)
    return sorted(found, key=lambda row: -(row.batches_per_s or 0.0))[:_SHOWN]


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
        measured_per_s=_per_s(alone),
    )


def _measured(evidence: Evidence, name: str) -> Estimate | None:
    fix = evidence.fixes.get(name)
    return _per_s(fix.time_s) if fix is not None else None


def _per_s(time_s: Estimate | None) -> Estimate | None:
    """Seconds for one as a rate; the ends of the interval change places."""
    if time_s is None or time_s.low <= 0 or time_s.estimate <= 0:
        return None
    return Estimate(estimate=1 / time_s.estimate, low=1 / time_s.high, high=1 / time_s.low)
