"""Verdict on a training run, from its steps. Pure.

Time between two steps (reports, checkpoints) is the host's; evaluations are in no step's time. What only experiments
can tell apart (how much slower a step is for the loader beside it, what launching its ops costs) is left unmeasured:
while a run goes on there is no ladder of trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from xttsbench.analysis.attribution import Means, StepFacts, attribute, verdicts
from xttsbench.analysis.pooling import Pooled, pool, ratio
from xttsbench.analysis.steps import measured, steady
from xttsbench.analysis.variation import oscillation
from xttsbench.comparison.figures import PROCESSOR
from xttsbench.diagnosis.bottleneck import OF_STEPS
from xttsbench.diagnosis.verdict import RunVerdict, unmeasured_verdict
from xttsbench.records.report import Attribution, Bottleneck, Oscillation, Variant, Verdict
from xttsbench.records.trial import TrialRecord

_NAMES: Final = ("wall_s", "wait_s", "step_s", "emulated_s", "compile_s", "outside_s")
_STATISTICS: Final = {name: of for name, of in OF_STEPS.items() if name in (*_NAMES, "median", "p95")}
_EXPERIMENT: Final = "it takes an experiment to tell apart: 'xttsbench diagnose'"
_EAGER: Final = (
    "the step is eager (--no-graph, for debugging), and what of it is launching of ops only an experiment tells; "
    "'xttsbench diagnose' makes it"
)


def train_verdict(trials: Sequence[TrialRecord], arm: Variant | None, *, mode: str) -> RunVerdict:
    """The verdict on all sessions together.

    Sessions without a step are left out; the configuration is ``None`` where none ended well.
    """
    found = [(trial, steady(rows)) for trial in trials if (rows := measured(trial, "as_is")) is not None]
    if not found:
        return _nothing(trials)
    columns = [{name: np.asarray(getattr(steps, name), float) for name in _NAMES} for _, (steps, _) in found]
    figures = pool(columns, _STATISTICS, np.random.default_rng(0))
    parts, wall = _parts({name: figures[name].entries for name in _NAMES}), figures["wall_s"]
    name: Bottleneck
    name, *drawn = verdicts(parts, wall.entries).tolist()
    confidence = drawn.count(name) / len(drawn)
    trial, (steps, state) = max(found, key=lambda one: len(one[1][0]))
    vector, missing = oscillation(steps.wall_s, np.concatenate([rows.wall_s for _, (rows, _) in found]))
    unmeasured = {f"oscillation.{key}": reason for key, reason in missing.items()}
    attribution: Attribution | None = Attribution(**{part: float(values[0]) for part, values in parts.items()})
    if mode == "eager" and name == "compute":
        name, confidence, attribution = "inconclusive", 0.0, None
        unmeasured["verdict.attribution_s"] = _EAGER
    else:
        unmeasured |= {f"verdict.attribution_s.{part}": _EXPERIMENT for part in ("dispatch", "transfer", "contention")}
    utilization, why = None, "no accelerator: the processor is the device"
    if arm is not None and arm.utilization_of != PROCESSOR:
        utilization, why = arm.utilization, "the driver gave no utilization samples during the steps"
    if utilization is None:
        unmeasured["verdict.accelerator_utilization"] = why
    said = Verdict(
        bottleneck=name,
        summary=_summary(name, figures, arm),
        confidence=confidence,
        step_time_s=wall.estimate(),
        step_time_median_s=figures["median"].estimate(),
        step_time_p95_s=figures["p95"].estimate(),
        input_wait_fraction=ratio(figures["wait_s"], wall),
        accelerator_utilization=utilization,
        attribution_s=attribution,
    )
    return RunVerdict(said, vector, trial, steps, state, unmeasured)


def _nothing(trials: Sequence[TrialRecord]) -> RunVerdict:
    cause = next((trial.cause for trial in reversed(trials) if trial.cause), None)
    why = f"no step ended ({cause.rstrip('. ')})" if cause else "no step ended"
    said = unmeasured_verdict(f"Nothing was measured: {why}.")
    unmeasured = {f"verdict.{name}": why for name, value in said if value is None}
    unmeasured |= {f"oscillation.{name}": why for name in Oscillation.model_fields}
    return RunVerdict(said, unmeasured=unmeasured)


def _parts(means: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds per step by part; what lies between the steps is the loop's own work, so that nothing is left over."""
    parts = attribute(Means(**means), StepFacts(has_step=True))
    return parts | {"host": parts["host"] + parts["residual"], "residual": np.zeros_like(parts["residual"])}


def _summary(name: Bottleneck, figures: Mapping[str, Pooled], arm: Variant | None) -> str:
    wall = figures["wall_s"].value
    waits = figures["wait_s"].value / wall
    between = 1 - waits - figures["step_s"].value / wall
    frames = arm.valid_frames_per_s if arm is not None else None
    rate = f", at {frames.estimate:,.0f} valid frames/s" if frames is not None else ""
    if name == "input":
        return f"Training waits {waits:.0%} of its time for data{rate}."
    if name == "host":
        return f"{between:.0%} of the time goes into what lies between the steps, checkpoints and reports{rate}."
    if name == "inconclusive":
        return f"The step is eager, for debugging, and waits {waits:.1%} of the time for data{rate}."
    return f"Training computes: {waits:.1%} of the time is waiting for data, {between:.1%} lies between steps{rate}."
