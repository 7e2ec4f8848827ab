"""What limits a training run, from the steps of its sessions. Pure.

Time between two steps (reports, checkpoints) is the host's; evaluations are in no step's time. What only experiments
can tell apart (how much slower a step is for the loader beside it, what launching its ops costs) is left unmeasured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from xttsbench.analysis.attribution import Means, StepFacts, attribute, verdicts
from xttsbench.analysis.oscillation import oscillation
from xttsbench.analysis.pooling import Pooled, Statistic, interval_of, mean_of, pool
from xttsbench.analysis.steady_state import SteadyState
from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.comparison.figures import PROCESSOR
from xttsbench.records.report import Arm, Attribution, Bottleneck, Oscillation, Verdict
from xttsbench.records.trial import TrialRecord

_NAMES: Final = ("wall_s", "wait_s", "step_s", "emulated_s", "compile_s", "outside_s")
_STATISTICS: Final[dict[str, Statistic]] = {
    **{name: mean_of(name) for name in _NAMES},
    "median": lambda columns: np.asarray(np.median(columns["wall_s"], axis=1)),
    "p95": lambda columns: np.asarray(np.quantile(columns["wall_s"], 0.95, axis=1)),
}
_EXPERIMENT: Final = "it takes an experiment to tell apart: 'xttsbench diagnose'"
_EAGER: Final = (
    "the step is eager (--no-graph, for debugging), and what of it is launching of ops only an experiment tells; "
    "'xttsbench diagnose' makes it"
)


@dataclass(frozen=True)
class TrainVerdict:
    """The verdict, and what else is told of the steps.

    Attributes:
        trial: the session with the most steps, which the oscillation is told from; ``None`` without any step.
        steps: its steady steps.
        unmeasured: path in the report -> reason.
    """

    verdict: Verdict
    oscillation: Oscillation = field(default_factory=Oscillation)
    trial: TrialRecord | None = None
    steps: Steps | None = None
    steady: SteadyState | None = None
    unmeasured: Mapping[str, str] = field(default_factory=dict)


def train_verdict(trials: Sequence[TrialRecord], arm: Arm | None, *, mode: str, seed: int = 0) -> TrainVerdict:
    """The verdict on all sessions together.

    Args:
        trials: the sessions; those without a step are left out.
        arm: their figures as an arm; ``None`` where none ended well.
        mode: of the step: ``graph``, ``xla`` or ``eager``.
        seed: of the bootstrap.
    """
    found = [(trial, steady(rows)) for trial in trials if (rows := measured(trial, "as_is")) is not None]
    if not found:
        return _nothing(trials)
    figures = pool([_columns(steps) for _, (steps, _) in found], _STATISTICS, np.random.default_rng(seed))
    parts = _parts({name: np.array([figures[name].value]) for name in _NAMES})
    cloud = _parts({name: figures[name].resamples for name in _NAMES})
    wall = figures["wall_s"]
    name: Bottleneck = _bottleneck(parts, np.array([wall.value]))
    confidence = float(np.mean(verdicts(cloud, wall.resamples) == name))
    trial, (steps, state) = max(found, key=lambda one: len(one[1][0]))
    vector, missing = oscillation(steps.wall_s)
    unmeasured = {f"oscillation.{key}": reason for key, reason in missing.items()}
    attribution: Attribution | None = Attribution(**{part: float(values[0]) for part, values in parts.items()})
    if mode == "eager" and name == "compute":
        name, confidence, attribution = "inconclusive", 0.0, None
        unmeasured["verdict.attribution_s"] = _EAGER
    else:
        unmeasured |= {f"verdict.attribution_s.{part}": _EXPERIMENT for part in ("dispatch", "transfer", "contention")}
    utilization = arm.utilization if arm is not None and arm.utilization_of != PROCESSOR else None
    if utilization is None:
        unmeasured["verdict.accelerator_utilization"] = (
            "no accelerator: the processor is the device"
            if arm is None or arm.utilization_of == PROCESSOR
            else "the driver gave no utilization samples during the steps"
        )
    said = Verdict(
        bottleneck=name,
        summary=_summary(name, figures, arm),
        confidence=confidence,
        step_time_s=wall.estimate(),
        step_time_median_s=figures["median"].estimate(),
        step_time_p95_s=figures["p95"].estimate(),
        input_wait_fraction=_fraction(figures["wait_s"], wall),
        accelerator_utilization=utilization,
        attribution_s=attribution,
    )
    return TrainVerdict(said, vector, trial, steps, state, unmeasured)


def _nothing(trials: Sequence[TrialRecord]) -> TrainVerdict:
    cause = next((trial.cause for trial in reversed(trials) if trial.cause), None)
    why = f"no step ended ({cause.rstrip('. ')})" if cause else "no step ended"
    names = ("step_time_s", "step_time_median_s", "step_time_p95_s", "input_wait_fraction", "accelerator_utilization")
    empty: dict[str, Any] = dict.fromkeys((*names, "attribution_s"))
    unmeasured = {f"verdict.{name}": why for name in empty}
    unmeasured |= {f"oscillation.{name}": why for name in Oscillation.model_fields}
    said = Verdict(bottleneck="inconclusive", summary=f"Nothing was measured: {why}.", confidence=0.0, **empty)
    return TrainVerdict(said, unmeasured=unmeasured)


def _parts(means: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds per step by part; what lies between the steps is the loop's own work, so that nothing is left over."""
    parts = attribute(Means(**means), StepFacts(has_step=True))
    return parts | {"host": parts["host"] + parts["residual"], "residual": np.zeros_like(parts["residual"])}


def _bottleneck(parts: Mapping[str, Any], wall_s: Any) -> Bottleneck:
    name: Bottleneck = str(verdicts(dict(parts), wall_s)[0])  # type: ignore[assignment]  # the names are those of PARTS
    return name


def _summary(name: Bottleneck, figures: Mapping[str, Pooled], arm: Arm | None) -> str:
    wall = figures["wall_s"].value
    waits = figures["wait_s"].value / wall
    between = 1 - waits - figures["step_s"].value / wall
    rate = ""
    if arm is not None and arm.valid_frames_per_s is not None:
        rate = f", at {arm.valid_frames_per_s.estimate:,.0f} valid frames/s"
    if name == "input":
        return f"Training waits {waits:.0%} of its time for data{rate}."
    if name == "host":
        return f"{between:.0%} of the time goes into what lies between the steps, checkpoints and reports{rate}."
    if name == "inconclusive":
        return f"The step is eager, for debugging, and waits {waits:.1%} of the time for data{rate}."
    return f"Training computes: {waits:.1%} of the time is waiting for data, {between:.1%} lies between steps{rate}."


def _columns(steps: Steps) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.asarray(getattr(steps, name), dtype=np.float64) for name in _NAMES}


def _fraction(above: Pooled, below: Pooled) -> Any:
    return interval_of(above.value / below.value, above.resamples / np.maximum(below.resamples, 1e-12))
