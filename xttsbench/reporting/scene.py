"""Data of all plots: the report, and the steps of each process as NumPy arrays in seconds; and as tables.

Time zero is a process's first step. A column that the trial did not record becomes NaN (or ``None`` for a whole
optional quantity), never 0. Compared configurations stand beside one another over the same time, one process of each
from the same repeat (:func:`side_runs`), with the utilization that the table of the comparison has. The page draws the
steps of one process itself (:func:`time_line`): of many the fastest and the slowest of each of some thousand stretches
are kept, so that no stall is lost from the picture; the sums up to each kept step are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from xttsbench.analysis.steps import steady, steps_of
from xttsbench.records.report import Report
from xttsbench.records.trial import Segment, TrialRecord
from xttsbench.reporting.sections import compares, groups, of_verdict, trials_of
from xttsbench.reporting.words import plain

FloatArray = NDArray[np.float64]
_LONGEST_LABEL = 40
_OTHER_TARGETS = frozenset({"arm", "parity"})


@dataclass(frozen=True, slots=True, eq=False)
class StepSeries:
    """Steps of one segment of one process; every array has one entry per step, shape (steps,)."""

    label: str
    zero_ns: int  # ``time.perf_counter_ns`` of the first step's start, to align readings with the steps
    wall_s: FloatArray
    wait_s: FloatArray
    step_s: FloatArray
    accelerator_s: FloatArray | None  # Time of the emulated accelerator within each step; ``None`` without one
    cpu_s: FloatArray  # Processor time of the whole process within each step
    steady_from: int  # Index of the first step of the steady state

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
    record: TrialRecord | None = None  # The trial that ``main`` comes from
    trials: tuple[TrialRecord, ...] = ()  # All trials, for the plots of compared configurations

    @property
    def why_empty(self) -> str:
        """Why there is nothing to draw."""
        return self.report.unmeasured.get("verdict.step_time_s", "No step of the target as it is was measured.")


def stage(report: Report, trials: Sequence[TrialRecord]) -> Scene:
    """Collect what the plots need: the target as it is, or the baseline where configurations were compared.

    Trials without such steps are left out, and those of another configuration: they are not the original.
    """
    found = [
        (series, record)
        for record in _original(report, trials)
        if (segment := record.segment("as_is"))
        and (series := from_segment(segment, label=plain(record.spec.trial_id)[:_LONGEST_LABEL]))
    ]
    main, record = max(found, key=lambda pair: pair[0].steady_wall_s.size, default=(None, None))
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
    pairs = ((low + wall_s[low:high].argmin(), low + wall_s[low:high].argmax()) for low, high in pairwise(edges))
    return np.unique(np.array([0, wall_s.size - 1, *chain.from_iterable(pairs)], dtype=np.int64))
