"""From the log ratios of paired blocks to a decision: faster, slower, equivalent or inconclusive.

The process is the unit of replication: each block gives one log ratio, ``log(baseline step time / candidate step
time)``, positive where the candidate is faster, and everything here works on those few numbers. Tests on pooled steps
would name a false difference in half of the cases, since steps of one process are not independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from xttsbench.records.base import Estimate

_EXACT_BLOCKS: Final = 20
"""All sign flips are counted up to here (half a million); above, random ones."""

_RANDOM_FLIPS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What the blocks allow to say of a candidate."""

    decision: Literal["faster", "slower", "equivalent", "inconclusive"]
    effect: Estimate
    """Speed against the baseline, as a ratio: 2 is twice as fast."""
    p_value: float
    """Of the sign-flip test."""


def _log_ratios(values: npt.ArrayLike, least: int) -> npt.NDArray[np.float64]:
    """The values as an array, refused where they are too few or not finite."""
    ratios = np.asarray(values, dtype=np.float64).ravel()
    if ratios.size < least or not np.isfinite(ratios).all():
        raise ValueError(f"at least {least} finite log ratios are needed, one per block; got {ratios.tolist()}")
    return ratios


def sign_flip_p(log_ratios: npt.ArrayLike) -> float:
    """Two-sided p of the sign-flip (Fisher 1935, randomisation of a paired difference) test that the mean is zero.

    Exact up to 20 blocks; above that 100,000 random flips from a fixed seed, the observation counted among them. The
    smallest p that ``n`` blocks can give is ``2 / 2**n``.

    Raises:
        ValueError: there is no block, or a ratio is not finite.
    """
    ratios = _log_ratios(log_ratios, 1)
    observed = abs(float(ratios.sum()))
    tolerance = 1e-12 * float(np.abs(ratios).sum())
    if ratios.size <= _EXACT_BLOCKS:
        # The first sign may stay: flipping all of them gives the same absolute sum.
        sums = ratios[:1]
        for ratio in ratios[1:]:
            sums = np.concatenate([sums + ratio, sums - ratio])
        return float(np.mean(np.abs(sums) >= observed - tolerance))
    # Drawn one block at a time, which needs one sum per flip and not one sign per flip and block.
    rng = np.random.default_rng(0)
    sums = np.zeros(_RANDOM_FLIPS)
    for ratio in ratios:
        sums += ratio * rng.choice((-1.0, 1.0), size=_RANDOM_FLIPS)
    return float(1 + np.count_nonzero(np.abs(sums) >= observed - tolerance)) / (_RANDOM_FLIPS + 1)


def paired_t_interval(log_ratios: npt.ArrayLike, level: float = 0.95) -> Estimate:
    """The effect as a ratio with Student's paired-t interval, both taken on the log scale.

    Raises:
        ValueError: there are fewer than two blocks, or a ratio is not finite.
    """
    ratios = _log_ratios(log_ratios, 2)
    mean = float(ratios.mean())
    half = float(special.stdtrit(ratios.size - 1, (1 + level) / 2)) * _standard_error(ratios)
    return Estimate(estimate=float(np.exp(mean)), low=float(np.exp(mean - half)), high=float(np.exp(mean + half)))


def decide(log_ratios: npt.ArrayLike, *, margin: float = 0.02, alpha: float = 0.05, min_blocks: int = 6) -> Decision:
    """Decide on a candidate against its baseline.

    Equivalent where the ``1 - 2 alpha`` interval lies inside the margin (two one-sided tests, Schuirmann 1987): a
    difference that small does not matter, even where it is certain. Else faster or slower where the sign-flip test
    reaches ``alpha`` and the ``1 - alpha`` interval excludes 1. Else, or with fewer than ``min_blocks``, inconclusive.

    Args:
        log_ratios: ``log(baseline / candidate)`` of the step times, one per block.
        margin: the smallest difference that matters, as a share.
        alpha: level of the test.
        min_blocks: six, since five equal signs cannot reach 5 % two-sided.

    Raises:
        ValueError: there is no block, or a ratio is not finite.
    """
    ratios = _log_ratios(log_ratios, 1)
    p_value = sign_flip_p(ratios)
    if ratios.size == 1:
        only = float(np.exp(ratios[0]))
        return Decision("inconclusive", Estimate(estimate=only, low=only, high=only), p_value)
    effect = paired_t_interval(ratios, 1 - alpha)
    if ratios.size < min_blocks:
        return Decision("inconclusive", effect, p_value)
    narrow = paired_t_interval(ratios, 1 - 2 * alpha)
    if 1 / (1 + margin) <= narrow.low and narrow.high <= 1 + margin:
        return Decision("equivalent", effect, p_value)
    if p_value < alpha and effect.low > 1:
        return Decision("faster", effect, p_value)
    if p_value < alpha and effect.high < 1:
        return Decision("slower", effect, p_value)
    return Decision("inconclusive", effect, p_value)


def smallest_visible_effect(log_ratios: npt.ArrayLike) -> float:
    """The effect that blocks as noisy as these would show in four cases of five, as a share (0.03 is 3 %).

    The paired t test's minimal detectable effect at 5 % two-sided and 80 % power, ``(t_0.975 + t_0.8) * SE``.

    Raises:
        ValueError: there are fewer than two blocks, or a ratio is not finite.
    """
    ratios = _log_ratios(log_ratios, 2)
    quantiles = special.stdtrit(ratios.size - 1, np.array([0.975, 0.8]))
    return float(np.expm1(quantiles.sum() * _standard_error(ratios)))


def holm(p_values: npt.ArrayLike) -> list[float]:
    """Adjusted p-values in the order given (Holm 1979, "A simple sequentially rejective multiple test procedure")."""
    values = np.asarray(p_values, dtype=np.float64).ravel()
    order = np.argsort(values, kind="stable")
    scaled = values[order] * np.arange(values.size, 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return [float(value) for value in adjusted]


def _standard_error(ratios: npt.NDArray[np.float64]) -> float:
    """Standard error of the mean."""
    return float(ratios.std(ddof=1) / np.sqrt(ratios.size))
