"""The figures of a diagnosis from its trials: the target as it is, its step alone and its input alone, drawn together.

What is compared is compared within one process and on the same batches: the step beside its input and the step alone
are the same function on the same data, so that lengths, shapes and the luck of a process are in both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.disturbance import Gate
from xttsbench.analysis.pooling import STRETCHES, Columns, Pooled, Sample, Statistic, mean_of, pool_together, sample
from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.records.trial import TrialRecord
from xttsbench.records.watch import Stretch, WatchedRun

FloatArray = npt.NDArray[np.float64]

PARTS_OF: Final = ("wall_s", "wait_s", "step_s", "emulated_s", "compile_s", "outside_s", "cpu_s")
"""Columns of :class:`~xttsbench.analysis.steps.Steps` whose means are attributed."""
_OF_STEPS: Final[dict[str, Statistic]] = {
    **{name: mean_of(name) for name in PARTS_OF},
    "median": lambda columns: np.asarray(np.median(columns["wall_s"], axis=1)),
    "p95": lambda columns: np.asarray(np.quantile(columns["wall_s"], 0.95, axis=1)),
    "samples": mean_of("batch_size"),
}
DISTURBED_SPREAD: Final = 2.0
"""Times the spread of processes where most of what was measured was disturbed, so that nothing could be left out."""
Samples = tuple[Mapping[Any, Sample], ...]
"""As it is, step alone where it could not be matched, input alone: each trial id -> sample."""


def undisturbed(trial: TrialRecord, steps: Steps, judged: Gate) -> Steps:
    """Those of a process's steps that are from valid rounds."""
    bad = judged.invalid_in(trial.spec.block)
    return steps[~np.isin(steps.round, bad)] if bad else steps


def samples_of(trials: Sequence[TrialRecord], as_is: Mapping[str, Steps], judged: Gate) -> Samples:
    """What each process says of each condition.

    The steady steps ``as_is`` are by trial, of the processes that have a vote; ``judged`` says which rounds count.
    """
    by_id = {trial.spec.trial_id: trial for trial in trials}
    beside: dict[str, Sample] = {}
    alone: dict[str, Sample] = {}
    matched = {name: matched_alone_s(steps, measured(by_id[name], "step_only")) for name, steps in as_is.items()}
    # One group has one set of figures: matched where every process could be, else none of them.
    match = bool(matched) and all((~np.isnan(times)).any() for times in matched.values())
    for name, steps in as_is.items():
        if (watched := by_id[name].watched) is not None and watched.stretches:
            beside[name] = sample_of_run(watched)
            continue
        columns = {column: np.asarray(getattr(steps, column), dtype=np.float64) for column in PARTS_OF}
        columns |= {"batch_size": steps.batch_size.astype(np.float64)}
        statistics = dict(_OF_STEPS)
        if match:
            columns |= {"alone_s": matched[name], "working_s": steps.working_s}
            statistics["alone_s"] = _alone_on_these
        beside[name] = _without_gaps(sample(columns, statistics, steps.round))
        cached = measured(by_id[name], "step_only")
        if not match and cached is not None and len(cached := undisturbed(by_id[name], cached, judged)):
            alone[name] = sample({"alone_s": cached.working_s}, {"alone_s": mean_of("alone_s")}, cached.round)
    inputs: dict[str, Sample] = {}
    for trial in trials:
        rows = measured(trial, "input_only")
        if rows is not None and len(steps := undisturbed(trial, steady(rows)[0], judged)):
            columns = {"wall_s": steps.wall_s, "cpu_s": np.maximum(steps.cpu_s - steps.main_cpu_s, 0.0)}
            wanted = {"input_alone_s": mean_of("wall_s"), "input_cpu_s": mean_of("cpu_s")}
            inputs[trial.spec.trial_id] = sample(columns, wanted, steps.round)
    return beside, alone, inputs


def sample_of_run(watched: WatchedRun) -> Sample:
    """The figures of a watched run over all of its steps, of which the rows are the newest part.

    Quantiles are those of the whole run, and vary from stretch to stretch as the mean does.
    """
    groups = [group for group in np.array_split(np.arange(len(watched.stretches)), STRETCHES) if len(group)]
    stretches = [[watched.stretches[index] for index in group] for group in groups]
    names = (*PARTS_OF, "samples")

    def mean(parts: Sequence[Stretch], name: str) -> float:
        return float(sum(getattr(part, name) for part in parts)) / max(sum(part.steps for part in parts), 1)

    values = {name: mean(watched.stretches, name) for name in names}
    each = {name: np.array([mean(parts, name) for parts in stretches]) for name in names}
    pace = each["wall_s"] / max(values["wall_s"], 1e-12)
    for name in ("median", "p95"):
        values[name] = watched.quantiles_s.get(name, values["wall_s"])
        each[name] = values[name] * pace
    return Sample(values, each, float(watched.steps))


def pooled(
    samples: Samples, rng: np.random.Generator, *, only: Collection[str] | None = None, spread: float = 1.0
) -> dict[str, Pooled]:
    """Every figure by name, all from the same draws.

    Without ``only`` all processes are wanted; ``spread`` multiplies what they are taken to differ by before data say
    so.
    """
    groups = [
        {name: one for name, one in group.items() if only is None or name in only or name not in samples[0]}
        for group in samples
    ]
    found: dict[str, Pooled] = {}
    for figures in pool_together([group for group in groups if group], rng, spread=spread):
        found |= figures
    if "wall_s" in found:  # what is drawn of the parts adds up as what was measured of them does
        wall, wait, step = found["wall_s"], found["wait_s"], found["step_s"]
        gap_s = wall.value - wait.value - step.value
        least_s = 0.5 * (wait.resamples + step.resamples)
        drawn_s = np.maximum(wait.resamples + step.resamples + gap_s, least_s)
        found["wall_s"] = Pooled(wall.value, drawn_s)
    return found


def matched_alone_s(steps: Steps, alone: Steps | None) -> FloatArray:
    """For each step as it is, the time of the step alone on the same batch in the same round; NaN without one."""
    found = np.full(len(steps), np.nan)
    times: dict[tuple[int, int], list[float]] = {}
    if alone is not None:
        for batch, turn, working_s in zip(alone.batch, alone.round, alone.working_s, strict=True):
            if batch >= 0:
                times.setdefault((int(turn), int(batch)), []).append(float(working_s))
    for row, (batch, turn) in enumerate(zip(steps.batch, steps.round, strict=True)):
        if own := times.get((int(turn), int(batch))):
            found[row] = float(np.mean(own))
    return found


def _alone_on_these(columns: Columns) -> FloatArray:
    """The step alone on the batches of these steps; where some have no partner, at the ratio of those that have one."""
    known = ~np.isnan(columns["alone_s"])
    alone_s = np.where(known, columns["alone_s"], 0.0).sum(axis=1)
    beside_s = np.where(known, columns["working_s"], 0.0).sum(axis=1)
    ratio = np.divide(alone_s, beside_s, out=np.full(len(alone_s), np.nan), where=beside_s > 0)
    return np.asarray(ratio * columns["working_s"].mean(axis=1))


def _without_gaps(found: Sample) -> Sample:
    """The sample with stretches that have no matched batch put at the ratio of the whole process."""
    stretches = found.stretches.get("alone_s")
    if stretches is None or not np.isnan(stretches).any():
        return found
    working_s = found.stretches["step_s"] - found.stretches["compile_s"]
    whole_s = max(found.values["step_s"] - found.values["compile_s"], 1e-12)
    filled = np.where(np.isnan(stretches), found.values["alone_s"] * working_s / whole_s, stretches)
    return Sample(found.values, {**found.stretches, "alone_s": filled}, found.weight)
