"""What all plots draw from: the report, and the steps of each process as NumPy arrays in seconds.

Time zero is a process's first step. A column that the trial did not record becomes NaN (or ``None`` for a whole
optional quantity), never 0. Compared configurations stand beside one another over the same time, one process of each
from the same repeat (:func:`side_runs`), with the utilization that the table of the comparison has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xttsbench.analysis.readings import trace
from xttsbench.analysis.steps import steady, steps_of
from xttsbench.records.report import Report, Variant
from xttsbench.records.trial import Segment, TrialRecord
from xttsbench.reporting.groups import Group, compares, groups, of_verdict, trials_of
from xttsbench.reporting.words import ARM_COLORS, SERIES_COLORS, plain

FloatArray = NDArray[np.float64]
_LONGEST_LABEL = 40
_OTHER_TARGETS = frozenset({"fix", "arm", "parity"})


@dataclass(frozen=True, slots=True, eq=False)
class StepSeries:
    """Steps of one segment of one process; every array has one entry per step, shape (steps,)."""

    label: str
    zero_ns: int
    """``time.perf_counter_ns`` of the first step's start, to align readings with the steps."""
    wall_s: FloatArray
    wait_s: FloatArray
    step_s: FloatArray
    accelerator_s: FloatArray | None
    """Time of the emulated accelerator within each step; ``None`` without one."""
    cpu_s: FloatArray
    """Processor time of the whole process within each step."""
    steady_from: int
    """Index of the first step of the steady state."""

    @property
    def end_s(self) -> FloatArray:
        """End of each step, from the first one's start: the wall times leave no gap between steps."""
        return np.cumsum(self.wall_s)

    @property
    def steady_wall_s(self) -> FloatArray:
        """Wall time of the steps of the steady state."""
        return self.wall_s[self.steady_from :]


def from_segment(segment: Segment, *, label: str) -> StepSeries | None:
    """The segment's steps; ``None`` where it has none, or not their start and wall time.

    The steady state begins where the report cuts what follows the segment's own warm-up.
    """
    if segment.steps == 0 or "start_ns" not in segment.columns or "wall_ns" not in segment.columns:
        return None
    emulated_s = _seconds(segment, "emulated_ns")
    return StepSeries(
        label=label,
        zero_ns=segment.columns["start_ns"][0],
        wall_s=_seconds(segment, "wall_ns"),
        wait_s=_seconds(segment, "wait_ns"),
        step_s=_seconds(segment, "step_ns"),
        accelerator_s=emulated_s if np.any(emulated_s > 0) else None,
        cpu_s=_seconds(segment, "cpu_ns"),
        steady_from=min(segment.warmup_steps, segment.steps) + steady(steps_of(segment))[1].cut,
    )


def _seconds(segment: Segment, column: str) -> FloatArray:
    values = segment.columns.get(column)
    if values is None:
        return np.full(segment.steps, np.nan)
    return np.array(values, dtype=np.float64) / 1e9


@dataclass(frozen=True, slots=True)
class Scene:
    """The report and the series of the target as it is (or of the baseline), one per process."""

    report: Report
    series: tuple[StepSeries, ...] = ()
    main: StepSeries | None = None
    """The series with the most steady steps: time series statistics are of one process, never of pooled ones."""
    record: TrialRecord | None = None
    """The trial that ``main`` comes from."""
    trials: tuple[TrialRecord, ...] = ()
    """All trials, for the plots of compared configurations."""

    @property
    def why_empty(self) -> str:
        """Why there is nothing to draw."""
        return self.report.unmeasured.get("verdict.step_time_s", "No step of the target as it is was measured.")


def stage(report: Report, trials: Sequence[TrialRecord]) -> Scene:
    """Collect what the plots need: the target as it is, or the baseline where configurations were compared.

    Trials without such steps are left out, and those with a fix or of another configuration: they are not the original.
    """
    found = [
        (series, record)
        for record in _original(report, trials)
        if (segment := record.segment("as_is"))
        and (series := from_segment(segment, label=plain(record.spec.trial_id)[:_LONGEST_LABEL]))
    ]
    if not found:
        return Scene(report, trials=tuple(trials))
    main, record = max(found, key=lambda pair: pair[0].steady_wall_s.size)
    return Scene(report, tuple(series for series, _ in found), main, record, tuple(trials))


def _original(report: Report, trials: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    group = of_verdict(report) if compares(report) or report.training is not None else None
    if group is not None and group.baseline is not None:
        return trials_of(group, group.baseline, groups(report), trials)
    return [record for record in trials if record.spec.kind not in _OTHER_TARGETS]


def extremes(wall_s: FloatArray, stretches: int) -> NDArray[np.int64]:
    """Positions of steps to draw, ascending: all, or the fastest and the slowest of each of so many stretches."""
    if wall_s.size <= 2 * stretches:
        return np.arange(wall_s.size)
    edges = np.linspace(0, wall_s.size, stretches + 1).astype(np.int64)
    chosen = [0, wall_s.size - 1]
    for low, high in pairwise(edges):
        stretch = wall_s[low:high]
        chosen += [low + int(stretch.argmin()), low + int(stretch.argmax())]
    return np.unique(np.array(chosen, dtype=np.int64))


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
    """The baseline first, then the best candidate, and the others where they are few."""
    first = () if group.baseline is None else (group.baseline,)
    arms = (*first, *group.candidates)
    return arms if len(arms) <= MOST_ARMS else arms[:2]


def _series(record: TrialRecord) -> StepSeries | None:
    """The measured steps, without the segment's own warm-up."""
    segment = record.segment("as_is")
    if segment is None:
        return None
    columns = {name: values[segment.warmup_steps :] for name, values in segment.columns.items()}
    return from_segment(Segment(name=segment.name, columns=columns), label="")


def utilization(run: SideRun, window_s: float) -> tuple[FloatArray, FloatArray]:
    """Rolling share of the time that is busy, at the middle of each window, in moves of an eighth of one.

    The window is triangular (Bartlett's): a step that enters or leaves it moves the curve a little, not at once.
    """
    series = run.series
    if has_samples(run):
        return _sampled(run, window_s)
    busy_s = series.step_s if series.accelerator_s is None else series.accelerator_s
    t_s, share = trace(series.end_s, busy_s, window_s=window_s / _MOVES_PER_WINDOW)
    whole = share[: t_s.size - 1] if t_s.size > _MOVES_PER_WINDOW else share  # the last may be narrower than the others
    width = min(_MOVES_PER_WINDOW, whole.size)
    weights = np.bartlett(width + 2)[1:-1]
    rolled = np.convolve(whole, weights / weights.sum(), "valid")
    return t_s[width // 2 : width // 2 + rolled.size], rolled


def has_samples(run: SideRun) -> bool:
    """Whether the utilization is the driver's and not of the steps' own clock."""
    return run.series.accelerator_s is None and run.arm.utilization_of == _GPU


def _sampled(run: SideRun, window_s: float) -> tuple[FloatArray, FloatArray]:
    """The driver's samples of all GPUs during the steps, averaged over windows."""
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
