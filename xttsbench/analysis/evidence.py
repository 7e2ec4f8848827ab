"""From paired log ratios to evidence: how sure it is that one configuration is faster than another, at any time.

Each round, one turn of both sides, gives one log ratio ``d = log(speed of one / speed of the other)``. Given its true
mean ``theta`` and variance ``sigma^2`` a round is normal. The alternative is that ``theta | sigma^2 ~ N(0, 100
sigma^2)``; of the variance both hypotheses know what the session has shown, ``sigma^2 ~ scaled inverse chi-square (3,
s0^2)``. The ratio of the two marginal likelihoods is an e-value with a closed form: the normal mixture of Robbins 1970
and Lai 1976 for Student's t (Perez-Ortiz, Lardy, de Heide & Grunwald 2024, "E-statistics, group invariance and
anytime-valid testing"), with a proper prior in place of the right Haar prior, so that one round says something already.

Where nothing differs, the chance that such a number ever reaches ``k`` is at most ``1 / k`` (Ville 1939; Grunwald, de
Heide & Koolen 2024, "Safe testing"). So it may be looked at after every round, and measuring may stop whenever it is
large enough. The values of ``theta`` whose own e-value stays below 20 are a 95 % confidence sequence (Howard, Ramdas,
McAuliffe & Sekhon 2021). With ``m`` candidates ``20 m`` decides (Bonferroni).

The guarantee holds for the noise that ``s0`` describes; one that is four times too small gives 3 % false answers for
each candidate. :func:`noise_scale` therefore takes the largest of what is known.
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.records.base import DECIDED, Estimate, Word

DECIDES: Final = 20.0
"""Evidence that decides, times the number of candidates."""
CLEARLY: Final = 1000.0
LIKELY: Final = 3.0
LEAST_SCALE: Final = 0.03
"""The smallest ``s0``: paired rounds on a quiet machine differ by about as much."""
_NU: Final = 3.0
_SPREAD: Final = 100.0  # Variance of the true mean under the alternative, in units of that of a round
PAIR_SPREAD: Final = 0.03
"""Share by which pairs of processes differ beyond their rounds (memory layout, the luck of their start), however noisy
the rounds are. On a quiet machine it is half of a round's variance, so that a pair weighs at most as much as two pairs
of one round each, however long it lives; beside neighbours that make rounds differ it is a small part of it.
"""
_WIDER: Final = 1.25  # Factor on the noise where most rounds were disturbed and are kept all the same
_FORESEEN: Final = 1000
_ONE_SIDED: Final = 0.90  # Level of an interval whose upper end is passed in five cases of a hundred


@dataclass(frozen=True, slots=True)
class Sample:
    """Summary of log ratios: weighted mean, variance and sizes.

    Attributes:
        mean: their mean, every round and process with the weight that it deserves.
        weight: how many independent rounds would be as informative: the variance of the mean is ``sigma^2 / weight``.
        squares: sum of the squared deviations of the processes from the mean, in units of independent rounds.
        freedom: that these squares have.
        within: the same of the rounds of a process from their own mean.
        within_freedom: that these have.
        rounds: that were measured.
        processes: pairs of processes that they were measured in.
    """

    mean: float
    weight: float
    squares: float
    freedom: int
    rounds: int
    processes: int
    within: float = 0.0
    within_freedom: int = 0

    @property
    def size(self) -> int:
        """Numbers that it is made of: one for the mean, the others for the squares."""
        return 1 + self.freedom + self.within_freedom

    def known(self, s0: float) -> float:
        """Squares of prior and sample together.

        Rounds of one process that agree show nothing of what processes differ by, so they never make the noise smaller
        than ``s0``; fresh processes may.
        """
        return _NU * s0**2 + self.squares + max(self.within, self.within_freedom * s0**2)

    def variance(self, s0: float) -> float:
        """Posterior scale of a round's variance."""
        return self.known(s0) / (_NU + self.size - 1)

    def widened(self, s0: float, variance: float) -> Sample:
        """The same mean with a known variance besides, such as that between sessions."""
        return replace(self, weight=1 / (1 / self.weight + variance / self.variance(s0)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for one configuration against another.

    Attributes:
        word: what may be said.
        ratio: its speed as a ratio, with a 95 % interval.
        value: the e-value.
        rounds: paired rounds that it rests on.
        processes: pairs of processes that these were measured in.
        more_rounds: further rounds that would decide if they are like these; ``None`` where it is decided, or where a
            thousand would not.
        no_gain: whether a gain that matters is ruled out at 95 %, one-sided. That is no evidence for anything, only a
            reason to measure something else.
    """

    word: Word
    ratio: Estimate
    value: float
    rounds: int
    processes: int
    more_rounds: int | None = None
    no_gain: bool = False

    @property
    def decided(self) -> bool:
        """Whether more rounds are needless."""
        return self.word in DECIDED


def paired(log_ratios: npt.ArrayLike, processes: Sequence[Hashable] | None = None) -> Sample:
    """Paired rounds.

    Without ``processes`` each round was measured in a pair of its own.

    Raises:
        ValueError: there is none, or one is not finite.
    """
    ratios = np.asarray(log_ratios, dtype=np.float64).ravel()
    if not ratios.size or not np.isfinite(ratios).all():
        raise ValueError(f"at least one finite log ratio is needed, one per round; got {ratios.tolist()}")
    names = range(ratios.size) if processes is None else processes
    groups: dict[Hashable, list[float]] = {}
    for name, ratio in zip(names, ratios.tolist(), strict=True):
        groups.setdefault(name, []).append(ratio)
    # Plain floats: of so few numbers each call of NumPy takes longer than the arithmetic.
    means = [math.fsum(own) / len(own) for own in groups.values()]
    count = len(means)
    deviations = math.fsum((x - m) ** 2 for m, own in zip(means, groups.values(), strict=True) for x in own)
    rounds_differ = (_NU * LEAST_SCALE**2 + deviations) / (_NU + ratios.size - count)
    shared = PAIR_SPREAD**2 / (PAIR_SPREAD**2 + max(rounds_differ, PAIR_SPREAD**2))
    # Within a pair the covariance is (1 - c) I + c J; its inverse, summed, is the weight of the pair's mean.
    weights = [len(own) / (1 + shared * (len(own) - 1)) for own in groups.values()]
    weight = math.fsum(weights)
    mean = math.fsum(map(operator.mul, weights, means)) / weight
    squares = math.fsum(w * (m - mean) ** 2 for w, m in zip(weights, means, strict=True))
    within = deviations / (1 - shared)
    return Sample(mean, weight, squares, count - 1, ratios.size, count, within, ratios.size - count)


def unpaired(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> Sample:
    """The difference of two means of logarithms, ``theirs`` less ``ours``, one number of each process.

    What both have in common is a nuisance of which nothing is known; a round's variance is that of a difference, twice
    that of one process. At least one number on each side.
    """
    left, right = (np.asarray(values, dtype=np.float64).ravel() for values in (ours, theirs))
    if not left.size or not right.size or not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ValueError(f"finite numbers are needed on both sides; got {left.tolist()} and {right.tolist()}")
    squares = 2 * float(np.var(left) * left.size + np.var(right) * right.size)
    weight = 2 * left.size * right.size / (left.size + right.size)
    freedom, processes = left.size + right.size - 2, min(left.size, right.size)
    return Sample(float(right.mean() - left.mean()), weight, squares, freedom, processes, processes)


def e_value(log_ratios: Sample | npt.ArrayLike, s0: float, *, null: float = 0.0) -> float:
    """Evidence against a true mean of ``null``: how much likelier the rounds are with another one.

    With ``n`` pairs of processes of one round each it is ``(1 + 100 n)^(-1/2) ((3 s0^2 + sum d^2) / (3 s0^2 + sum d^2 -
    n^2 mean(d)^2 / (n + 1/100)))^((3 + n)/2)``, where ``d`` is the log ratio less ``null``; one round gives 1015 at
    most.
    """
    found = _sample(log_ratios)
    known, excess = found.known(s0), found.weight * (found.mean - null) ** 2
    wide = 1 + _SPREAD * found.weight
    power = (_NU + found.size) / 2
    return math.exp(min(power * math.log((known + excess) / (known + excess / wide)) - math.log(wide) / 2, 700.0))


def confidence_sequence(log_ratios: Sample | npt.ArrayLike, s0: float, *, level: float = 0.95) -> tuple[float, float]:
    """The true means whose e-value is below ``1 / (1 - level)``, as logarithms; endless where one round is too few."""
    found = _sample(log_ratios)
    wide = 1 + _SPREAD * found.weight
    factor = (math.sqrt(wide) / (1 - level)) ** (2 / (_NU + found.size))
    if factor >= wide:
        return -math.inf, math.inf
    reach = math.sqrt(found.known(s0) * (factor - 1) / (1 - factor / wide) / found.weight)
    return found.mean - reach, found.mean + reach


def interval(log_ratios: Sample | npt.ArrayLike, s0: float, *, level: float = 0.95) -> Estimate:
    """The ratio with its interval: Student's with the informed variance, so that one round has one, too.

    The posterior of the mean under a flat prior: ``3 + n - 1`` degrees of freedom about the mean, with the scale
    ``sqrt((3 s0^2 + sum (d - mean)^2) / (3 + n - 1) / n)``. Unlike the confidence sequence it is for one look.
    """
    from scipy import special

    found = _sample(log_ratios)
    freedom = _NU + found.size - 1
    reach = float(special.stdtrit(freedom, (1 + level) / 2)) * math.sqrt(found.variance(s0) / found.weight)
    low, middle, high = (math.exp(min(max(found.mean + off, -700.0), 700.0)) for off in (-reach, 0.0, reach))
    return Estimate(estimate=middle, low=low, high=high)


def noise_scale(against_itself: Sample | None, others: Iterable[Sample] = (), *, mostly_invalid: bool = False) -> float:
    """``s0``: what paired rounds of equal configurations differ by in this session, at least 3 %.

    The larger of the baseline's own two runs about zero, and of all rounds about the means of their configurations,
    each together with three rounds' worth of the 3 % that are expected: few rounds say little of how much they differ.
    A quarter more where most rounds were disturbed and were kept for want of others.
    """
    found = [LEAST_SCALE]
    own = list(others)
    if against_itself is not None:
        about_zero = against_itself.squares + against_itself.within + against_itself.weight * against_itself.mean**2
        found.append(_expected(about_zero, against_itself.size))
        own.append(against_itself)
    freedom = sum(sample.size - 1 for sample in own)
    found.append(_expected(sum(sample.squares + sample.within for sample in own), freedom))
    return max(found) * (_WIDER if mostly_invalid else 1.0)


def _expected(squares: float, freedom: int) -> float:
    return math.sqrt((_NU * LEAST_SCALE**2 + squares) / (_NU + freedom))


def decide(
    log_ratios: Sample | npt.ArrayLike, s0: float, *, candidates: int = 1, margin: float, undisturbed: bool = True
) -> Evidence:
    """Weighs the evidence for one of several ``candidates``, each of which has to show that many times the evidence.

    The log ratios are of its speed over that of what it is compared with, and ``s0`` is of the session
    (:func:`noise_scale`). A difference that is certainly below ``margin``, a share, is *no difference*; nothing is
    *clear* unless a process of each side was ``undisturbed``.
    """
    found = _sample(log_ratios)
    value = e_value(found, s0)
    sequence = confidence_sequence(found, s0)
    word = _word(found, value, sequence, candidates, margin, undisturbed=undisturbed)
    more = None if word in DECIDED else rounds_to_decide(found, s0, candidates=candidates, margin=margin)
    no_gain = interval(found, s0, level=_ONE_SIDED).high < 1 + margin
    return Evidence(word, interval(found, s0), value, found.rounds, found.processes, more, no_gain)


def smallest_visible(log_ratios: Sample | npt.ArrayLike, s0: float, *, candidates: int = 1) -> float | None:
    """The effect that rounds as many and as noisy as these would decide in four cases of five, as a share.

    What the mean has to reach for ``20 m``, and 0.84 standard errors beyond; ``None`` where nothing would.
    """
    from scipy import special

    found = _sample(log_ratios)
    low, high = confidence_sequence(found, s0, level=1 - 1 / (DECIDES * candidates))
    beyond = float(special.ndtri(0.8)) * math.sqrt(found.variance(s0) / found.weight)
    reach = (high - low) / 2 + beyond
    return math.expm1(reach) if reach < 700 else None


def rounds_to_decide(found: Sample, s0: float, *, candidates: int, margin: float) -> int | None:
    """Further rounds after which the word is final if they are like those so far; ``None`` beyond a thousand."""
    each = found.variance(s0)

    def decides(more: int) -> bool:
        later = Sample(  # not by `replace`, which takes as long as the rest
            found.mean,
            found.weight * (found.size + more) / found.size,
            found.squares + more * each,
            found.freedom + more,
            found.rounds,
            found.processes,
            found.within,
            found.within_freedom,
        )
        return e_value(later, s0) >= DECIDES * candidates or _within(confidence_sequence(later, s0), margin)

    if not decides(_FORESEEN):
        return None
    return 1 + bisect.bisect_left(range(1, _FORESEEN + 1), True, key=decides)


def _word(
    found: Sample, value: float, sequence: tuple[float, float], candidates: int, margin: float, *, undisturbed: bool
) -> Word:
    faster = found.mean > 0
    if _within(sequence, margin):
        return "no_difference"
    if value >= CLEARLY * candidates and undisturbed:
        return "clearly_faster" if faster else "clearly_slower"
    if value >= DECIDES * candidates:
        return "faster" if faster else "slower"
    if value >= LIKELY * candidates:
        return "likely_faster" if faster else "likely_slower"
    return "undecided"


def _within(sequence: tuple[float, float], margin: float) -> bool:
    return -math.log1p(margin) <= sequence[0] and sequence[1] <= math.log1p(margin)


def _sample(log_ratios: Sample | npt.ArrayLike) -> Sample:
    return log_ratios if isinstance(log_ratios, Sample) else paired(log_ratios)
