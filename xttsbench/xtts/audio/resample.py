"""Change of the sample rate without aliasing: SciPy's polyphase filter, designed for the job."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

MIN_RATE_HZ: Final = 1_000
MAX_RATE_HZ: Final = 768_000
"""Rates outside of these are not those of speech, but of a damaged header."""

_STOP_DB: Final = 80.0
_TRANSITION: Final = 0.1
"""Width of the filter's slope as a part of the lower Nyquist frequency, at which it ends."""
_LARGEST_FACTOR: Final = 50_000
"""A filter grows with its factors; exact for all usual rates, and for any below this."""


def resample(samples: Floats, from_hz: int, to_hz: int) -> Floats:
    """Return samples at another rate, ``[ceil(n * to_hz / from_hz)]``.

    A linear-phase filter passes what is below 0.9 of the lower Nyquist frequency and stops, by 80 dB, all above it;
    SciPy's own default is at -6 dB there, and lets a tone just above come back as one just below.

    Args:
        samples: ``[n]`` at ``from_hz``.
        from_hz: the rate that they have.
        to_hz: the rate wanted. A ratio of larger numbers than 50,000 is replaced by its nearest below, less than
            0.01 % off.

    Raises:
        ValueError: a rate is outside of :data:`MIN_RATE_HZ` .. :data:`MAX_RATE_HZ`.
    """
    for rate_hz in (from_hz, to_hz):
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            raise ValueError(f"rates from {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz can be converted, got {rate_hz}")
    if from_hz == to_hz:
        return samples
    from scipy.signal import resample_poly

    up, down = factors(from_hz, to_hz)
    resampled: Floats = resample_poly(samples, up, down, window=_filter(max(up, down)))
    return resampled


def factors(from_hz: int, to_hz: int) -> tuple[int, int]:
    """Return by how much to interpolate and to decimate."""
    if to_hz > from_hz:
        inverse = Fraction(from_hz, to_hz).limit_denominator(_LARGEST_FACTOR)
        return inverse.denominator, inverse.numerator
    ratio = Fraction(to_hz, from_hz).limit_denominator(_LARGEST_FACTOR)
    return ratio.numerator, ratio.denominator


@lru_cache(maxsize=16)
def _filter(factor: int) -> Floats:
    """Return a low-pass for the rate multiplied by ``factor``, whose stop band begins at the lower Nyquist frequency.

    Kaiser's formulas (Oppenheim and Schafer, "Discrete-Time Signal Processing") give its length and shape.
    """
    from scipy.signal import firwin, kaiserord

    taps, beta = kaiserord(_STOP_DB, _TRANSITION / factor)
    low_pass: Floats = firwin(taps | 1, (1 - _TRANSITION / 2) / factor, window=("kaiser", beta)).astype(np.float32)
    low_pass.flags.writeable = False
    return low_pass
