"""Fixes of the training step that are worth verifying: one graph, XLA, and a few shapes in place of many.

Pure. What a mode gives the step alone was measured; what that gives the whole is the model's, since a faster step waits
longer for the same input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.stages import pipeline_pace
from xttsbench.evidence.step import heaviest_line, place_of, whole_step
from xttsbench.fixes.model import Model
from xttsbench.records.base import Estimate, Location

GRAPH: Final = "step:graph"
XLA: Final = "step:xla"
BUCKETS: Final = "step:buckets"
_LOST: Final = 0.10
"""Share of the step that launching its ops one by one has to take for one graph to be tried unmeasured."""
_COMPUTES: Final = 0.5
"""Share that computing has to take for XLA to be tried unmeasured."""


@dataclass(frozen=True)
class StepFix:
    """A fix of the step: what it gives the whole, as far as that is known, and what is against it."""

    name: str
    speedup: float | None
    place: Location
    why_not: str | None = None


def step_fixes(evidence: Evidence, model: Model | None) -> Iterator[StepFix]:
    """The fixes that apply to the step as it runs now.

    Args:
        evidence: with the modes that were measured.
        model: of the pipeline and the step, where there is one that can be believed.
    """
    if not evidence.has_step:
        return
    wanted = {"eager": ("graph", "xla"), "graph": ("xla",)}.get(evidence.given_mode, ())
    launched = place_of(heaviest_line(evidence, ("tensorflow", "function", "python")))
    for mode in wanted:
        name = GRAPH if mode == "graph" else XLA
        tried = evidence.modes.get(mode)
        if tried is None:
            part = "dispatch" if mode == "graph" else "compute"
            spent = evidence.bottleneck == part or evidence.share(part) >= (_LOST if mode == "graph" else _COMPUTES)
            why_not = None if spent else f"{part} takes {evidence.share(part):.0%} of the step"
            yield StepFix(name, None, launched, why_not)
        elif tried.speedup is None:
            yield StepFix(name, None, launched, tried.cause or f"the step did not run that way: {tried.status}")
        else:
            ratio = tried.speedup.estimate
            yield StepFix(name, _whole(evidence, model, ratio), launched)
    lost = evidence.share("compile")
    steps = evidence.steps
    shapes = {trace.reason for trace in evidence.traces} & {"shape"}
    again = steps is not None and int(steps.xla_compiles.sum() + steps.traces.sum()) > 0
    varied = steps is not None and len(set(steps.shape_id.tolist())) > 1
    if again and (shapes or varied):
        ceiling = evidence.max_speedups.get("compile")
        left = ceiling.estimate if ceiling is not None and lost > 0 else None
        why = None if left is not None else "compiling again takes no time that was seen"
        yield StepFix(BUCKETS, left, place_of(heaviest_line(evidence, ("function", "tensorflow"))), why)


def _whole(evidence: Evidence, model: Model | None, ratio: float) -> float | None:
    """The speed-up of the whole where only the step gets faster: of the model, and at most what the input allows."""
    whole = whole_step(evidence, Estimate(estimate=ratio, low=ratio, high=ratio))
    if whole is None:
        return None
    found = whole.estimate
    if model is not None:
        found = min(found, model.period_s / _period_s(model, ratio))
    if evidence.input_alone_s is not None and evidence.wall_s:
        found = min(found, evidence.wall_s / min(evidence.input_alone_s.estimate, evidence.wall_s))
    return found


def faster_step(model: Model, ratio: float) -> Model:
    """The model with a step that runs so many times as fast; its Python goes with the ops that it launched."""
    step = model.step
    scaled = replace(step, alone_s=step.alone_s / ratio, lock_s=step.lock_s / ratio, cpu_s=step.cpu_s / ratio)
    return model.with_step(scaled)


def _period_s(model: Model, ratio: float) -> float:
    faster = faster_step(model, ratio)
    extra_s = model.period_s - pipeline_pace(model.pipeline, model.step, model.evidence).period_s
    return pipeline_pace(faster.pipeline, faster.step, faster.evidence).period_s + max(extra_s, 0.0)
