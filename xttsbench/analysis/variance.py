"""Two reasons why steps differ, told apart: what the length of the batch explains, and stragglers.

In speech a batch of longer sentences takes longer, and that is no fault. So the length effect is taken out first, by
estimators that a stall does not move, and only then are outlying steps looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MIN_STEPS: Final = 20
_FIT_STEPS: Final = 600
"""Theil-Sen looks at every pair of steps; longer runs are thinned evenly to so many."""

_SIGMAS: Final = 5.0
"""Robust standard deviations above the median that a straggler needs beside the factor: in noisy steps a factor alone
would name ordinary ones."""


@dataclass(frozen=True, slots=True)
class LengthVariance:
    """What the number of elements in the batch does to the step time."""

    share: float
    """Share of the variance that it explains, 0..1, outlying steps set aside."""
    slope_s_per_element: float
    p_value: float
    """Of the rank correlation, with the autocorrelation of both series considered."""


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Steps that took far longer than the others."""

    indices: IntArray
    threshold_s: float
    excess_s_per_step: float
    """What they take beyond the median, spread over all steps: means add."""
    share_of_time: float
    """The same as a share of the whole time, 0..1."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Length and stragglers told apart."""

    length: LengthVariance | None
    """``None`` where all batches are equal or there are too few."""
    stragglers: Stragglers
    """Of the step times as they would be if all batches had the median length."""


def length_variance(step_s: npt.ArrayLike, batch_elements: npt.ArrayLike) -> LengthVariance | None:
    """How much of the step-time variance batch length explains, robust against stalls.

    The slope is Theil & Sen's (median of the slopes of all pairs); the share is ``V / (V + R)`` with V the variance of
    the fitted times and R that of the residuals cut at three robust standard deviations. The p-value is Spearman's, on
    a sample size corrected for autocorrelation (Dawdy & Matalas 1964), since batches sorted by length beside drifting
    steps correlate by chance.

    Args:
        step_s: step times in seconds, shape ``(n,)``.
        batch_elements: numbers in each step's batch, or frames, or any other measure of its length, shape ``(n,)``.

    Returns:
        ``None`` where all batches are equal or there are fewer than 20 steps.

    Raises:
        ValueError: the two differ in length.
    """
    from scipy import special, stats

    steps, elements = _columns(step_s, batch_elements)
    if steps.size < MIN_STEPS or np.ptp(elements) == 0:
        return None
    thinned = np.unique(np.linspace(0, steps.size - 1, min(steps.size, _FIT_STEPS)).astype(np.int64))
    if np.ptp(elements[thinned]) == 0:
        return None
    slope = float(stats.theilslopes(steps[thinned], elements[thinned]).slope)
    residuals = steps - slope * elements
    residuals -= np.median(residuals)
    spread = 3 * _robust_sd(residuals)
    explained = slope**2 * float(elements.var())
    unexplained = float(np.clip(residuals, -spread, spread).var())
    share = explained / (explained + unexplained) if explained > 0 else 0.0

    ranks = [stats.rankdata(column) for column in (steps, elements)]
    if np.ptp(steps) == 0:
        return LengthVariance(share, slope, 1.0)
    rho = float(np.corrcoef(ranks)[0, 1])
    memory = float(np.prod([np.corrcoef(rank[1:], rank[:-1])[0, 1] for rank in ranks]))
    memory = min(max(memory, 0.0), 0.99)
    freedom = max(steps.size * (1 - memory) / (1 + memory) - 2, 1)
    t = abs(rho) * np.sqrt(freedom / max(1 - rho**2, 1e-15))
    return LengthVariance(share, slope, min(1.0, float(2 * special.stdtr(freedom, -t))))


def stragglers(step_s: npt.ArrayLike, *, factor: float = 1.5) -> Stragglers:
    """Steps that outlie the others: above ``factor`` medians and above the median by five robust standard deviations.

    Args:
        step_s: step times in seconds, shape ``(n,)``; adjusted where batches differ in length (:func:`explain`).
        factor: how many medians a straggler takes at least.

    Raises:
        ValueError: there are no steps.
    """
    steps = np.asarray(step_s, dtype=np.float64)
    if steps.size == 0:
        raise ValueError("stragglers need at least one step; got none")
    median = float(np.median(steps))
    threshold_s = max(factor * median, median + _SIGMAS * _robust_sd(steps))
    indices = np.flatnonzero(steps > threshold_s)
    excess_s = float(np.sum(steps[indices] - median)) / steps.size
    mean_s = float(steps.mean())
    return Stragglers(indices, threshold_s, excess_s, excess_s / mean_s if mean_s > 0 else 0.0)


def explain(step_s: npt.ArrayLike, batch_elements: npt.ArrayLike) -> Explanation:
    """Tell length from stragglers: the length effect first, then the outlying steps of what it leaves.

    The adjusted steps are in seconds too, at the median batch length, so the excess stays comparable. Length is taken
    out only where the step time is known to rise with it (p below 1 %).

    Raises:
        ValueError: the two differ in length, or there are no steps.
    """
    steps, elements = _columns(step_s, batch_elements)
    length = length_variance(steps, elements)
    if length is None or length.p_value >= 0.01:
        return Explanation(length, stragglers(steps))
    return Explanation(length, stragglers(steps - length.slope_s_per_element * (elements - np.median(elements))))


def _columns(step_s: npt.ArrayLike, batch_elements: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Both as arrays of one length."""
    steps = np.asarray(step_s, dtype=np.float64)
    elements = np.asarray(batch_elements, dtype=np.float64)
    if steps.shape != elements.shape:
        raise ValueError(f"step times and batch lengths must pair up; got {steps.size} and {elements.size}")
    return steps, elements


def _robust_sd(x: FloatArray) -> float:
    """1.4826 times the median absolute deviation: the standard deviation of normal noise, outliers or not."""
    return 1.4826 * float(np.median(np.abs(x - np.median(x))))
