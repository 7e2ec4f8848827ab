"""Dependence of steps on the ones before them, and detection of a period.

Step times are autocorrelated without being periodic, and a white null then finds a "period" in most runs (60-86 % at
an autocorrelation of 0.6). The null here is an AR(1) process fitted to the series itself, guarded against the other
kinds of noise that step times have.

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

FloatArray = npt.NDArray[np.float64]


def varies(x: FloatArray) -> bool:
    """Whether the series is more than one number and its rounding."""
    return bool(x.size > 1 and np.ptp(x) > 1e-12 * np.abs(x).max())


def autocorrelation(x: npt.ArrayLike, max_lag: int) -> FloatArray:
    """Sample autocorrelation at lags 0 to ``max_lag``, shape ``(max_lag + 1,)`` (Box & Jenkins' biased estimate).

    Lags past the end of the series, and every lag but 0 of a constant one, are 0.
    """
    series = np.asarray(x, dtype=np.float64)
    result = np.zeros(max_lag + 1)
    result[0] = 1.0
    if not varies(series):
        return result
    centred = series - series.mean()
    n = series.size
    # Twice the length in zeros, so that the circular correlation of the FFT is the plain one.
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    covariance = np.fft.irfft(spectrum, 2 * n)[: min(max_lag + 1, n)]
    result[: covariance.size] = covariance / covariance[0]
    return result


def ljung_box(x: npt.ArrayLike, lags: int) -> float:
    """p-value that the first ``lags`` autocorrelations are all zero (Ljung & Box 1978); 1 for a constant series.

    Raises:
        ValueError: the series is not longer than ``lags``.
    """
    from scipy import special

    series = np.asarray(x, dtype=np.float64)
    n = series.size
    if not 1 <= lags < n:
        raise ValueError(f"Ljung-Box needs 1 lag at least and more steps than lags; got {lags} lags, {n} steps")
    rho = autocorrelation(series, lags)[1:]
    statistic = n * (n + 2) * float(np.sum(rho**2 / (n - np.arange(1, lags + 1))))
    return float(special.chdtrc(lags, statistic))


def effective_size(x: npt.ArrayLike) -> float:
    """Independent values that would give a mean as sure as this series does: ``n / (1 + 2 sum rho_k)``.

    The sum ends where pairs of neighbouring autocorrelations stop being positive and are made to fall (the initial
    monotone sequence of Geyer 1992, "Practical Markov chain Monte Carlo"). More than ``n`` where neighbours alternate,
    bounded at ``n log10 n`` as in Stan. ``n`` for a constant series.
    """
    series = np.asarray(x, dtype=np.float64)
    n = series.size
    if n < 4 or not varies(series):
        return float(n)
    rho = autocorrelation(series, n - 1)
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: negative[0]] if negative.size else pairs)
    most = n * max(1.0, float(np.log10(n)))
    return min(n / max(2 * float(pairs.sum()) - 1, n / most), most)


_PHI_LIMITS: Final = (-0.6, 0.97)
"""Bounds on the null's coefficient. Below: jitter of the clock between steps gives -0.5, but an alternation of two
levels (-1) has to stay a period. Above: a random walk has no spectrum."""

_TAPERED_SHARE: Final = 0.2
"""Share of the series under the taper's two cosine flanks. Enough against leakage from slow noise into the harmonics;
a full Hann window would cost a third of the power of a peak."""

_SLOW_PHI: Final = 0.9
LEVEL: Final = 0.01
"""Probability of a false alarm over all periods or frequencies."""


@dataclass(frozen=True, slots=True)
class Periodogram:
    """Power by frequency, all arrays of shape ``(n // 2,)``; power is in squared units of the series."""

    frequency: FloatArray
    """Cycles per step, 1/n to 1/2."""
    power: FloatArray
    """White noise of variance v has power v at every frequency."""
    null: FloatArray
    """Expected power of the fitted noise, see :func:`red_noise`."""
    threshold: FloatArray
    """Power that noise exceeds at some frequency in 1 % of the series."""


def prepare(rows: FloatArray) -> FloatArray:
    """Rows without their mean and linear trend; drift is not a period. Shape ``(rows, n)``."""
    time = np.arange(rows.shape[1]) - (rows.shape[1] - 1) / 2
    centred = rows - rows.mean(axis=1, keepdims=True)
    slope = centred @ time / (time @ time)
    return np.asarray(centred - slope[:, np.newaxis] * time)


def ar1(rows: FloatArray) -> FloatArray:
    """Lag-1 coefficient of each prepared row, corrected for its bias (Marriott & Pope 1954) and bounded."""
    square = np.sum(rows**2, axis=1)
    rho = np.divide(np.sum(rows[:, 1:] * rows[:, :-1], axis=1), square, out=np.zeros_like(square), where=square > 0)
    # The trend that was taken out costs as much again as the mean: Kendall's (1 + 3 rho)/n becomes (2 + 4 rho)/n.
    return np.asarray(np.clip(rho + (2 + 4 * rho) / rows.shape[1], *_PHI_LIMITS))


def red_noise(phi: FloatArray, variance: FloatArray, frequency: FloatArray) -> FloatArray:
    """Expected power without a period, shape ``(rows, frequencies)``, in the units of :class:`Periodogram`.

    The spectrum of AR(1) noise, but nowhere below that of the two other common kinds with the same lag-1 correlation,
    in which the AR(1) alone would name a period in a tenth of the runs. Slow noise under white noise (a busy
    neighbour, a drifting clock rate) has more power at low frequencies. Jitter of the moment at which a step ends
    lengthens one step and shortens the next, which is MA(1) noise and has more power at middle ones.
    """
    rho = phi[:, np.newaxis]
    cosine = np.cos(2 * np.pi * frequency)
    slow = rho / _SLOW_PHI
    mixed = np.where((rho > 0) & (slow < 1), 1 - slow + slow * _ar1_shape(np.float64(_SLOW_PHI), cosine), 0)
    jitter = np.where(rho < 0, 1 + 2 * rho * cosine, 0)
    return variance[:, np.newaxis] * np.maximum(_ar1_shape(rho, cosine), np.maximum(mixed, jitter))


def _ar1_shape(phi: FloatArray | np.float64, cosine: FloatArray) -> FloatArray:
    """Spectrum of AR(1) noise of unit variance, from the cosine of the angular frequency."""
    return np.asarray((1 - phi**2) / (1 + phi**2 - 2 * phi * cosine))


def taper(n: int) -> FloatArray:
    """Cosine-flanked window (Tukey 1967) of unit mean square, shape ``(n,)``."""
    distance = np.minimum(np.arange(n) + 0.5, n - np.arange(n) - 0.5)
    flank = np.clip(distance / (n * _TAPERED_SHARE / 2), 0, 1)
    window = (1 - np.cos(np.pi * flank)) / 2
    return np.asarray(window / np.sqrt(np.mean(window**2)))


def power(rows: FloatArray, padded: int) -> FloatArray:
    """Tapered power of prepared rows at frequencies ``k / padded``, ``k`` from 0 to ``padded // 2``."""
    n = rows.shape[1]
    return np.asarray(np.abs(np.fft.rfft(rows * taper(n), padded, axis=1)) ** 2 / n)


def periodogram(x: npt.ArrayLike) -> Periodogram:
    """Tapered periodogram with its AR(1) null and the global 1 % threshold (exponential ordinates, all independent)."""
    series = np.asarray(x, dtype=np.float64)
    n = series.size
    rows = prepare(series[np.newaxis])
    frequency = np.arange(1, n // 2 + 1) / n
    null = red_noise(ar1(rows), rows.var(axis=1), frequency)[0]
    quantile = -np.log1p(-((1 - LEVEL) ** (1 / frequency.size)))
    return Periodogram(frequency, power(rows, n)[0, 1:], null, null * quantile)


IntArray = npt.NDArray[np.int64]

MIN_STEPS: Final = 64
MOST_STEPS: Final = 8192
"""Most steps that are searched, in some seconds: the last ones of a longer series. Periods are tens of steps, not
thousands.
"""
MIN_CYCLES: Final = 4
"""A period has to be seen this often: none longer than a quarter of the series is claimed."""
_PADDING: Final = 8
_CLIP: Final = 10.0
"""Robust standard deviations at which an outlier is cut, so that one long stall does not hide the rest."""
_FEW_STALLS: Final = 16
_LARGE: Final = 0.3  # Share of the largest excess from which a stall is of its kind
_PLACES: Final = 10_000  # Draws of random places
_SURROGATES: Final = 200
_BATCH: Final = 20
"""Surrogates made at once: few, to keep the memory small and to stop early where they score as high as the steps."""
_SEED: Final = 20090601  # Fixed: the same steps give the same answer


@dataclass(frozen=True, slots=True)
class Period:
    """A period that noise does not explain."""

    period_steps: float
    """The fundamental, in steps."""
    variance_share: float
    """Share of the variance (trend out, outliers cut at ten robust standard deviations) in the folded profile."""
    p_value: float
    """Over all periods searched; 0.005 is the smallest that the surrogates can give."""


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
        # A candidate's values of all rows lie side by side, since harmonics are gathered by candidate.
        relative = np.ascontiguousarray(relative.T)
        total = np.zeros((self.frequency.size, rows.shape[0]))
        best = np.full_like(total, -np.inf)
        harmonics = np.ones(total.shape, dtype=np.int64)
        for k in range(1, int(0.5 / self.frequency[0]) + 1):
            # The candidates whose k-th harmonic lies at or below Nyquist come first.
            count = int(np.searchsorted(self.frequency, 0.5 / k * (1 + 1e-9), side="right"))
            index = np.rint(k * self.frequency[:count] * self.padded).astype(np.int64)
            score = total[:count]
            score += relative[np.minimum(index, grid.size - 1)]
            if k > 1:
                score -= 4
            np.copyto(harmonics[:count], k, where=score > best[:count])
            np.maximum(best[:count], score, out=best[:count])
        return best.T, harmonics.T


def find_period(x: npt.ArrayLike) -> Period | None:
    """The fundamental period of a series, or ``None`` where red noise explains it (global level 1 %).

    It may be anything that is sampled once per step, shape ``(n,)``, in any unit, since only ratios matter.

    Returns:
        ``None`` too for fewer than 64 steps and for a constant series. No period longer than ``n / 4`` is claimed,
        with ``n`` at most :data:`MOST_STEPS`.
    """
    series = np.asarray(x, dtype=np.float64)[-MOST_STEPS:]
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


def regular_stalls(x: npt.ArrayLike, stalls: npt.ArrayLike) -> Period | None:
    """Period of a few stalls that come as regularly as stalls at random places hardly ever do (level 1 %).

    Three may be enough, where a spectrum takes :data:`MIN_CYCLES` cycles: a checkpoint every hundred steps shows in
    300. ``stalls`` are indices of the series, ascending. The large ones count, and of several in a row the first.
    Chance is how often as many random places have gaps that are alike to as many steps.
    """
    series, places = np.asarray(x, dtype=np.float64), np.asarray(stalls, dtype=np.int64)
    excess = series[places] - np.median(series)
    places = places[excess >= _LARGE * max(excess, default=0.0)]
    first = places[np.diff(places, prepend=-2) > 1]
    gaps = np.diff(first)
    if series.size < MIN_STEPS or not 2 <= gaps.size <= _FEW_STALLS:
        return None
    rng = np.random.default_rng(_SEED)
    random = np.diff(np.sort(rng.integers(0, series.size, (_PLACES, first.size)), axis=1), axis=1)
    p_value = (1 + np.count_nonzero(np.ptp(random, axis=1) <= np.ptp(gaps))) / (1 + _PLACES)
    if p_value > LEVEL:
        return None
    between = np.delete(series, places)
    share = 1 - float(((between - between.mean()) ** 2).sum()) / float(((series - series.mean()) ** 2).sum())
    return Period(float(gaps.mean()), share, p_value)


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
    held = np.zeros(trial.size)
    fundamental = np.exp(-2j * np.pi * np.outer(trial, np.arange(n)))
    turned = series * taper(n) + np.zeros_like(fundamental)
    for _ in range(harmonics):
        turned *= fundamental
        held += np.abs(turned.sum(axis=1)) ** 2
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
