"""Bootstrap over processes and, within each, over blocks of steps: the process is the unit of replication.

Steps of one process share its luck (memory layout, clocks, neighbours) and are autocorrelated, so processes are drawn
with replacement first, and each drawn process contributes a stationary block bootstrap of its own steps (Politis &
Romano 1994; block length after Politis & White 2004).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.bootstrap import politis_white_length, stationary_indices
from xttsbench.records.base import Estimate

FloatArray = npt.NDArray[np.float64]
Columns = Mapping[str, FloatArray]
Statistic = Callable[[Columns], FloatArray]
"""From columns of shape (resamples, steps) to one number per resample."""

RESAMPLES: Final = 1000
_CHUNK: Final = 2_000_000
"""Drawn steps held in memory at once: the parent stays small."""


@dataclass(frozen=True)
class Pooled:
    """A statistic over all processes: its value, and one value for each resample."""

    value: float
    resamples: FloatArray

    def estimate(self, level: float = 0.95) -> Estimate:
        """The value with its percentile interval."""
        return interval_of(self.value, self.resamples, level)


def interval_of(value: float, resamples: FloatArray, level: float = 0.95) -> Estimate:
    """A value with the percentile interval of its resamples, widened to hold the value itself."""
    tail = (1 - level) / 2
    low, high = np.quantile(resamples, [tail, 1 - tail])
    return Estimate(estimate=value, low=min(float(low), value), high=max(float(high), value))


def mean_of(name: str) -> Statistic:
    """The statistic that is the mean of a column."""
    return lambda columns: columns[name].mean(axis=1)


def pool(
    processes: Sequence[Columns],
    statistics: Mapping[str, Statistic],
    rng: np.random.Generator,
    *,
    clock: str = "wall_s",
) -> dict[str, Pooled]:
    """Statistics over the steps of several processes, each process with equal weight.

    Args:
        processes: per process, name -> values of shape (steps,), at least one step.
        statistics: name -> statistic; all see the same draws, so their resamples are joint.
        rng: the only source of chance.
        clock: the column whose autocorrelation sets the block length.
    """
    drawn = rng.integers(0, len(processes), size=(RESAMPLES, len(processes)))
    points = [{name: float(of(_one_row(columns))[0]) for name, of in statistics.items()} for columns in processes]
    clouds = [_within(columns, statistics, rng, clock) for columns in processes]
    return {
        name: Pooled(
            float(np.mean([point[name] for point in points])),
            np.take_along_axis(np.stack([cloud[name] for cloud in clouds]), drawn.T, axis=0).mean(axis=0),
        )
        for name in statistics
    }


def _one_row(columns: Columns) -> dict[str, FloatArray]:
    return {name: values[np.newaxis, :] for name, values in columns.items()}


def _within(
    columns: Columns, statistics: Mapping[str, Statistic], rng: np.random.Generator, clock: str
) -> dict[str, FloatArray]:
    """Each statistic over block-bootstrap resamples of one process's steps."""
    steps = len(columns[clock])
    length = politis_white_length(columns[clock]) if steps >= 8 else 1.0
    found: dict[str, list[FloatArray]] = {name: [] for name in statistics}
    chunk = max(_CHUNK // steps, 1)
    for first in range(0, RESAMPLES, chunk):
        rows = stationary_indices(steps, length, min(chunk, RESAMPLES - first), rng)
        taken = {name: values[rows] for name, values in columns.items()}
        for name, statistic in statistics.items():
            found[name].append(statistic(taken))
    return {name: np.concatenate(values) for name, values in found.items()}
