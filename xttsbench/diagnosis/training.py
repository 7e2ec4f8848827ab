"""Diagnosis of a training run from its steps and history: verdict, record, and cause of waiting for data.

Pure.

Time between two steps (reports, checkpoints) is the host's; evaluations are in no step's time. What only experiments
can tell apart (how much slower a step is for the loader beside it, what launching its ops costs) is left unmeasured:
while a run goes on there is no ladder of trials. But each way of making batches has its own known cost, so that a
sentence about waiting names the first thing that should be changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from xttsbench.analysis.attribution import THRESHOLD, Means, StepFacts, attribute, verdicts
from xttsbench.analysis.pooling import Pooled, pool, ratio
from xttsbench.analysis.steps import measured, steady
from xttsbench.analysis.variation import oscillation
from xttsbench.comparison.figures import PROCESSOR
from xttsbench.diagnosis.bottleneck import OF_STEPS
from xttsbench.diagnosis.verdict import RunVerdict, unmeasured_verdict
from xttsbench.records.report import Attribution, Bottleneck, Finding, Oscillation, Variant, Verdict
from xttsbench.records.training import (
    Begun,
    CheckpointEntry,
    Ended,
    Fitted,
    HistoryLine,
    Interval,
    Spoken,
    TakenOver,
    TimedEvaluation,
    Training,
    Watched,
    WatchedInterval,
)
from xttsbench.records.trial import TrialRecord

_NAMES: Final = ("wall_s", "wait_s", "step_s", "emulated_s", "compile_s", "outside_s")
_STATISTICS: Final = {name: of for name, of in OF_STEPS.items() if name in (*_NAMES, "median", "p95")}
_EXPERIMENT: Final = "it takes an experiment to tell apart: 'xttsbench diagnose'"
_EAGER: Final = (
    "the step is eager (--no-graph, for debugging), and what of it is launching of ops only an experiment tells; "
    "'xttsbench diagnose' makes it"
)


def train_verdict(trials: Sequence[TrialRecord], arm: Variant | None, *, mode: str, seed: int = 0) -> RunVerdict:
    """The verdict on all sessions together.

    Sessions without a step are left out; the configuration is ``None`` where none ended well.
    """
    found = [(trial, steady(rows)) for trial in trials if (rows := measured(trial, "as_is")) is not None]
    if not found:
        return _nothing(trials)
    columns = [{name: np.asarray(getattr(steps, name), float) for name in _NAMES} for _, (steps, _) in found]
    figures = pool(columns, _STATISTICS, np.random.default_rng(seed))
    parts, wall = _parts({name: figures[name].entries for name in _NAMES}), figures["wall_s"]
    name: Bottleneck
    name, *drawn = verdicts(parts, wall.entries).tolist()
    confidence = drawn.count(name) / len(drawn)
    trial, (steps, state) = max(found, key=lambda one: len(one[1][0]))
    vector, missing = oscillation(steps.wall_s)
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


def training_of(lines: Sequence[HistoryLine], recipe: str, taken_over: TakenOver | None = None) -> Training:
    """Summarises a run from the lines of its history.

    A session that goes on from a checkpoint takes the steps after it once more, bit by bit the same; and where a loss
    blew up the run goes back within a session, and writes the checkpoint that it went back to once more. So what was
    reported of later steps before is left out.
    """
    sessions: list[Begun] = []
    intervals: list[WatchedInterval] = []
    evaluations: list[TimedEvaluation] = []
    checkpoints: list[CheckpointEntry] = []
    ended: Ended | None = None
    spoken: Spoken | None = None
    fitted: Fitted | None = None
    for line in lines:
        spoken, fitted = line.spoken or spoken, line.fitted or fitted
        if (again := line.begun or line.saved) is not None:
            intervals = [one for one in intervals if _last_step(one) <= again.step]
            evaluations = [one for one in evaluations if one.step <= again.step]
            checkpoints = [one for one in checkpoints if one.step <= again.step]
        if line.begun is not None:
            sessions.append(line.begun)
            ended = None
        if line.interval is not None:
            intervals = [one for one in intervals if _last_step(one) < line.interval.first_step]
            intervals.append(_watched(line.interval, line))
        if line.evaluated is not None:
            evaluations.append(TimedEvaluation(**line.evaluated.model_dump(), took_s=line.took_s))
        if line.saved is not None:
            checkpoints.append(line.saved)
        ended = line.ended or ended
    return Training(
        recipe=recipe,
        sessions=tuple(sessions),
        intervals=tuple(intervals),
        evaluations=tuple(evaluations),
        checkpoints=tuple(checkpoints),
        ended=ended,
        spoken=spoken,
        fitted=fitted,
        taken_over=taken_over,
    )


def wait_fraction(watched: Watched) -> float | None:
    """Share of an interval that was waiting for batches; ``None`` where it took no time."""
    return watched.wait_s / watched.wall_s if watched.wall_s > 0 else None


def valid_frames_per_s(watched: Watched) -> float | None:
    """Frames without padding over the interval's time; ``None`` where it took none."""
    return watched.valid_frames / watched.wall_s if watched.wall_s > 0 else None


def _watched(interval: Interval, line: HistoryLine) -> WatchedInterval:
    return WatchedInterval(
        **interval.model_dump(),
        session=line.session,
        wait_fraction=wait_fraction(line.watched) if line.watched is not None else None,
        valid_frames_per_s=valid_frames_per_s(line.watched) if line.watched is not None else None,
    )


def _last_step(interval: WatchedInterval) -> int:
    return interval.first_step + interval.steps - 1


STARVING: Final = THRESHOLD
"""Share of the time that is waiting for data, above which training starves: the threshold of a verdict."""
_AGAIN_S: Final = 120.0  # Between two sentences on the same state
_PACK: Final = "take the loader packed, whose features 'xttsbench data precompute' makes once"


def explain(config: Mapping[str, Any], *, overlap: bool, input_workers: int, share: float) -> Finding:
    """The finding that explains the waiting best.

    The configuration has the keys of ``best.yaml``; the share is of the time that is waiting for data, 0..1.
    """
    rule, cause, remedy = _cause(str(config.get("loader")), config, overlap, input_workers)
    return Finding(
        rule=rule,
        severity="warning",
        limiting=share >= STARVING,
        title=f"{share:.0%} of the time is waiting for data: {cause}",
        evidence={
            "wait_share": share,
            "loader": str(config.get("loader")),
            "input_workers": input_workers,
            **{key: config[key] for key in ("prefetch", "workers", "threads") if key in config},
        },
        remedy=f"{remedy[0].upper()}{remedy[1:]}.",
    )


def _cause(loader: str, config: Mapping[str, Any], overlap: bool, input_workers: int) -> tuple[str, str, str]:
    if not overlap:
        return "no-prefetch", "no batch is made while a step runs (--no-overlap)", "leave out --no-overlap"
    if config.get("prefetch") == 0 and not config.get("device_prefetch"):
        return "no-prefetch", "no batch is made ahead", "set prefetch to -1, where tf.data decides"
    if loader.startswith("numpy_") and not input_workers:
        cause = f"the loader {loader} makes batches in Python, which holds the interpreter's lock"
        return "python-function", cause, f"{_PACK}, or give it processes of its own (--input-workers 2)"
    if loader in ("numpy_wav", "tf_wav") and not config.get("cache"):
        return "cacheable", f"the loader {loader} computes the features of each clip anew in every epoch", _PACK
    if config.get("workers") == 0:
        return "sequential-map", "one batch is made after the other", "set workers to -1, where tf.data decides"
    if loader in ("numpy_cache", "tf_cache"):
        return "per-element-overhead", f"the loader {loader} reads one file for each clip", _PACK
    cause = "nothing in the configuration explains it: slow storage, or processors that others use"
    return "input-bound", cause, "measure the input alone: 'xttsbench diagnose'"


@dataclass(frozen=True, slots=True)
class Starvation:
    """Whether training starves, and when that was last said; seconds are on any one clock."""

    said_s: float | None = None
    """``None`` where it does not starve."""

    def after(self, finding: Finding, share: float, now_s: float) -> tuple[Starvation, str | None]:
        """The state after an interval, and a sentence where there is something new to say.

        The share is of the interval that was waiting for data, 0..1.
        """
        if share < STARVING:
            over = f"Training waits no more: {share:.0%} of the last interval." if self.said_s is not None else None
            return Starvation(), over
        if self.said_s is not None and now_s - self.said_s < _AGAIN_S:
            return self, None
        return Starvation(now_s), f"Training starves: {finding.title} [{finding.rule}]. {finding.remedy}"
