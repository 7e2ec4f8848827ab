"""Why steps differ: what the length of the batch explains, stragglers, and variation as a vector.

In speech a batch of longer sentences takes longer, and that is no fault. So the length effect is taken out first, by
estimators that a stall does not move, and only then are outlying steps looked for.

No single number tells an input stall every 16 steps from noise, so the record of variation holds several (how wide, how
remembered, how periodic, how bursty), and a reason for each one that the steps at hand cannot give.

Whether a series rises or falls over its whole length is told apart from noise that is merely slow: the variance of the
test of Mann and Kendall is inflated by what the series remembers, estimated on what is left when the slope is taken out
(Hamed & Rao 1998, "A modified Mann-Kendall trend test for autocorrelated data").
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.rhythm import (
    LEVEL,
    MIN_CYCLES,
    autocorrelation,
    effective_size,
    find_period,
    ljung_box,
    regular_stalls,
    varies,
)
from xttsbench.analysis.rhythm import MIN_STEPS as MIN_PERIOD_STEPS
from xttsbench.records.report import Oscillation

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MIN_STEPS: Final = 20
_FIT_STEPS: Final = 600  # Theil-Sen looks at every pair of steps; longer runs are thinned evenly to so many

_FACTOR: Final = 1.5
_SIGMAS: Final = 5.0
"""Robust standard deviations above the median that a straggler needs beside the factor: in noisy steps a factor alone
would name ordinary ones."""


@dataclass(frozen=True, slots=True)
class LengthVariance:
    """Effect of the number of elements in the batch on the step time."""

    share: float
    """Share of the variance that it explains, 0..1, outlying steps set aside."""
    slope_s_per_element: float
    p_value: float
    """P-value of the rank correlation, with the autocorrelation of both series considered."""


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Steps that took far longer than the others."""

    indices: IntArray
    threshold_s: float
    excess_s_per_step: float
    """Seconds of stragglers beyond the median, spread over all steps: means add."""
    share_of_time: float
    """The same as a share of the whole time, 0..1."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Length and stragglers told apart."""

    length: LengthVariance | None
    """``None`` where all batches are equal or there are too few."""
    adjusted_s: FloatArray
    """Step times corrected to the median batch length, in seconds."""
    stragglers: Stragglers
    """Stragglers among those."""


def length_variance(step_s: npt.ArrayLike, batch_elements: npt.ArrayLike) -> LengthVariance | None:
    """Estimates the share of the step-time variance that batch length explains, robust against stalls.

    The slope is Theil & Sen's (median of the slopes of all pairs); the share is ``V / (V + R)`` with V the variance of
    the fitted times and R that of the residuals cut at three robust standard deviations. The p-value is Spearman's, on
    a sample size corrected for autocorrelation (Dawdy & Matalas 1964), since batches sorted by length beside drifting
    steps correlate by chance. The elements of a batch may be its frames, or any other measure of its length.

    Returns:
        ``None`` where all batches are equal or there are fewer than 20 steps.
    """
    from scipy import special

    steps, elements = np.asarray(step_s, dtype=np.float64), np.asarray(batch_elements, dtype=np.float64)
    if steps.size < MIN_STEPS or np.ptp(elements) == 0:
        return None
    thinned = np.unique(np.linspace(0, steps.size - 1, min(steps.size, _FIT_STEPS)).astype(np.int64))
    if np.ptp(elements[thinned]) == 0:
        return None
    rises, runs = _of_pairs(steps[thinned]), _of_pairs(elements[thinned])
    slope = _median_slope(rises, runs)
    residuals = steps - slope * elements
    residuals -= np.median(residuals)
    spread = 3 * _robust_sd(residuals)
    explained = slope**2 * float(elements.var())
    unexplained = float(np.clip(residuals, -spread, spread).var())
    share = explained / (explained + unexplained) if explained > 0 else 0.0

    ranks = [_ranks(column) for column in (steps, elements)]
    if np.ptp(steps) == 0:
        return LengthVariance(share, slope, 1.0)
    rho = _correlation(*ranks)
    memory = float(np.prod([_correlation(rank[1:], rank[:-1]) for rank in ranks]))
    memory = min(max(memory, 0.0), 0.99)
    freedom = max(steps.size * (1 - memory) / (1 + memory) - 2, 1)
    t = abs(rho) * np.sqrt(freedom / max(1 - rho**2, 1e-15))
    return LengthVariance(share, slope, min(1.0, float(2 * special.stdtr(freedom, -t))))


def stragglers(step_s: npt.ArrayLike) -> Stragglers:
    """Steps that outlie the others: above 1.5 medians and above the median by five robust standard deviations.

    Where batches differ in length, the times are adjusted (:func:`explain`). There is one step at least.
    """
    steps = np.asarray(step_s, dtype=np.float64)
    median = float(np.median(steps))
    threshold_s = max(_FACTOR * median, median + _SIGMAS * _robust_sd(steps))
    indices = np.flatnonzero(steps > threshold_s)
    excess_s = float(np.sum(steps[indices] - median)) / steps.size
    mean_s = float(steps.mean())
    return Stragglers(indices, threshold_s, excess_s, excess_s / mean_s if mean_s > 0 else 0.0)


def explain(step_s: npt.ArrayLike, batch_elements: npt.ArrayLike) -> Explanation:
    """Tell length from stragglers: the length effect first, then the outlying steps of what it leaves.

    Length is taken out only where the step time is known to rise with it (p below 1 %). There is one step at least.
    """
    steps, elements = np.asarray(step_s, dtype=np.float64), np.asarray(batch_elements, dtype=np.float64)
    length = length_variance(steps, elements)
    if length is not None and length.p_value < LEVEL:
        steps = steps - length.slope_s_per_element * (elements - np.median(elements))
    return Explanation(length, steps, stragglers(steps))


def _of_pairs(x: FloatArray) -> FloatArray:
    """Differences of each value and each earlier one, in the order of ``np.triu_indices``."""
    return np.concatenate([x[first + 1 :] - x[first] for first in range(x.size - 1)])


def _median_slope(rises: FloatArray, runs: FloatArray) -> float:
    """Theil & Sen's slope, of what :func:`_of_pairs` gives; not all runs may be 0."""
    apart = runs != 0
    return float(np.median(rises[apart] / runs[apart]))


def _ranks(x: FloatArray) -> FloatArray:
    """Ranks from 1, and equal values share the mean of theirs: SciPy's, whose module takes half a second to load."""
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])


def _correlation(x: FloatArray, y: FloatArray) -> float:
    return float(np.asarray(np.corrcoef(x, y))[0, 1])


def _robust_sd(x: FloatArray) -> float:
    """1.4826 times the median absolute deviation: the standard deviation of normal noise, outliers or not."""
    return 1.4826 * float(np.median(np.abs(x - np.median(x))))


_MIN_P99_STEPS: Final = 100
_MIN_STALLS: Final = 10
_WANTED_PERIOD_STEPS: Final = 400  # Below this a period is still searched, but a miss says little


def robust_cv(x: npt.ArrayLike) -> float:
    """Robust coefficient of variation, ``1.4826 MAD / median`` (the constant makes it the CV of normal noise).

    The median is positive.
    """
    series = np.asarray(x, dtype=np.float64)
    return _robust_sd(series) / float(np.median(series))


def burstiness(gaps: npt.ArrayLike) -> float:
    """Burstiness of the gaps between events: -1 regular, 0 at random (Poisson), towards 1 in bursts.

    ``(sigma - mu) / (sigma + mu)`` (Goh & Barabasi 2008) with the correction for few events of Kim & Jo 2016,
    "Measuring burstiness for finite event sequences", without which a short regular or random series looks alike. There
    are two gaps at least.
    """
    lengths = np.asarray(gaps, dtype=np.float64)
    ratio = float(lengths.std() / lengths.mean())
    above, below = np.sqrt(lengths.size + 1) * ratio, np.sqrt(lengths.size - 1)
    return float((above - below) / (above - 2 * ratio + below))


def oscillation(wall_s: npt.ArrayLike, every_s: npt.ArrayLike | None = None) -> tuple[Oscillation, dict[str, str]]:
    """The oscillation vector of the steady-state steps, and why each of its nulls is one.

    Args:
        wall_s: seconds of steps in a row.
        every_s: seconds of all steps, of which other percentiles are, where these are a part of them.

    Returns:
        The record, and the reason for every field that is ``None``, by field name.
    """
    steps = np.asarray(wall_s, dtype=np.float64)
    n = steps.size
    if n < MIN_STEPS or np.median(steps) <= 0:
        reason = f"only {n} steps, {MIN_STEPS} are needed" if n < MIN_STEPS else "the median step time is 0"
        return Oscillation(), dict.fromkeys(Oscillation.model_fields, reason)
    values: dict[str, float] = {
        "cv": robust_cv(steps),
        "std_over_mean": float(steps.std(ddof=1) / steps.mean()),
        "effective_steps": effective_size(steps),
    }
    reasons: dict[str, str] = {}
    every = steps if every_s is None else np.asarray(every_s, dtype=np.float64)
    if every.size >= _MIN_P99_STEPS:
        median, p99 = np.quantile(every, [0.5, 0.99])
        values["p99_over_p50"] = float(p99 / median)
    else:
        reasons["p99_over_p50"] = f"only {every.size} steps, {_MIN_P99_STEPS} are needed for a 99th percentile"
    if varies(steps):
        values["autocorrelation"] = float(autocorrelation(steps, 1)[1])
        values["ljung_box_p"] = ljung_box(steps, min(20, n // 5))
    else:
        reasons |= dict.fromkeys(("autocorrelation", "ljung_box_p"), "the step time does not vary")
    stalls = stragglers(steps).indices
    _add_period(steps, stalls, values, reasons)
    if stalls.size >= _MIN_STALLS:
        values["burstiness"] = burstiness(np.diff(stalls))
    else:
        reasons["burstiness"] = f"only {stalls.size} stall{'s' * (stalls.size != 1)}, {_MIN_STALLS} are needed"
    return Oscillation(**values), reasons


def _add_period(steps: FloatArray, stalls: IntArray, values: dict[str, float], reasons: dict[str, str]) -> None:
    period = regular_stalls(steps, stalls) or find_period(steps)
    if period is not None:
        values |= asdict(period)
        values["period_s"] = period.period_steps * float(steps.mean())  # so many steps of mean length, stalls included
        return
    if steps.size < MIN_PERIOD_STEPS:
        reason = f"only {steps.size} steps, {MIN_PERIOD_STEPS} are needed to look for a period"
        reason += f"; what comes less often than every {steps.size} steps was not seen at all"
    elif not varies(steps):
        reason = "the step time does not vary"
    else:
        longest = steps.size // MIN_CYCLES
        reason = f"no period of 2 to {longest} steps stands out from red noise at 1 % in {steps.size} steps"
        if steps.size < _WANTED_PERIOD_STEPS:
            reason += f" ({_WANTED_PERIOD_STEPS} are wanted to be sure)"
    reasons |= dict.fromkeys(("period_steps", "period_s", "variance_share", "p_value"), reason)


MIN_POINTS: Final = 10
_FIT_POINTS: Final = 500
"""Every pair is looked at; a longer series is cut into so many stretches, each told by its median."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The monotone trend of a series."""

    slope: float
    """Theil & Sen's, in units of the series per unit of its position."""
    tau: float
    """Kendall's rank correlation with the position, -1..1."""
    p_value: float
    """Two-sided, autocorrelation considered."""
    effective_points: float
    """Independent points that would tell as much."""


def trend(values: npt.ArrayLike, at: npt.ArrayLike | None = None) -> Trend | None:
    """The trend of a series, robust against outliers.

    The slope is the median of the slopes of all pairs (Sen 1968). The p-value is Mann and Kendall's with the variance
    multiplied by points over effective points of the ranks of the residuals, and Student's t with as many degrees of
    freedom in place of the normal distribution, because the memory itself is estimated. The positions (numbers of
    steps, seconds) ascend; without them they are 0, 1, 2 and so on.

    Returns:
        ``None`` for fewer than :data:`MIN_POINTS` points. A constant series has slope 0 and p-value 1.
    """
    from scipy import special

    y = np.asarray(values, dtype=np.float64)
    x = np.arange(y.size, dtype=np.float64) if at is None else np.asarray(at, dtype=np.float64)
    if y.size < MIN_POINTS:
        return None
    if not varies(y) or not varies(x):
        return Trend(0.0, 0.0, 1.0, float(y.size))
    x, y = _thinned(x), _thinned(y)
    rises, runs = _of_pairs(y), _of_pairs(x)
    slope = _median_slope(rises, runs)
    n = y.size
    score = float(np.sum(np.sign(rises) * np.sign(runs)))
    # Kendall's tau b: pairs that are alike in either are not counted.
    untied = float(np.sqrt(np.count_nonzero(rises) * np.count_nonzero(runs)))
    tau = score / untied if untied else 0.0
    ties = np.unique(y, return_counts=True)[1]
    variance = (n * (n - 1) * (2 * n + 5) - float(np.sum(ties * (ties - 1) * (2 * ties + 5)))) / 18
    effective = _effective_points(_ranks(y - slope * x))
    if score == 0 or variance <= 0:
        return Trend(slope, tau, 1.0, effective)
    # One step back towards zero: the score moves in steps of two (Mann 1945).
    z = (abs(score) - 1) / np.sqrt(variance * n / effective)
    p_value = min(1.0, float(2 * special.stdtr(max(effective - 2, 1.0), -z)))
    return Trend(slope, tau, p_value, effective)


def drift(step_s: npt.ArrayLike, batch_elements: npt.ArrayLike) -> tuple[Trend, float] | None:
    """The trend of step times that the lengths of the batches do not explain, and the change from first to last.

    The change is a share of the median step. ``None`` where chance explains it (p from 1 % on) or there are too few.
    """
    steps = explain(step_s, batch_elements).adjusted_s
    found, median = trend(steps), float(np.median(steps))
    if found is None or median <= 0 or found.p_value >= LEVEL:
        return None
    return found, found.slope * (steps.size - 1) / median


def changed(change: float, steps: int) -> str:
    """Phrase for a drift, whose change is a share of the median step: more than all of it may be lost on the way."""
    return f"{'rose' if change > 0 else 'fell'} by {abs(change):.0%} of the median step over {steps:,} steps"


def _effective_points(residuals: FloatArray) -> float:
    """Independent points that tell as much as these, at least 3, never more than there are.

    Taking a line out takes memory out with it: the autocorrelation of the residuals is too low by ``(2 + 4 phi) / n``
    on average (Kendall 1954, with a slope beside the mean). So the smaller of two is taken: Geyer's sum, and what an
    AR(1) series of that corrected autocorrelation leaves.
    """
    n = residuals.size
    lag_1 = float(autocorrelation(residuals, 1)[1])
    phi = min(max((lag_1 + 2 / n) / (1 - 4 / n), 0.0), 0.98)
    return max(min(effective_size(residuals), n * (1 - phi) / (1 + phi)), 3.0)


def _thinned(series: FloatArray) -> FloatArray:
    """Medians of at most :data:`_FIT_POINTS` stretches of equal length."""
    if series.size <= _FIT_POINTS:
        return series
    return np.array([np.median(part) for part in np.array_split(series, _FIT_POINTS)])
