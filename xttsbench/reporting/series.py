"""One segment's steps as NumPy arrays in seconds, time zero at its first step: what the plots draw.

A column that the trial did not record becomes NaN (or ``None`` for a whole optional quantity), never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xttsbench.analysis.steps import steady, steps_of
from xttsbench.records.trial import Segment

FloatArray = NDArray[np.float64]


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

    Args:
        segment: columns as in :data:`~xttsbench.records.rows.COLUMNS`, in nanoseconds.
        label: name of the series in a legend.
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
