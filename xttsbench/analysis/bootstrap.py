"""Intervals for a statistic of one run whose steps depend on one another.

Step times are autocorrelated, so an ordinary bootstrap gives intervals that are far too narrow. The stationary
bootstrap (Politis & Romano 1994) resamples blocks of random length, and the mean length is chosen from the data
(Politis & White 2004, with the correction of Patton, Politis & White 2009).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.autocorrelation import autocorrelation, varies
from xttsbench.records.base import Estimate

FloatArray = npt.NDArray[np.float64]

_CHUNK: Final = 250_000
"""Resampled numbers held at once, so that a long run costs a few megabytes and not a hundred."""


def politis_white_length(x: npt.ArrayLike) -> float:
    """Mean block length of the stationary bootstrap for the mean of ``x``, in entries, at least 1.

    Politis & White 2004, "Automatic block-length selection for the dependent bootstrap", with the corrected constant
    of Patton, Politis & White 2009; flat-top lag window and their rule of thumb for its width. At most
    ``min(3 sqrt(n), n / 3)``, as in the authors' own code.
    """
    series = np.asarray(x, dtype=np.float64)
    n = series.size
    if n < 8 or not varies(series):
        return 1.0
    run = max(5, int(np.ceil(np.sqrt(np.log10(n)))))
    longest = min(int(np.ceil(np.sqrt(n))) + run, n - 1)
    rho = autocorrelation(series, longest)
    small = np.abs(rho[1:]) < 2 * np.sqrt(np.log10(n) / n)
    # The first lag after which `run` correlations in a row are negligible; else the last one that is not.
    quiet = np.flatnonzero(np.lib.stride_tricks.sliding_window_view(small, min(run, longest)).all(axis=1))
    last = int(quiet[0]) if quiet.size else int(np.flatnonzero(~small)[-1]) + 1
    width = min(2 * last, longest)
    if width == 0:
        return 1.0
    lags = np.arange(1, width + 1)
    window = np.clip(2 * (1 - lags / width), 0, 1)
    weighted = window * rho[1 : width + 1]
    # As shares of the variance, which cancels between the two.
    bias = 2 * float(np.sum(lags * weighted))
    spectrum_at_zero = 1 + 2 * float(np.sum(weighted))
    ceiling = float(min(3 * np.sqrt(n), n / 3))
    if spectrum_at_zero == 0:
        return ceiling
    return float(np.clip((bias**2 / spectrum_at_zero**2 * n) ** (1 / 3), 1, ceiling))


def stationary_indices(n: int, mean_length: float, resamples: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Indices of ``resamples`` stationary-bootstrap resamples of a series of ``n``, shape ``(resamples, n)``.

    Blocks start anywhere, wrap around the end, and have geometric lengths with the given mean (Politis & Romano 1994).
    A ``mean_length`` of 1 is the ordinary bootstrap.
    """
    position = np.arange(n)
    starts = rng.integers(n, size=(resamples, n))
    begins = rng.random((resamples, n)) < 1 / mean_length
    begins[:, 0] = True
    block = np.maximum.accumulate(np.where(begins, position, 0), axis=1)
    indices: npt.NDArray[np.int64] = (np.take_along_axis(starts, block, axis=1) + position - block) % n
    return indices


def interval(
    columns: npt.ArrayLike,
    statistic: Callable[[FloatArray], npt.NDArray[Any]],
    *,
    resamples: int = 1000,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Estimate:
    """Percentile interval of a statistic of one run, by the stationary bootstrap.

    Args:
        columns: one series of steps, shape ``(n,)``, or several that are resampled together, shape ``(n, k)``.
        statistic: from shape ``(resamples, n)`` (or ``(resamples, n, k)``) to ``(resamples,)``.
        resamples: how many resamples to take.
        rng: where the randomness comes from.
        level: nominal coverage.

    Returns:
        The statistic of the series itself, with its interval. Fewer than three steps show no spread: then low and high
        are the estimate, and the caller has to say so.

    Raises:
        ValueError: the series is empty or holds a NaN or an infinity.
    """
    series = np.asarray(columns, dtype=np.float64)
    if series.shape[0] == 0 or not np.isfinite(series).all():
        raise ValueError(f"an interval needs at least one step and finite numbers; got shape {series.shape}")
    n = series.shape[0]
    estimate = float(statistic(series[np.newaxis])[0])
    if n < 3:
        return Estimate(estimate=estimate, low=estimate, high=estimate)
    length = max(politis_white_length(column) for column in series.reshape(n, -1).T)
    values: list[npt.NDArray[Any]] = []
    rows = max(1, _CHUNK // series.size)
    for first in range(0, resamples, rows):
        indices = stationary_indices(n, length, min(rows, resamples - first), rng)
        values.append(statistic(series[indices]))
    low, high = np.quantile(np.concatenate(values), [(1 - level) / 2, (1 + level) / 2])
    # A skewed statistic of few steps can fall outside its own percentiles.
    return Estimate(estimate=estimate, low=min(float(low), estimate), high=max(float(high), estimate))
