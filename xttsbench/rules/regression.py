"""How much faster B is than A, from a few processes on each side, and whether that is decided.

Everything works on logarithms of rates, one for each process: the process is the unit of replication, since steps of
one process share its luck and depend on one another (pooled steps would name a false difference in half of the cases).

Arms of one run were measured in the same blocks, in random order, on the same batches: one log ratio for each block,
and the tests of :mod:`xttsbench.analysis.candidates`.

Two runs are two sessions, and nothing pairs them. Their blocks may have the same numbers, seeds and batches, but block
3 of one was not run beside block 3 of the other: pairing them would take the batches' variance out of the interval and
leave in what changed on the machine in between, so that this would be named a difference all the more often. The
processes of the two are therefore compared unpaired (Welch 1947, with Satterthwaite's degrees of freedom). That alone
is not enough: simulated with 2 % noise between processes, all runs of A before all runs of B call 45 % of equal pairs
different where 5 % are allowed, since no number of processes within a session shows what sessions differ by. That is
about what a standard deviation of 2 % between sessions gives, so that much (:data:`SESSION_NOISE`) is added to the
variance of each side unless the user knows better. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import special

from xttsbench.analysis.candidates import decide_together
from xttsbench.analysis.decision import holm
from xttsbench.records.base import Estimate
from xttsbench.records.comparison_result import Decision
from xttsbench.rules.arm_effects import MIN_BLOCKS

SESSION_NOISE: Final = 0.02
"""Standard deviation of the speed of one session about that of the machine, as a share."""
MIN_PROCESSES: Final = 2
"""Of each side of an unpaired one: a single process says nothing of the next."""
MIN_REPORTED: Final = 3
"""Processes behind a reported interval: a bootstrap's interval of two is no more than their range."""
_Z: Final = float(special.ndtri(0.975))


@dataclass(frozen=True, slots=True)
class LogMean:
    """Mean of a logarithm with its squared standard error and degrees of freedom (infinite: known beforehand)."""

    mean: float
    variance: float
    freedom: float

    def interval(self, level: float = 0.95) -> Estimate:
        """Student's interval, as a ratio."""
        half = _quantile(self.freedom, (1 + level) / 2) * math.sqrt(self.variance)
        low, middle, high = np.exp(np.clip([self.mean - half, self.mean, self.mean + half], -700, 700))
        return Estimate(estimate=float(middle), low=float(low), high=float(high))

    def smallest_visible_effect(self) -> float:
        """The effect that would show in four cases of five, as a share: ``(t_0.975 + t_0.8)`` standard errors."""
        quantiles = _quantile(self.freedom, 0.975) + _quantile(self.freedom, 0.8)
        return math.expm1(min(quantiles * math.sqrt(self.variance), 700.0))

    def p_value(self) -> float:
        """Two-sided, that the ratio is 1."""
        if self.variance == 0:
            return 1.0 if self.mean == 0 else 0.0
        return 2 * _lower_tail(self.freedom, -abs(self.mean) / math.sqrt(self.variance))


@dataclass(frozen=True, slots=True)
class Effect:
    """What is known of one pair of arms.

    Attributes:
        log_ratio: of B's speed over A's; ``None`` where there are too few processes.
        ratio: with the 95 % interval that is shown.
        sure: whether the interval tells of processes to come, so that a gate may rest on it.
        why: why nothing was decided, where it was not.
    """

    log_ratio: LogMean | None = None
    ratio: Estimate | None = None
    decision: Decision = "inconclusive"
    p_value: float | None = None
    sure: bool = False
    why: str | None = None


def log_mean(values: npt.ArrayLike) -> LogMean:
    """Mean of the logarithms of at least two rates, one of each process.

    Raises:
        ValueError: fewer than two, or one that is not positive and finite.
    """
    rates = np.asarray(values, dtype=np.float64).ravel()
    if rates.size < MIN_PROCESSES or not (np.isfinite(rates) & (rates > 0)).all():
        raise ValueError(f"at least {MIN_PROCESSES} positive rates are needed, one of each process; got {rates}")
    logs = np.log(rates)
    return LogMean(float(logs.mean()), float(logs.var(ddof=1)) / rates.size, rates.size - 1)


def reported_mean(estimate: Estimate, processes: int) -> LogMean:
    """The same from a reported bootstrap interval over processes, where the rates themselves are not at hand.

    A bootstrap over ``n`` processes has a standard error that is too small by ``sqrt((n - 1) / n)`` (Efron &
    Tibshirani 1993, section 6.2).

    Raises:
        ValueError: fewer than three processes, or the interval is not positive.
    """
    if processes < MIN_REPORTED or not 0 < estimate.low <= estimate.estimate <= estimate.high:
        raise ValueError(f"a positive interval over {MIN_REPORTED} processes is needed; got {estimate}, {processes}")
    error = (math.log(estimate.high) - math.log(estimate.low)) / (2 * _Z) * math.sqrt(processes / (processes - 1))
    return LogMean(math.log(estimate.estimate), error**2, processes - 1)


def welch(a: LogMean, b: LogMean, session_noise: float = 0.0) -> LogMean:
    """The difference of two independent means, B's less A's (Welch 1947), each of a session of its own.

    Args:
        a: of A.
        b: of B.
        session_noise: standard deviation between sessions as a share; known, so it has no degrees of freedom to lose.
    """
    variance = a.variance + b.variance + 2 * math.log1p(session_noise) ** 2
    lost = a.variance**2 / a.freedom + b.variance**2 / b.freedom
    freedom = variance**2 / lost if lost > 0 else math.inf
    return LogMean(b.mean - a.mean, variance, freedom)


def paired(log_ratios: npt.ArrayLike) -> LogMean:
    """The mean of the blocks' log ratios; ``log(B's rate / A's rate)``, one of each block, two at least."""
    return log_mean(np.exp(np.asarray(log_ratios, dtype=np.float64)))


def decide_paired(log_ratios: Mapping[str, Sequence[float]], *, margin: float) -> dict[str, Effect]:
    """Decide on pairs of arms of one run; those with fewer than two blocks in common have no effect.

    Args:
        log_ratios: pair -> log ratios of the blocks that have both.
        margin: the smallest difference that matters, as a share.
    """
    enough = {name: own for name, own in log_ratios.items() if len(own) >= MIN_BLOCKS}
    decided = decide_together(enough, margin=margin, min_blocks=MIN_BLOCKS)
    found = {}
    for name, own in log_ratios.items():
        known = paired(own) if len(own) >= 2 else None
        ratio = known.interval() if known else None
        if name not in decided:
            too_few = f"{_count(len(own), 'block')} in common; a decision takes {MIN_BLOCKS}"
            found[name] = Effect(known, ratio, why=too_few)
            continue
        decision, p_value = decided[name].decision.decision, decided[name].p_value
        why = _undecided(decided[name].decision.effect, margin) if decision == "inconclusive" else None
        found[name] = Effect(known, ratio, decision, p_value, sure=True, why=why)
    return found


def decide_apart(differences: Mapping[str, LogMean], *, margin: float, alpha: float = 0.05) -> dict[str, Effect]:
    """Decide on pairs of arms of two sessions.

    Equivalent where the ``1 - 2 alpha`` interval lies inside the margin (two one-sided tests, Schuirmann 1987); else
    faster or slower where the interval excludes 1 and Holm's p over all pairs is below ``alpha``.
    """
    adjusted = holm([known.p_value() for known in differences.values()])
    found = {}
    for (name, known), p_value in zip(differences.items(), adjusted, strict=True):
        ratio, narrow = known.interval(1 - alpha), known.interval(1 - 2 * alpha)
        decision: Decision = "inconclusive"
        if 1 / (1 + margin) <= narrow.low and narrow.high <= 1 + margin:
            decision = "equivalent"
        elif p_value < alpha and not ratio.low <= 1 <= ratio.high:
            decision = "faster" if ratio.low > 1 else "slower"
        why = _undecided(ratio, margin) if decision == "inconclusive" else None
        found[name] = Effect(known, ratio, decision, p_value, sure=True, why=why)
    return found


def withheld(effect: Effect, why: str) -> Effect:
    """The effect without its decision, and no ground for a gate."""
    return replace(effect, decision="inconclusive", sure=False, why=why)


def _undecided(ratio: Estimate, margin: float) -> str:
    return (
        f"the interval {ratio.low:.3f} to {ratio.high:.3f} shows neither a difference nor one within {margin:.0%}; "
        "more processes narrow it"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _quantile(freedom: float, share: float) -> float:
    return float(special.ndtri(share) if math.isinf(freedom) else special.stdtrit(freedom, share))


def _lower_tail(freedom: float, at: float) -> float:
    return float(special.ndtr(at) if math.isinf(freedom) else special.stdtr(freedom, at))
