"""Whether the steps have a period, and which.

A smooth oscillation is one peak of the periodogram; a stall every 16 steps is a comb of equal harmonics, none of which
need stand out. The H statistic (de Jager, Raubenheimer & Swanepoel 1989, from pulsar astronomy) sums the harmonics of
every candidate and charges for each, so it sees both, and its best candidate is the fundamental. Power is taken
relative to the red-noise null. Chance is judged by surrogates, AR(1) series whose innovations are the series' own in
random order, so that heavy tails and rare stalls at random places raise no false alarm. What passes is confirmed by
folding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.autocorrelation import varies
from xttsbench.analysis.periodogram import ar1, power, prepare, red_noise, taper

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MIN_STEPS: Final = 64
MIN_CYCLES: Final = 4
"""A period has to be seen this often: none longer than a quarter of the series is claimed."""
LEVEL: Final = 0.01

_PADDING: Final = 8
_CLIP: Final = 10.0
"""Robust standard deviations at which an outlier is cut, so that one long stall does not hide the rest."""
_SURROGATES: Final = 500
_BATCH: Final = 20
"""Surrogates made at once: few, to keep the memory small and to stop early where they score as high as the steps."""
_SEED: Final = 20090601
"""Fixed: the same steps give the same answer."""


@dataclass(frozen=True, slots=True)
class Period:
    """A period that noise does not explain."""

    period_steps: float
    """The fundamental, in steps."""
    variance_share: float
    """Share of the variance (trend out, outliers cut at ten robust standard deviations) in the folded profile."""
    p_value: float
    """Over all periods searched; 0.002 is the smallest that the surrogates can give."""


@dataclass(frozen=True, slots=True)
class _Comb:
    """The candidates: index of each one's fundamental on the padded frequency grid."""

    padded: int
    frequency: FloatArray
    """Cycles per step, ascending."""

    @classmethod
    def of(cls, n: int) -> _Comb:
        """Every eighth of a Fourier frequency, and every whole number of steps, from n/4 steps to 2."""
        padded = _PADDING * n
        grid = np.arange(MIN_CYCLES * _PADDING, padded // 2 + 1) / padded
        return cls(padded, np.unique(np.concatenate([grid, 1 / np.arange(2, n // MIN_CYCLES + 1)])))

    def score(self, rows: FloatArray) -> tuple[FloatArray, IntArray]:
        """H of each row and candidate, and the number of harmonics that gives it; both ``(rows, candidates)``."""
        rows = prepare(rows)
        grid = np.arange(self.padded // 2 + 1) / self.padded
        null = red_noise(ar1(rows), rows.var(axis=1), grid)
        relative = 2 * np.divide(power(rows, self.padded), null, out=np.zeros_like(null), where=null > 0)
        total = np.zeros((rows.shape[0], self.frequency.size))
        best = np.full_like(total, -np.inf)
        harmonics = np.ones(total.shape, dtype=np.int64)
        for k in range(1, int(0.5 / self.frequency[0]) + 1):
            # The candidates whose k-th harmonic lies at or below Nyquist come first.
            count = int(np.searchsorted(self.frequency, 0.5 / k * (1 + 1e-9), side="right"))
            index = np.rint(k * self.frequency[:count] * self.padded).astype(np.int64)
            total[:, :count] += relative[:, np.minimum(index, grid.size - 1)]
            if k > 1:
                total[:, :count] -= 4
            better = total[:, :count] > best[:, :count]
            best[:, :count][better] = total[:, :count][better]
            harmonics[:, :count][better] = k
        return best, harmonics


def find_period(x: npt.ArrayLike) -> Period | None:
    """The fundamental period of a series, or ``None`` where red noise explains it (global level 1 %).

    Args:
        x: step times, or anything sampled once per step, shape ``(n,)``; any unit, since only ratios matter.

    Returns:
        ``None`` too for fewer than 64 steps and for a constant series. No period longer than ``n / 4`` is claimed.
    """
    series = np.asarray(x, dtype=np.float64)
    if series.size < MIN_STEPS or not varies(series):
        return None
    row = prepare(_clipped(series)[np.newaxis])
    if row.std() <= 1e-9 * series.std():
        return None  # a straight line and its rounding
    comb = _Comb.of(series.size)
    scores, harmonics = (part[0] for part in comb.score(row))
    p_value = _chance(comb, row, float(scores.max()))
    if p_value > LEVEL:
        return None
    chosen = _fundamental(comb, scores)
    period = _refined(row[0], float(comb.frequency[chosen]), int(harmonics[chosen]))
    if period > series.size / MIN_CYCLES:
        return None  # the flank of something slower
    share = _confirmed_share(row[0], period)
    return None if share is None else Period(period, share, p_value)


def _clipped(series: FloatArray) -> FloatArray:
    """The series with outliers cut; as it is where more than half of it is one value."""
    middle = np.median(series)
    reach = _CLIP * 1.4826 * np.median(np.abs(series - middle))
    return np.clip(series, middle - reach, middle + reach) if reach > 0 else series


def _chance(comb: _Comb, row: FloatArray, observed: float) -> float:
    """p-value of the best score; few surrogates where those already show that it is nothing."""
    rng = np.random.default_rng(_SEED)
    exceeding = made = 0
    while made < _SURROGATES and (1 + exceeding) / (1 + _SURROGATES) <= LEVEL:
        scores, _ = comb.score(_surrogates(row, _BATCH, rng))
        exceeding += int(np.count_nonzero(scores.max(axis=1) >= observed))
        made += _BATCH
    return (1 + exceeding) / (1 + made)


def _surrogates(row: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """AR(1) series with the innovations of the prepared row in random order, shape ``(count, n)``."""
    phi = float(ar1(row)[0])
    innovations = row[0, 1:] - phi * row[0, :-1]
    innovations = np.append(innovations, np.median(innovations))
    shuffled = rng.permuted(np.tile(innovations, (count, 1)), axis=1)
    # Run in on its own end, so that the recursion has forgotten its start before the series begins.
    run_in = min(row.shape[1], 128)
    noise = np.hstack([shuffled[:, -run_in:], shuffled]).T.copy()
    for now in range(1, noise.shape[0]):
        noise[now] += phi * noise[now - 1]
    return noise[run_in:].T


def _fundamental(comb: _Comb, scores: FloatArray) -> int:
    """Candidate of the smallest lag that explains the peaks as well as the best one.

    Noise can lift a multiple of the true period above it; a whole fraction of the best lag that scores three quarters
    as much is taken instead. Half the lag of a comb of stalls has half the harmonics, and is not.
    """
    frequency = comb.frequency
    best = int(np.argmax(scores))
    for divisor in range(int(0.5 / frequency[best] + 1e-9), 1, -1):
        target = divisor * frequency[best]
        near = np.flatnonzero(np.abs(frequency - target) <= 1 / comb.padded)
        if near.size and scores[near].max() >= 0.75 * scores[best]:
            return int(near[np.argmax(scores[near])])
    return best


def _refined(series: FloatArray, frequency: float, harmonics: int) -> float:
    """Period at which the harmonics hold the most power, in steps; a whole number where that is as good."""
    n = series.size
    around = frequency + np.linspace(-1, 1, 41) / (_PADDING * n)
    whole = 1 / max(2, round(1 / frequency))
    trial = np.clip(np.append(around, whole), 0, 0.5)
    tapered = series * taper(n)
    held = np.zeros(trial.size)
    for k in range(1, harmonics + 1):
        held += np.abs(np.exp(-2j * np.pi * k * np.outer(trial, np.arange(n))) @ tapered) ** 2
    # Work is done every so many batches: within the resolution, the whole number is the better guess.
    return 1 / float(whole if held[-1] >= 0.98 * held.max() else trial[np.argmax(held)])


def _confirmed_share(series: FloatArray, period: float) -> float | None:
    """Share of the variance in the profile folded at the period, or ``None`` where odd and even cycles disagree."""
    time = np.arange(series.size)
    bins = max(2, int(np.ceil(period - 0.1)))
    phase = np.minimum((time % period / period * bins + 1e-9).astype(np.int64), bins - 1)
    odd = (time // period).astype(np.int64) % 2 == 1
    count = np.stack([np.bincount(phase[part], minlength=bins) for part in (odd, ~odd)])
    total = np.stack([np.bincount(phase[part], series[part], minlength=bins) for part in (odd, ~odd)])
    seen = (count > 0).all(axis=0)
    count, total = count[:, seen], total[:, seen]
    profiles = total / count
    centred = profiles - profiles.mean(axis=1, keepdims=True)
    spread = float(np.sqrt((centred**2).sum(axis=1).prod()))
    if spread == 0 or float(centred.prod(axis=0).sum()) < 0.2 * spread:
        return None
    # Adjusted for the bins (as adjusted R squared is): a profile of noise explains nothing.
    whole = float(np.sum(series**2))
    between = float(np.sum(total.sum(axis=0) ** 2 / count.sum(axis=0)))
    share = float(1 - (whole - between) / whole * (series.size - 1) / (series.size - count.shape[1]))
    return min(max(share, 0.0), 1.0)
