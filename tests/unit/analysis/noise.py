"""Noise that remembers."""

from __future__ import annotations

import numpy as np
from scipy import signal


def ar1(phi: float, n: int, rng: np.random.Generator | int) -> np.ndarray:
    """Each value is ``phi`` times the one before and normal noise; the first has forgotten how the series began."""
    return np.asarray(signal.lfilter([1.0], [1.0, -phi], np.random.default_rng(rng).normal(size=n + 300))[300:])
