"""Means over rounds and processes with what is known of their uncertainty: figures of one draw belong together.

A process is measured in a handful of stretches (rounds, or a long stretch cut into batches of steps: batch means, Law
and Carson 1979). What a figure differs by from stretch to stretch is seen; what it would differ by in another process
is seen only where there are several, and is a few per cent on most machines. So both spreads have an informed variance,
scaled inverse chi-square with three degrees of freedom (Gelman et al., Bayesian Data Analysis, section 2.6), which data
replace as they come in. The figure itself is then Student's t around what was measured: with one process the interval
is wide and honest, not absent; a percentile bootstrap of two processes covers half of what it says.

Between processes a figure has a part that all figures share (the machine runs faster or slower as a whole) and a
smaller one of its own, so that the *shares* of a step are surer than its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xttsbench.records.base import Estimate

FloatArray = npt.NDArray[np.float64]
Columns = Mapping[str, FloatArray]
Statistic = Callable[[Columns], FloatArray]
"""From columns of shape (stretches, steps) to one number for each stretch."""

DRAWS: Final = 2000
_PROCESS_SPREAD: Final = 0.03  # What processes of one configuration differ by as a whole, before any data say so
_OWN_SPREAD: Final = 0.01  # What one figure differs by from process to process beyond that
STRETCH_SPREAD: Final = 0.03
"""Relative spread of a figure between stretches of one process, assumed before its own stretches show one."""
_FREEDOM: Final = 3.0
_LEAST: Final = 1e-3
"""No draw is below this share of its figure: times and rates are not negative, and quotients of them are finite."""
STRETCHES: Final = 8
"""Batch means of one process: enough to see their spread, few enough to be nearly independent."""


@dataclass(frozen=True)
class Pooled:
    """A figure over all processes: its value, and one value for each draw."""

    value: float
    resamples: FloatArray

    @classmethod
    def of(cls, entries: FloatArray) -> Pooled:
        """A figure computed of the :attr:`entries` of others."""
        return cls(float(entries[0]), entries[1:])

    @property
    def entries(self) -> FloatArray:
        """The value, then each draw: what is computed of these is a figure with its uncertainty."""
        return np.concatenate([[self.value], self.resamples])

    def estimate(self, level: float = 0.95) -> Estimate:
        """The value with its interval."""
        return interval_of(self.value, self.resamples, level)


@dataclass(frozen=True)
class Sample:
    """Figures of one segment in one process.

    Attributes:
        values: name -> figure over the whole segment.
        stretches: name -> the figure in each stretch, shape (stretches,), the same stretches for all names.
        weight: steps behind it: a process with four clean steps says less than one with eighteen.
        data: what it was measured on; processes with the same are one sample of the data. ``None``: no other has it.
    """

    values: Mapping[str, float]
    stretches: Columns
    weight: float
    data: Any = None


def interval_of(value: float, resamples: FloatArray, level: float = 0.95) -> Estimate:
    """A value with the central interval of its draws, widened to hold the value itself."""
    tail = (1 - level) / 2
    low, high = np.quantile(resamples, [tail, 1 - tail])
    return Estimate(estimate=value, low=min(float(low), value), high=max(float(high), value))


def ratio(above: Pooled | None, below: Pooled | None) -> Estimate | None:
    """One figure over another, of the same draws; ``None`` where either was not measured, or the second is 0."""
    if above is None or below is None or below.value <= 0:
        return None
    return interval_of(above.value / below.value, above.resamples / np.maximum(below.resamples, 1e-12))


def mean_of(name: str) -> Statistic:
    """The statistic that is the mean of a column."""
    return lambda columns: columns[name].mean(axis=1)


def stretches(rounds: npt.NDArray[np.int64]) -> list[npt.NDArray[np.intp]]:
    """Rows of each stretch: those of a round, cut evenly so that there are about eight in all.

    The numbers of the steps' rounds have the shape (steps,).
    """
    numbers = np.unique(rounds)
    each = max(STRETCHES // len(numbers), 1)
    found = []
    for number in numbers:
        rows = np.flatnonzero(rounds == number)
        found += [part for part in np.array_split(rows, min(each, len(rows))) if len(part)]
    return found


def sample(
    columns: Columns, statistics: Mapping[str, Statistic], rounds: npt.NDArray[np.int64] | None = None
) -> Sample:
    """The statistics of one process's steps.

    Each column has the shape (steps,), with one step at least; without ``rounds`` they are of one round.
    """
    count = len(next(iter(columns.values())))
    parts = stretches(np.zeros(count, dtype=np.int64) if rounds is None else rounds)

    def of(statistic: Statistic, rows: npt.NDArray[np.intp] | slice) -> float:
        return float(statistic({name: values[rows][np.newaxis, :] for name, values in columns.items()})[0])

    return Sample(
        values={name: of(statistic, slice(None)) for name, statistic in statistics.items()},
        stretches={name: np.array([of(one, rows) for rows in parts]) for name, one in statistics.items()},
        weight=float(count),
    )


def pool(
    processes: Sequence[Columns], statistics: Mapping[str, Statistic], rng: np.random.Generator
) -> dict[str, Pooled]:
    """Statistics over the steps of several processes, each weighted by its steps.

    Each column of a process has the shape (steps,), with one step at least; all statistics see the same draws.
    """
    found = {number: sample(columns, statistics) for number, columns in enumerate(processes)}
    return pool_together([found], rng)[0]


def pool_together(
    groups: Sequence[Mapping[Any, Sample]],
    rng: np.random.Generator,
    *,
    spread: float = 1.0,
    stretch_spread: float = STRETCH_SPREAD,
) -> list[dict[str, Pooled]]:
    """Figures of several segments, drawn together: what a process is faster by as a whole is in all of its segments.

    Args:
        groups: for each segment, process -> its sample. Names are the same within a group; the first name of a
            process's first group is the one that tells how fast that process was as a whole.
        rng: the only source of chance.
        spread: times what processes are taken to differ by before data say so; above 1 on a disturbed machine.
        stretch_spread: what stretches of a process are taken to differ by before data say so, as a share.

    Returns:
        For each segment name -> figure. Figures are times, rates and counts, none of them negative.
    """
    means = [_means(group) for group in groups]
    lead = _leads(groups, means)
    shared = _t_scale(np.array(list(lead.values())), _PROCESS_SPREAD * spread) * _share(groups[0]) if groups else 0.0
    whole = rng.standard_normal(DRAWS) * np.sqrt(_freedom(len(lead)) / rng.chisquare(_freedom(len(lead)), DRAWS))
    return [
        _drawn(group, values, lead, shared * whole, (_OWN_SPREAD * spread, stretch_spread), rng) if group else {}
        for group, values in zip(groups, means, strict=True)
    ]


def _drawn(
    group: Mapping[Any, Sample],
    values: Mapping[str, float],
    lead: Mapping[Any, float],
    whole: FloatArray,
    spreads: tuple[float, float],
    rng: np.random.Generator,
) -> dict[str, Pooled]:
    names = list(values)
    mean = np.array([values[name] for name in names])
    scale = np.where(mean != 0, np.abs(mean), 1.0)  # a figure that is 0 in all processes has no spread either
    own_spread, stretch_spread = spreads
    within, freedom = _within(group, names, scale, stretch_spread)
    root = _root(within)
    noise = rng.standard_normal((DRAWS, len(names))) @ root.T
    noise *= np.sqrt(freedom / rng.chisquare(freedom, DRAWS))[:, np.newaxis]
    share = _share(group)
    found = {}
    for index, name in enumerate(names):
        sign = np.sign(mean[index])
        own = np.array([one.values[name] / scale[index] - sign - lead[key] for key, one in group.items()])
        spread = _t_scale(own, own_spread) * share if mean[index] else 0.0
        alone = rng.standard_t(_freedom(len(group)), DRAWS) * spread
        drawn = mean[index] * (1 + whole + alone + sign * noise[:, index])
        found[name] = Pooled(float(mean[index]), np.maximum(drawn, _LEAST * mean[index]))
    return found


def _means(group: Mapping[Any, Sample]) -> dict[str, float]:
    total = sum(one.weight for one in group.values())
    names = next(iter(group.values())).values if group else ()
    return {name: sum(one.weight * one.values[name] for one in group.values()) / total for name in names}


def _leads(groups: Sequence[Mapping[Any, Sample]], means: Sequence[Mapping[str, float]]) -> dict[Any, float]:
    """Relative slowness of each process as a whole, from the first figure of its first group."""
    found: dict[Any, float] = {}
    for group, values in zip(groups, means, strict=True):
        for key, one in group.items():
            name, value = next(iter(one.values.items()))
            found.setdefault(key, value / values[name] - 1 if values[name] else 0.0)
    return found


def _freedom(processes: int) -> float:
    return _FREEDOM + max(processes, 1) - 1


def _t_scale(deviations: FloatArray, spread: float) -> float:
    """Scale of Student's t for one process, from deviations of processes and the informed variance."""
    squares = _FREEDOM * spread**2 + float((deviations**2).sum())
    return float(np.sqrt(squares / _freedom(len(deviations))))


def _share(group: Mapping[Any, Sample]) -> float:
    """Standard error of a weighted mean of processes over the spread of one."""
    weights = np.array([one.weight for one in group.values()])
    return float(np.sqrt((weights**2).sum()) / weights.sum())


def _within(
    group: Mapping[Any, Sample], names: Sequence[str], scale: FloatArray, stretch_spread: float
) -> tuple[npt.NDArray[np.float64], float]:
    """Covariance, relative to ``scale``, of the pooled figures for what stretches differ by; and its freedom."""
    total = sum(one.weight for one in group.values())
    scatter = _FREEDOM * stretch_spread**2 * np.eye(len(names))
    freedom = _FREEDOM
    alike: dict[Any, list[Sample]] = {}
    for key, one in group.items():
        alike.setdefault((one.data is None, key if one.data is None else one.data), []).append(one)
        rows = np.stack([one.stretches[name] for name in names]) / scale[:, np.newaxis]
        count = rows.shape[1]
        rows = rows - rows.mean(axis=1, keepdims=True)
        scatter = scatter + rows @ rows.T
        freedom += count - 1
    # What batches differ by is not averaged out by processes that saw the same ones.
    reach = sum(
        (sum(one.weight for one in same) / total) ** 2 / max(len(one.stretches[names[0]]) for one in same)
        for same in alike.values()
    )
    return scatter / freedom * reach, freedom


def _root(covariance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A square root of a covariance that may be singular: figures can be multiples of one another."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
