"""Runs of a few configurations side by side in one plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from xttsbench.analysis.steps import FloatArray
from xttsbench.records.report import Variant
from xttsbench.records.trial import Segment, TrialRecord
from xttsbench.reporting.scene import Scene, StepSeries
from xttsbench.reporting.sections import Group, groups, trials_of
from xttsbench.reporting.utilization import trace
from xttsbench.reporting.words import ARM_COLORS, SERIES_COLORS

MOST_ARMS: Final = 3
"""So many configurations are all shown; of more, the baseline and the best candidate."""
_MOVES_PER_WINDOW: Final = 8
_GPU: Final = "GPU (driver)"
_OTHERS: Final = (SERIES_COLORS[2], SERIES_COLORS[3], SERIES_COLORS[5])


@dataclass(frozen=True, slots=True, eq=False)
class SideRun:
    """The steps of one process of one configuration; ``block`` is the repeat that it is of."""

    arm: Variant
    color: str
    block: int
    record: TrialRecord
    series: StepSeries


def side_runs(group: Group, scene: Scene) -> tuple[SideRun, ...]:
    """The configurations to show, of the first repeat that has them all, else of the first that each has."""
    every = groups(scene.report)
    chosen = _chosen(group)
    found = {
        arm.id: {
            record.spec.block: (record, series)
            for record in reversed(trials_of(group, arm, every, scene.trials))
            if (series := _series(record)) is not None
        }
        for arm in chosen
    }
    measured = [set(of_arm) for of_arm in found.values() if of_arm]
    blocks = sorted(set.intersection(*measured)) if measured else []
    colors = iter((ARM_COLORS["faster"], *_OTHERS))
    runs = []
    for arm in chosen:
        color = ARM_COLORS["baseline"] if arm.role == "baseline" else next(colors)
        if of_arm := found[arm.id]:
            block = blocks[0] if blocks else min(of_arm)
            runs.append(SideRun(arm, color, block, *of_arm[block]))
    return tuple(runs)


def _chosen(group: Group) -> tuple[Variant, ...]:
    first = () if group.baseline is None else (group.baseline,)
    arms = (*first, *group.candidates)
    return arms if len(arms) <= MOST_ARMS else arms[:2]


def _series(record: TrialRecord) -> StepSeries | None:
    segment = record.segment("as_is")
    if segment is None or segment.steps <= segment.warmup_steps:
        return None
    columns = {name: values[segment.warmup_steps :] for name, values in segment.columns.items()}
    return StepSeries(Segment(name=segment.name, columns=columns))


def utilization(run: SideRun, window_s: float) -> tuple[FloatArray, FloatArray]:
    """Rolling share of the time that is busy, at the middle of each window, in moves of an eighth of one.

    The window is triangular (Bartlett's): a step that enters or leaves it moves the curve a little, not at once.
    """
    series = run.series
    if has_samples(run):
        return _sampled(run, window_s)
    busy_s = series.emulated_s if series.emulated else series.step_s
    t_s, share = trace(series.end_s, busy_s, window_s=window_s / _MOVES_PER_WINDOW)
    whole = share[: t_s.size - 1] if t_s.size > _MOVES_PER_WINDOW else share  # the last may be narrower than the others
    width = min(_MOVES_PER_WINDOW, whole.size)
    weights = np.bartlett(width + 2)[1:-1]
    rolled = np.convolve(whole, weights / weights.sum(), "valid")
    return t_s[width // 2 : width // 2 + rolled.size], rolled


def has_samples(run: SideRun) -> bool:
    """Whether the utilization is the driver's and not of the steps' own clock."""
    return not run.series.emulated and run.arm.utilization_of == _GPU


def _sampled(run: SideRun, window_s: float) -> tuple[FloatArray, FloatArray]:
    times = [np.array(gpu.utilization_t_ns, dtype=np.int64) - run.series.zero_ns for gpu in run.record.readings.gpus]
    shares = [np.array(gpu.utilization, dtype=np.float64) for gpu in run.record.readings.gpus]
    t_s = np.concatenate([np.empty(0), *times]) / 1e9
    share = np.concatenate([np.empty(0), *shares])
    windows = max(1, int(np.ceil(run.series.end_s[-1] / window_s)))
    place = np.floor(t_s / window_s)
    middles, means = [], []
    for window in range(windows):
        if (inside := place == window).any():
            middles.append((window + 0.5) * window_s)
            means.append(float(share[inside].mean()))
    return np.array(middles), np.array(means)
