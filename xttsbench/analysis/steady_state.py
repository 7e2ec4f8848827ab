"""Where the steady state of a run begins, and whether there is one.

The cut is MSER-5 (White 1997, "An effective truncation heuristic for bias reduction in simulation output"), on medians
of five of the log step time, so that a stall in the warm-up does not decide where it ends. The check that follows asks
the plain question: do the two halves of what is left run at the same speed?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

MIN_STEPS: Final = 20
"""Fewer steps than this cannot show a steady state."""

CLOCK_RESOLUTION_S: Final = 1e-9
"""One tick of ``perf_counter_ns``: the floor under a step time before its logarithm is taken."""


@dataclass(frozen=True, slots=True)
class SteadyState:
    """What is left after the warm-up."""

    cut: int
    """Steps to drop from the front."""
    steady: bool
    reason: str | None
    """Why it is not steady, one sentence; ``None`` where it is."""
    halves_ratio: float | None
    """Median step time of the second half over that of the first, after the cut."""


def mser(values: npt.ArrayLike, batch: int = 5) -> int:
    """Truncation point of a series, in entries: a multiple of ``batch``, at most half of the series.

    The point that minimises the squared standard error of the mean of what remains (White 1997; batches of five after
    White, Cobb & Spratt 2000), with the median of each batch in place of its mean. Ties go to the earliest point, so a
    constant series is not cut.
    """
    series = np.asarray(values, dtype=np.float64)
    count = series.size // batch
    if count < 2:
        return 0
    medians = np.median(series[: count * batch].reshape(count, batch), axis=1)
    # Centred, so that a constant series gives exact zeros and large offsets cost no digits.
    medians = medians - np.median(medians)
    left = np.arange(count, 0, -1)
    sums = np.cumsum(medians[::-1])[::-1]
    squares = np.cumsum(medians[::-1] ** 2)[::-1]
    squared_error = (squares - sums**2 / left) / left**2
    return int(np.argmin(squared_error[: count // 2 + 1])) * batch


def steady_state(step_s: npt.ArrayLike, *, drift_limit: float = 0.03) -> SteadyState:
    """Cut the warm-up off and say whether the rest is steady.

    Args:
        step_s: step times in seconds, in order, shape ``(n,)``.
        drift_limit: how far the medians of the two halves may lie apart, as a share of the faster one.
    """
    steps = np.maximum(np.asarray(step_s, dtype=np.float64), CLOCK_RESOLUTION_S)
    if steps.size < MIN_STEPS:
        return SteadyState(0, False, f"only {steps.size} steps, {MIN_STEPS} are needed to see a steady state", None)
    cut = mser(np.log(steps))
    rest = steps[cut:]
    middle = rest.size // 2
    ratio = float(np.median(rest[middle:]) / np.median(rest[:middle]))
    if max(ratio, 1 / ratio) <= 1 + drift_limit:
        return SteadyState(cut, True, None, ratio)
    direction = "slower" if ratio > 1 else "faster"
    reason = (
        f"the second half of the steps is {abs(ratio - 1):.1%} {direction} than the first "
        f"(median, after a cut of {cut} steps; {drift_limit:.0%} is the limit)"
    )
    return SteadyState(cut, False, reason, ratio)
