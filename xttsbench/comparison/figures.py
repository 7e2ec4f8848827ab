"""Figures of a configuration: step time, rates, waits, spread, utilization; consistent with one another.

The baseline's figures are those of all its steps, samples over elapsed time. Another arm's are the baseline's times
what their paired rounds differ by, so that the quotient of two step times in a table is the speed-up beside them:
pooled times of an arm that was measured in other rounds, or on longer utterances, would say something else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from xttsbench.analysis.evidence import LEAST_SCALE, interval, paired
from xttsbench.analysis.readings import gpu_samples
from xttsbench.analysis.steps import Steps
from xttsbench.analysis.variation import robust_cv
from xttsbench.comparison.effects import MIN_PROCESSES, matched
from xttsbench.comparison.runs import GroupRuns, VariantRuns
from xttsbench.records.base import Estimate
from xttsbench.records.missing import Missing

EMULATED: Final = "emulated accelerator"
GPU: Final = "GPU (driver)"
PROCESSOR: Final = "processor: share of the wall time inside the step"
_LEAST: Final = 1e-6  # A share of 0, such as a wait that never was, has no logarithm


@dataclass(frozen=True)
class _Rates:
    """Per second of elapsed time, and what a step holds; ``frames`` are those without padding."""

    samples: float
    frames: float
    samples_per_step: float


def figures_of(runs: VariantRuns, group: GroupRuns, noise_scale: float, ratio: float | None = None) -> dict[str, Any]:
    """Fields of :class:`xttsbench.records.report.Variant`; without a process that ended well there are none.

    One is :class:`xttsbench.records.base.Missing` where it has a reason of its own. The speed against the baseline is
    ``ratio``, ``None`` where it was not paired with it or is it; rounds of equal configurations differ by
    ``noise_scale``.
    """
    if not runs.steps:
        return {}
    series = list(runs.steps.values())
    rates = _rates(series) if ratio is None else _beside(runs, group.baseline, ratio)
    turns = runs.turns
    names = [block for block, _ in turns]
    spread = interval(paired([float(np.log(steps.rate_per_s)) for steps in turns.values()], names), noise_scale)
    share = spread.times(1 / spread.estimate)
    step_s = rates.samples_per_step / rates.samples
    utilization, of = _utilization(runs, group, step_s, noise_scale)
    least_s = 1e-3 * float(np.mean(group.accelerator.step_times_ms or 0.0))  # An emulated device's wait is known
    return {
        "step_time_s": Estimate(
            estimate=step_s, low=max(step_s / share.high, min(least_s, step_s)), high=step_s / share.low
        ),
        "throughput_per_s": share.times(rates.samples),
        "valid_frames_per_s": share.times(rates.frames) if rates.frames else None,
        "input_wait_fraction": _share(runs, "wait_s", noise_scale),
        "utilization": utilization,
        "utilization_of": of,
        "padding_efficiency": _padding_efficiency(series),
        "cv": float(np.mean([robust_cv(steps.wall_s) for steps in series])),
        "std_over_mean": float(np.mean([one.wall_s.std(ddof=int(len(one) > 1)) / one.wall_s.mean() for one in series])),
    }


def _rates(series: Sequence[Steps]) -> _Rates:
    wall_s = sum(float(steps.wall_s.sum()) for steps in series)
    steps = sum(len(one) for one in series)
    samples = sum(int(one.batch_size.sum()) for one in series) or steps  # without a batch dimension, steps
    return _Rates(samples / wall_s, sum(int(one.valid_frames.sum()) for one in series) / wall_s, samples / steps)


def _beside(runs: VariantRuns, baseline: VariantRuns, ratio: float) -> _Rates:
    """The baseline's rates times what the two differ by on the rows that were compared."""
    whole = _rates(list(baseline.steps.values()))
    pairs = [matched(baseline.turns[turn], runs.turns[turn]) for turn in baseline.turns.keys() & runs.turns.keys()]
    ours, theirs = _rates([one for one, _ in pairs]), _rates([other for _, other in pairs])
    frames = (theirs.frames / theirs.samples) / (ours.frames / ours.samples) if ours.frames else 0.0
    return _Rates(
        whole.samples * ratio,
        whole.frames * ratio * frames,
        whole.samples_per_step * theirs.samples_per_step / ours.samples_per_step,
    )


def _share(runs: VariantRuns, column: str, noise_scale: float, value: float | None = None) -> Estimate:
    """Share of the wall time, from 0 to 1, with an interval over rounds.

    On the scale of ``log(share / rest)``, the logarithm of a ratio of two times, whose noise is that of a paired round.
    """
    sums = [(float(getattr(steps, column).sum()), float(steps.wall_s.sum())) for steps in runs.turns.values()]
    if value is None:
        value = sum(own_s for own_s, _ in sums) / sum(wall_s for _, wall_s in sums)
    return _share_interval(value, [own_s / wall_s for own_s, wall_s in sums], [at for at, _ in runs.turns], noise_scale)


def _share_interval(value: float, parts: Sequence[float], processes: Sequence[int], noise_scale: float) -> Estimate:
    odds = [float(np.log(part / (1 - part))) for part in map(_clipped, parts)]
    found = interval(paired(odds, processes), noise_scale)
    middle = float(np.log(_clipped(value) / (1 - _clipped(value))))
    reach = (np.log(found.low / found.estimate), np.log(found.high / found.estimate))
    low, high = (float(1 / (1 + np.exp(-(middle + side)))) for side in reach)
    return Estimate(estimate=value, low=min(low, value), high=max(high, value))


def _clipped(share: float) -> float:
    return min(max(share, _LEAST), 1 - _LEAST)


def _utilization(
    runs: VariantRuns, group: GroupRuns, step_time_s: float, noise_scale: float
) -> tuple[Estimate | Missing, str]:
    """Utilization of the accelerator, and the name of the device that it is of.

    Emulated: its time over the wall time, first step excluded (MLPerf Storage). A GPU: the driver's own samples.
    Without either the processor is the device, and the share of the time inside the step stands for it.
    """
    if group.accelerator.step_times_ms:
        busy_s = float(np.concatenate([steps.emulated_s for steps in runs.steps.values()]).mean())
        return _share(runs, "emulated_s", noise_scale, min(busy_s / step_time_s, 1.0)), EMULATED
    if any(trial.devices is not None and trial.devices.gpus for trial in runs.trials.values()):
        busy = {block: samples for block, trial in runs.trials.items() if len(samples := gpu_samples(trial))}
        if not busy:
            return Missing("the driver gave no utilization samples during the steps"), GPU
        parts = [float(samples.mean()) for samples in busy.values()]
        return _share_interval(float(np.mean(parts)), parts, list(busy), noise_scale), GPU
    if not runs.has_step:
        return Missing("there is no step, so nothing that could be busy"), ""
    return _share(runs, "step_s", noise_scale), PROCESSOR


def _padding_efficiency(series: Sequence[Steps]) -> float | None:
    """Valid frames over padded ones, of all steps; ``None`` where the workload does not say."""
    padded = sum(int(steps.frames.sum()) for steps in series)
    valid = sum(int(steps.valid_frames.sum()) for steps in series)
    return valid / padded if padded and valid else None


def cv_interval(series: Sequence[Steps]) -> Estimate | None:
    """Robust CV of the step time in one more process, from those that were measured; ``None`` of fewer than two.

    On the log scale, where the CV of one process of ``n`` normal steps has the standard error ``1.17 / sqrt(n)`` (a MAD
    has 37 % of the efficiency of a standard deviation: Rousseeuw and Croux 1993).
    """
    if len(series) < MIN_PROCESSES:
        return None
    error = 1.17 / math.sqrt(min(map(len, series)))
    return interval([math.log(max(robust_cv(steps.wall_s), _LEAST)) for steps in series], max(error, LEAST_SCALE))
