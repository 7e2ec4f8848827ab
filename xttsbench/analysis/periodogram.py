"""The tapered periodogram of a series of steps, and the red noise that it is judged against.

Step times are autocorrelated without being periodic, and a white null then finds a "period" in most runs (60-86 % at
an autocorrelation of 0.6). The null here is an AR(1) process fitted to the series itself, guarded against the other
kinds of noise that step times have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_PHI_LIMITS: Final = (-0.6, 0.97)
"""Bounds on the null's coefficient. Below: jitter of the clock between steps gives -0.5, but an alternation of two
levels (-1) has to stay a period. Above: a random walk has no spectrum."""

_TAPERED_SHARE: Final = 0.2
"""Share of the series under the taper's two cosine flanks. Enough against leakage from slow noise into the harmonics;
a full Hann window would cost a third of the power of a peak."""

_SLOW_PHI: Final = 0.9

GLOBAL_LEVEL: Final = 0.01


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
    """What noise exceeds at any frequency at all in 1 % of the series."""


def prepare(rows: FloatArray) -> FloatArray:
    """Rows without their mean and linear trend; drift is not a period. Shape ``(rows, n)``."""
    time = np.arange(rows.shape[1]) - (rows.shape[1] - 1) / 2
    centred = rows - rows.mean(axis=1, keepdims=True)
    slope = centred @ time / (time @ time)
    detrended: FloatArray = centred - slope[:, np.newaxis] * time
    return detrended


def ar1(rows: FloatArray) -> FloatArray:
    """Lag-1 coefficient of each prepared row, corrected for its bias (Marriott & Pope 1954) and bounded."""
    square = np.sum(rows**2, axis=1)
    rho = np.divide(np.sum(rows[:, 1:] * rows[:, :-1], axis=1), square, out=np.zeros_like(square), where=square > 0)
    # The trend that was taken out costs as much again as the mean: Kendall's (1 + 3 rho)/n becomes (2 + 4 rho)/n.
    coefficient: FloatArray = np.clip(rho + (2 + 4 * rho) / rows.shape[1], *_PHI_LIMITS)
    return coefficient


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
    spectrum: FloatArray = variance[:, np.newaxis] * np.maximum(_ar1_shape(rho, cosine), np.maximum(mixed, jitter))
    return spectrum


def _ar1_shape(phi: FloatArray | np.float64, cosine: FloatArray) -> FloatArray:
    """Spectrum of AR(1) noise of unit variance, from the cosine of the angular frequency."""
    shape: FloatArray = (1 - phi**2) / (1 + phi**2 - 2 * phi * cosine)
    return shape


def taper(n: int) -> FloatArray:
    """Cosine-flanked window (Tukey 1967) of unit mean square, shape ``(n,)``."""
    distance = np.minimum(np.arange(n) + 0.5, n - np.arange(n) - 0.5)
    flank = np.clip(distance / (n * _TAPERED_SHARE / 2), 0, 1)
    window = (1 - np.cos(np.pi * flank)) / 2
    unit: FloatArray = window / np.sqrt(np.mean(window**2))
    return unit


def power(rows: FloatArray, padded: int) -> FloatArray:
    """Tapered power of prepared rows at frequencies ``k / padded``, ``k`` from 0 to ``padded // 2``."""
    n = rows.shape[1]
    squared: FloatArray = np.abs(np.fft.rfft(rows * taper(n), padded, axis=1)) ** 2 / n
    return squared


def periodogram(x: npt.ArrayLike) -> Periodogram:
    """Tapered periodogram with its AR(1) null and the global 1 % threshold (exponential ordinates, all independent).

    Raises:
        ValueError: fewer than 8 steps.
    """
    series = np.asarray(x, dtype=np.float64)
    n = series.size
    if n < 8:
        raise ValueError(f"a periodogram needs at least 8 steps; got {n}")
    rows = prepare(series[np.newaxis])
    frequency = np.arange(1, n // 2 + 1) / n
    null = red_noise(ar1(rows), rows.var(axis=1), frequency)[0]
    quantile = -np.log1p(-((1 - GLOBAL_LEVEL) ** (1 / frequency.size)))
    return Periodogram(frequency, power(rows, n)[0, 1:], null, null * quantile)
