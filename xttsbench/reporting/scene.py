"""Data of all plots: the report, and the steps of each process as NumPy arrays in seconds.

Time zero is a process's first step. Of many steps the fastest and the slowest of each of some thousand stretches are
drawn (:func:`extremes`), so that no stall is lost from the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from xttsbench.analysis.steps import FloatArray, Steps, steady, steps_of
from xttsbench.records.report import Report
from xttsbench.records.trial import Segment, TrialRecord
from xttsbench.reporting.sections import compares, groups, of_verdict, trials_of
from xttsbench.reporting.words import plain

_LONGEST_LABEL = 40
_OTHER_TARGETS = frozenset({"arm", "parity"})


class StepSeries(Steps):
    """All steps of one segment of one process, its warm-up among them; the segment has some.

    Attributes:
        label: name of the process.
        zero_ns: ``time.perf_counter_ns`` of the first step's start, to align readings with the steps.
        steady_from: index of the first step of the steady state, where the report cuts what follows the warm-up.
    """

    def __init__(self, segment: Segment, label: str = "") -> None:
        super().__init__(steps_of(segment.model_copy(update={"warmup_steps": 0})).columns)
        self.label, self.zero_ns = label, segment.columns["start_ns"][0]
        self.steady_from = min(segment.warmup_steps, segment.steps) + steady(steps_of(segment))[1].cut

    @cached_property
    def end_s(self) -> FloatArray:
        """End of each step, from the first one's start: the wall times leave no gap between steps."""
        return np.cumsum(self.wall_s)

    @property
    def steady_wall_s(self) -> FloatArray:
        """Wall time of the steps of the steady state."""
        return self.wall_s[self.steady_from :]

    @property
    def emulated(self) -> bool:
        """Whether an emulated accelerator stands for the device."""
        return bool(self.emulated_s.any())


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
        (StepSeries(segment, plain(record.spec.trial_id)[:_LONGEST_LABEL]), record)
        for record in _original(report, trials)
        if (segment := record.segment("as_is")) is not None and segment.steps
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
