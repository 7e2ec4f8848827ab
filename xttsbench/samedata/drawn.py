r"""Whether random values look drawn from the same distribution: two-sample tests on the sketches of the samples.

Each number of a sketch is compared by the test of Kolmogorov and Smirnov, as it is and by its distance from the median
(which sees a change of scale), at a level that Bonferroni's correction makes ``LEVEL`` for all tests together. Samples
at the same place are the same but for what was drawn, so that differences of two runs are compared and what samples
have of their own drops out. Samples that share a draw are worth fewer independent ones: their number is divided by the
design effect :math:`1 + (m - 1) \rho` of Kish (1965), with :math:`\rho` the intraclass correlation of the ranks (from
the analysis of variance) and :math:`m` the typical size of a group, those of one element or of one epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from xttsbench.samedata.runs import Codes, Floats, Run, aligned

_SURE_F: Final = 20.0
"""Ratio of variances between and within epochs from which on they differ; with two epochs, 1 in 100,000 by chance."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Numbers of one run or several, with the element and the epoch that each row was in."""

    values: Floats
    """Rows x numbers."""
    elements: Codes
    epochs: Codes

    def rows(self, chosen: Codes, less: Floats) -> Sample:
        """Sample of the chosen rows, with ``less`` subtracted from their values."""
        return Sample(self.values[chosen] - less, self.elements[chosen], self.epochs[chosen])

    def worth(self, values: Floats) -> float:
        """Effective number of independent values among these, one of each row."""
        return _worth(values, self._by_element)[0]

    def epochs_differ(self, values: Floats) -> bool:
        """Whether whole epochs share what was drawn: then there are no more draws than epochs."""
        return _worth(values, self._by_epoch)[1] > _SURE_F

    @cached_property
    def _by_element(self) -> tuple[Codes, Codes]:
        return _groups(self.elements)

    @cached_property
    def _by_epoch(self) -> tuple[Codes, Codes]:
        return _groups(self.epochs)


def sample(run: Run, values: Floats) -> Sample:
    """Numbers of the rows of a run."""
    epochs = np.repeat(np.arange(len(run.passes)), [part.rows for part in run.passes]).astype(np.int64)
    # Rows after the last whole round of an endless dataset are in no epoch.
    return Sample(values[: epochs.size], run.elements[: epochs.size], epochs)


def _groups(numbers: Codes) -> tuple[Codes, Codes]:
    """Group of each row, rows of a number being one, and the sizes of the groups."""
    _, inverse, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
    return inverse, sizes


def _worth(values: Floats, groups: tuple[Codes, Codes]) -> tuple[float, float]:
    """Independent values, and the ratio of the variances between and within groups."""
    inverse, sizes = groups
    total, count = values.size, sizes.size
    if total <= count:
        return float(total), 0.0
    if count < 2:
        return 1.0, 0.0
    # Ranks, since one far value must not decide; equal values have equal ones.
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties + 1) / 2)[place]
    means = np.bincount(inverse, ranks) / sizes
    between = float((sizes * (means - ranks.mean()) ** 2).sum() / (count - 1))
    within = float(((ranks - means[inverse]) ** 2).sum() / (total - count))
    typical = (total - float((sizes**2).sum()) / total) / (count - 1)
    spread = between + (typical - 1) * within
    share = min(max((between - within) / spread, 0.0), 1.0) if spread > 0 else 0.0
    ratio = between / within if within > 0 else float("inf") if between > 0 else 0.0
    return total / (1 + (typical - 1) * share), ratio


LEVEL: Final = 1e-4
"""Probability of a false alarm, over all tests of one comparison."""
LEAST_ROWS: Final = 20
"""Independent draws of each side; fewer tell nothing."""
_LAGS: Final = 32
_SURE_Z: Final = 7.0  # Of the correlation of neighbours, over all lags and numbers of a sketch
_MOST_CATEGORIES: Final = 20
_FEW_PER_CATEGORY: Final = 5
"""Rows of a value on average, from which on a component without sketches is compared by how often each value comes."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Whether a component's values look drawn alike."""

    alike: bool | None
    sentence: str = ""
    rows: int = 0
    """Independent draws of the fixed run that were compared."""


def drawn_alike(originals: Sequence[Run], fixed: Run, column: int, *, tests: int) -> Drawn:
    """Compare what was drawn for one component; the same place holds the same sample in all runs.

    The originals differ from one another, the one with the fixed run's seed first; ``tests`` components are tested
    together.
    """
    *before, after = [run.sketches[column] for run in (*originals, fixed)]
    widths = {table.shape[1] for table in (*before, after) if table is not None}
    if after is None or any(table is None for table in before) or len(widths) != 1:
        return _categories(originals, fixed, column, tests)
    whole = [sample(run, table) for table, run in zip(before, originals, strict=True) if table is not None]
    now = sample(fixed, after)
    if len(originals) == 1:
        return _judged(whole, now, tests)
    if _judged(whole[:1], whole[-1], tests).alike is False:
        return Drawn(None, "its values differ from run to run of the original by more than independent draws do")
    return _in_place(originals, fixed, whole, now, tests)


def _in_place(originals: Sequence[Run], fixed: Run, whole: Sequence[Sample], now: Sample, tests: int) -> Drawn:
    """Differences from the run with the other seed: that with the same seed may share draws with the fixed one."""
    first, other, mine = aligned(originals[0], originals[-1], fixed)
    reference = whole[-1].values[other]
    before, after = whole[0].rows(first, reference), now.rows(mine, reference)
    found = _judged([before], after, tests)
    if found.alike and (lag := _shared_draws(before, after)):
        return Drawn(False, f"what it draws is correlated with what it drew {lag} samples before", found.rows)
    return found


def _judged(before: Sequence[Sample], now: Sample, tests: int) -> Drawn:
    past = _together(before)
    numbers = past.values.shape[1]
    level = LEVEL / (2 * numbers * max(tests, 1))
    looks = [look for number in range(numbers) for look in _looks(past.values[:, number], now.values[:, number])]
    if any(past.epochs_differ(first) or now.epochs_differ(second) for first, second in looks):
        return Drawn(None, "whole epochs share what is drawn, and there are too few of them")
    least, alike = float("inf"), True
    for first, second in looks:
        ours, theirs = past.worth(first), now.worth(second)
        least = min(least, ours, theirs)
        alike = alike and (min(ours, theirs) < LEAST_ROWS or _smirnov(first, second, ours, theirs) >= level)
    if not alike:
        return Drawn(False, "its values are drawn from another distribution")
    return _seen(least, len(now.values))


def _seen(least: float, rows: int) -> Drawn:
    """Result for samples that look alike, if enough independent draws were compared; all rows where no value varies."""
    if least < LEAST_ROWS:
        return Drawn(None, f"only about {least:.0f} independent draws were seen, at least {LEAST_ROWS} are needed")
    return Drawn(True, rows=rows if least == float("inf") else int(least))


def _looks(first: Floats, second: Floats) -> Iterator[tuple[Floats, Floats]]:
    """The numbers as they are, and by their distance from the median; nothing where all are the same."""
    if not first.size or not second.size:
        yield first, second
        return
    if np.ptp(np.concatenate([first, second])) == 0:
        return
    yield first, second
    middle = np.median(np.concatenate([first, second]))
    yield np.abs(first - middle), np.abs(second - middle)


def _smirnov(first: Floats, second: Floats, count: float, other_count: float) -> float:
    """The asymptotic p of Smirnov's two-sample test, for so many independent values of each; ties make it larger."""
    from scipy import special

    places = np.concatenate([first, second])
    gap = np.abs(
        np.searchsorted(np.sort(first), places, side="right") / first.size
        - np.searchsorted(np.sort(second), places, side="right") / second.size
    ).max()
    return float(special.kolmogorov(gap * np.sqrt(count * other_count / (count + other_count))))


def _shared_draws(before: Sample, after: Sample) -> int | None:
    """The lag at which neighbours of the fixed run are correlated, and those of the original are not."""
    most = min(_LAGS, len(after.values) // 4, len(before.values) // 4)
    past, now = (_ranked(drawn) if most else [] for drawn in (before, after))
    return next(
        (lag for lag in range(1, most + 1) if _lag_z(now, lag) > _SURE_Z and _lag_z(past, lag) < _SURE_Z / 2), None
    )


def _ranked(drawn: Sample) -> list[tuple[Floats, float]]:
    """Ranks of each varying number, centred and in standard deviations, with its effective sample size."""
    found = []
    for values in drawn.values.T:
        if np.ptp(values) > 0:
            ranks = np.argsort(np.argsort(values)) - (values.size - 1) / 2
            found.append((ranks / np.sqrt((ranks**2).mean()), drawn.worth(values)))
    return found


def _lag_z(ranked: Sequence[tuple[Floats, float]], lag: int) -> float:
    """The largest rank correlation of values ``lag`` rows apart, over the numbers, in standard errors."""
    correlations = (
        abs(float((ranks[lag:] * ranks[:-lag]).mean())) * np.sqrt(worth * (1 - lag / ranks.size))
        for ranks, worth in ranked
    )
    return max(correlations, default=0.0)


def _categories(originals: Sequence[Run], fixed: Run, column: int, tests: int) -> Drawn:
    """Compare how often each value comes, where there are few of them."""
    before = _together([sample(run, run.codes[:, [column]].astype(np.float64)) for run in originals])
    after = sample(fixed, fixed.codes[:, [column]].astype(np.float64))
    past, now = before.values[:, 0], after.values[:, 0]
    kinds, counts = np.unique(np.concatenate([past, now]), return_counts=True)
    few = kinds.size <= _MOST_CATEGORIES and past.size + now.size >= _FEW_PER_CATEGORY * kinds.size
    if not now.size or not past.size or not few:
        return Drawn(None, "its values vary, are no floats, and are too many to be counted")
    level, least = LEVEL / (kinds.size * max(tests, 1)), float("inf")
    for kind in kinds[np.argsort(-counts)]:
        a, b = (past == kind).astype(np.float64), (now == kind).astype(np.float64)
        ours, theirs = before.worth(a), after.worth(b)
        least = min(least, ours, theirs)
        if min(ours, theirs) >= LEAST_ROWS and _smirnov(a, b, ours, theirs) < level:
            return Drawn(False, "its values come in other shares than before", int(theirs))
    return _seen(least, now.size)


def _together(samples: Sequence[Sample]) -> Sample:
    """One sample of several runs; their elements and epochs stay apart."""
    runs = range(len(samples))
    elements = [samples[run].elements * len(samples) + run for run in runs]
    epochs = [samples[run].epochs * len(samples) + run for run in runs]
    return Sample(np.concatenate([one.values for one in samples]), np.concatenate(elements), np.concatenate(epochs))
