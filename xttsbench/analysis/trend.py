"""Whether a series rises or falls over its whole length, and how fast.

Steps remember the ones before them, so noise that is merely slow wanders up or down for a while; the plain test of
Mann and Kendall takes that for a trend. Here its variance is inflated by what the series remembers, estimated on what
is left when the slope is taken out (Hamed & Rao 1998, "A modified Mann-Kendall trend test for autocorrelated data").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.rhythm import autocorrelation, effective_size, varies

FloatArray = npt.NDArray[np.float64]

MIN_POINTS: Final = 10
_FIT_POINTS: Final = 500
"""Every pair is looked at; a longer series is cut into so many stretches, each told by its median."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The monotone trend of a series."""

    slope: float
    """Theil & Sen's, in units of the series per unit of its position."""
    low: float
    """95 % interval of the slope, as if the points were independent."""
    high: float
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
    freedom in place of the normal distribution, because the memory itself is estimated.

    Args:
        values: the series in order, shape ``(n,)``.
        at: its positions (numbers of steps, seconds), ascending, shape ``(n,)``; 0, 1, 2, ... by default.

    Returns:
        ``None`` for fewer than :data:`MIN_POINTS` points. A constant series has slope 0 and p-value 1.

    Raises:
        ValueError: the two differ in length.
    """
    from scipy import special, stats

    y = np.asarray(values, dtype=np.float64)
    x = np.arange(y.size, dtype=np.float64) if at is None else np.asarray(at, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"values and positions must pair up; got {y.size} and {x.size}")
    if y.size < MIN_POINTS:
        return None
    if not varies(y) or not varies(x):
        return Trend(0.0, 0.0, 0.0, 0.0, 1.0, float(y.size))
    x, y = _thinned(x), _thinned(y)
    fit = stats.theilslopes(y, x)
    slope = float(fit.slope)
    n = y.size
    later, earlier = np.triu_indices(n, 1)[::-1]
    score = float(np.sum(np.sign(y[later] - y[earlier])))
    tau = float(stats.kendalltau(x, y).statistic)
    ties = np.unique(y, return_counts=True)[1]
    variance = (n * (n - 1) * (2 * n + 5) - float(np.sum(ties * (ties - 1) * (2 * ties + 5)))) / 18
    effective = _effective_points(stats.rankdata(y - slope * x))
    if score == 0 or variance <= 0:
        return Trend(slope, float(fit.low_slope), float(fit.high_slope), tau, 1.0, effective)
    # One step back towards zero: the score moves in steps of two (Mann 1945).
    z = (abs(score) - 1) / np.sqrt(variance * n / effective)
    freedom = max(effective - 2, 1.0)
    p_value = min(1.0, float(2 * special.stdtr(freedom, -z)))
    return Trend(slope, float(fit.low_slope), float(fit.high_slope), tau, p_value, effective)


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
