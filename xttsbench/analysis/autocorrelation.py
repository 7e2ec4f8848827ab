"""How long a step remembers the ones before it: autocorrelation, Ljung-Box, effective sample size."""

from __future__ import annotations

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
