"""Variation of the step time as a vector: how wide, how remembered, how periodic, how bursty.

No single number tells an input stall every 16 steps from noise, so the record holds several, and a reason for each one
that the steps at hand cannot give.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.rhythm import MIN_STEPS as MIN_PERIOD_STEPS
from xttsbench.analysis.rhythm import autocorrelation, effective_size, find_period, ljung_box, varies
from xttsbench.analysis.variance import stragglers
from xttsbench.records.report import Oscillation

FloatArray = npt.NDArray[np.float64]

MIN_STEPS: Final = 20
MIN_P99_STEPS: Final = 100
MIN_STALLS: Final = 10
WANTED_PERIOD_STEPS: Final = 400
"""Below this a period is still searched, but a miss says little."""


def robust_cv(x: npt.ArrayLike) -> float:
    """Robust coefficient of variation, ``1.4826 MAD / median`` (the constant makes it the CV of normal noise).

    Raises:
        ValueError: the series is empty, or its median is not positive.
    """
    series = np.asarray(x, dtype=np.float64)
    median = float(np.median(series)) if series.size else 0.0
    if median <= 0:
        raise ValueError(f"a coefficient of variation needs a positive median; got {median} over {series.size} entries")
    return 1.4826 * float(np.median(np.abs(series - median))) / median


def burstiness(gaps: npt.ArrayLike) -> float:
    """Burstiness of the gaps between events: -1 regular, 0 at random (Poisson), towards 1 in bursts.

    ``(sigma - mu) / (sigma + mu)`` (Goh & Barabasi 2008) with the correction for few events of Kim & Jo 2016,
    "Measuring burstiness for finite event sequences", without which a short regular or random series looks alike.

    Raises:
        ValueError: fewer than two gaps, or gaps that add up to nothing.
    """
    lengths = np.asarray(gaps, dtype=np.float64)
    n = lengths.size
    if n < 2 or lengths.mean() <= 0:
        raise ValueError(f"burstiness needs two positive gaps at least; got {n}")
    ratio = float(lengths.std() / lengths.mean())
    above, below = np.sqrt(n + 1) * ratio, np.sqrt(n - 1)
    return float((above - below) / (above - 2 * ratio + below))


def oscillation(wall_s: npt.ArrayLike) -> tuple[Oscillation, dict[str, str]]:
    """The oscillation vector of the steady-state steps, and why each of its nulls is one.

    Args:
        wall_s: wall time of each step in seconds, in order, shape ``(n,)``.

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
    if n >= MIN_P99_STEPS:
        median, p99 = np.quantile(steps, [0.5, 0.99])
        values["p99_over_p50"] = float(p99 / median)
    else:
        reasons["p99_over_p50"] = f"only {n} steps, {MIN_P99_STEPS} are needed for a 99th percentile"
    if varies(steps):
        values["autocorrelation"] = float(autocorrelation(steps, 1)[1])
        values["ljung_box_p"] = ljung_box(steps, min(20, n // 5))
    else:
        reasons |= dict.fromkeys(("autocorrelation", "ljung_box_p"), "the step time does not vary")
    _add_period(steps, values, reasons)
    stalls = stragglers(steps).indices
    if stalls.size >= MIN_STALLS:
        values["burstiness"] = burstiness(np.diff(stalls))
    else:
        reasons["burstiness"] = f"only {stalls.size} stalls, {MIN_STALLS} are needed"
    return Oscillation(**values), reasons


def _add_period(steps: FloatArray, values: dict[str, float], reasons: dict[str, str]) -> None:
    """The fields of the period, or the reason why there is none."""
    period = find_period(steps)
    if period is not None:
        values["period_steps"] = period.period_steps
        # A period is so many steps of mean length, stalls included.
        values["period_s"] = period.period_steps * float(steps.mean())
        values["variance_share"] = period.variance_share
        values["p_value"] = period.p_value
        return
    if steps.size < MIN_PERIOD_STEPS:
        reason = f"only {steps.size} steps, {MIN_PERIOD_STEPS} are needed to look for a period"
    elif not varies(steps):
        reason = "the step time does not vary"
    else:
        reason = "no period stands out from red noise at 1 %"
        if steps.size < WANTED_PERIOD_STEPS:
            reason += f" in {steps.size} steps ({WANTED_PERIOD_STEPS} are wanted to be sure)"
    reasons |= dict.fromkeys(("period_steps", "period_s", "variance_share", "p_value"), reason)
