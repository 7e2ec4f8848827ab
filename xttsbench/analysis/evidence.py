"""From paired log ratios to evidence: how sure it is that one configuration is faster than another, at any time.

Each round, one turn of both sides, gives one log ratio ``d = log(speed of one / speed of the other)``. It varies with
two components: pairs of processes differ (memory layout, the luck of their start), and so do the rounds of one pair.
Rounds average out the second and never the first, so the pair is the unit: ``p`` pairs of ``n`` rounds know the mean
with the variance ``(s0^2 + sigma^2 / n) / p``. Of ``s0``, what pairs differ by, the session knows something
(:func:`noise_scale`); one pair shows nothing of it. Of ``sigma`` the rounds of each pair show their part.

The evidence is Student's t as a normal mixture (Robbins 1970; Lai 1976; Perez-Ortiz, Lardy, de Heide & Grunwald 2024,
"E-statistics, group invariance and anytime-valid testing") with informed variances, ``s0^2`` as scaled inverse
chi-square (3), so that one round says something already; the alternative is that the true mean is normal with 100 times
the variance of a round. Where a variance is made of two parts, its degrees of freedom are Satterthwaite's (1946).

Where nothing differs, the chance that such a number ever reaches ``k`` is at most ``1 / k`` (Ville 1939; Grunwald, de
Heide & Koolen 2024, "Safe testing"). So it may be looked at after every round, and measuring may stop whenever it is
large enough. The values of the mean whose own e-value stays below 20 are a 95 % confidence sequence (Howard, Ramdas,
McAuliffe & Sekhon 2021). With ``m`` candidates ``20 m`` decides, and intervals are those of 1 - 0.05 / m, so that they
hold for the best of the ``m`` too (Bonferroni; Benjamini & Yekutieli 2005 on intervals of what was selected).

What the priors do not assume is simulated (``benchmarks/sweeps``): pairs that differ by 1 to 8 %.
"""

from __future__ import annotations

import bisect
import math
import operator
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
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
_NU_WATCHED: Final = 5.0
"""The same for pairs that lived through several rounds: what remains of their luck has no burst of neighbours in it."""
_SPREAD: Final = 100.0  # Variance of the true mean under the alternative, in units of that of a round
_WIDER: Final = 1.25  # Factor on the noise where most rounds were disturbed and are kept all the same
_FORESEEN: Final = 1000
_ONE_SIDED: Final = 0.90  # Level of an interval whose upper end is passed in five cases of a hundred
_LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True)
class Student:
    """Mean log ratio with its error: Student's t.

    Attributes:
        mean: the mean.
        variance: of the mean.
        freedom: degrees of freedom of the variance.
        wide: variance of the mean under the alternative, as a multiple of ``variance``.
        fixed: known variance besides, of what was drawn once and is the same whenever it is looked at.
    """

    mean: float
    variance: float
    freedom: float
    wide: float
    fixed: float = 0.0

    def log_e(self, null: float = 0.0) -> float:
        """Logarithm of the e-value against a true mean of ``null``."""
        excess = (self.mean - null) ** 2 / self.variance / self.freedom
        gain = math.log1p(excess) - math.log1p(excess / self.wide)
        return (self.freedom + 1) / 2 * gain - math.log(self.wide) / 2

    @property
    def whole(self) -> Student:
        """The same with the known variance as a part of the other, which is how it counts as evidence."""
        variance = self.variance + self.fixed
        return Student(self.mean, variance, self.freedom, 1 + (self.wide - 1) * self.variance / variance)

    def sequence(self, level: float) -> tuple[float, float]:
        """Confidence sequence: the true means whose e-value is below ``1 / (1 - level)``."""
        factor = (math.sqrt(self.wide) / (1 - level)) ** (2 / (self.freedom + 1))
        if factor >= self.wide:
            return -math.inf, math.inf
        return self._around(self.freedom * (factor - 1) / (1 - factor / self.wide), level)

    def single(self, level: float) -> tuple[float, float]:
        """Student's interval, for one look."""
        from scipy import special

        return self._around(float(special.stdtrit(self.freedom, (1 + level) / 2)) ** 2, level)

    def _around(self, squared: float, level: float) -> tuple[float, float]:
        reach = math.hypot(math.sqrt(squared * self.variance), math.sqrt(self.fixed) * _normal((1 + level) / 2))
        return self.mean - reach, self.mean + reach


def _normal(share: float) -> float:
    from scipy import special

    return float(special.ndtri(share))


@dataclass(frozen=True, slots=True)
class Sample:
    """Summary of log ratios: weighted mean, squared deviations and sizes.

    Attributes:
        mean: their mean, every pair of processes with the weight that it deserves.
        weight: how many pairs would be as informative.
        squares: sum of the squared deviations of the pairs from the mean, in units of a typical pair.
        freedom: that these squares have.
        rounds: that were measured.
        processes: pairs of processes that they were measured in.
        within: sum of the squared deviations of rounds from the mean of their pair.
        within_freedom: that these squares have.
        each: rounds of a typical pair.
        fixed: known variance of the mean besides, such as that between sessions, which no round shows.
    """

    mean: float
    weight: float
    squares: float
    freedom: float
    rounds: int
    processes: int
    within: float = 0.0
    within_freedom: float = 0.0
    each: float = 1.0
    fixed: float = 0.0

    @property
    def of_rounds(self) -> float:
        """Part of a typical pair's variance that more rounds would average out; 0 where it cannot be told apart."""
        if not self.within_freedom:
            return 0.0
        return (_NU * LEAST_SCALE**2 + self.within) / (_NU + self.within_freedom) / self.each

    def student(self, s0: float) -> Student:
        """The mean with its error, where pairs of equal configurations differ by ``s0``."""
        # Without rounds of a pair that could tell the two apart, s0 is both.
        freedom = _NU + self.within_freedom
        seen = self.within / freedom / self.each
        pair = s0**2 + self.of_rounds
        known = _NU_WATCHED if self.within_freedom else _NU
        known = pair**2 / ((pair - seen) ** 2 / known + seen**2 / freedom)
        a_round = s0**2 + self.of_rounds * self.each
        variance = (known * pair + self.squares) / (known + self.freedom) / self.weight
        wide = 1 + _SPREAD * self.weight * a_round / pair
        return Student(self.mean, variance, known + self.freedom, wide, self.fixed)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for one configuration against another.

    Attributes:
        word: what may be said.
        ratio: its speed as a ratio, with the confidence sequence at 1 - 0.05 / m for one of m candidates: it leaves 1
            out where ``value`` decides, and may be read after every round, also of the best. Where that has no end
            yet, the one at 95 %.
        value: the e-value.
        rounds: paired rounds that it rests on.
        processes: pairs of processes that these were measured in.
        more_rounds: further rounds that would decide if they are like these; ``None`` where it is decided, or where a
            thousand would not.
        no_gain: whether a gain that matters is ruled out by the confidence sequence, at 95 % one-sided.
        futile: the same by a single look's interval: no evidence for anything, only a reason to measure something else.
    """

    word: Word
    ratio: Estimate
    value: float
    rounds: int
    processes: int
    more_rounds: int | None = None
    no_gain: bool = False
    futile: bool = False

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
    within = math.fsum((x - m) ** 2 for m, own in zip(means, groups.values(), strict=True) for x in own)
    freedom = ratios.size - count
    rounds_differ = (_NU * LEAST_SCALE**2 + within) / (_NU + freedom)
    pairs = [LEAST_SCALE**2 + rounds_differ / len(own) for own in groups.values()]
    typical = count / math.fsum(1 / pair for pair in pairs)
    weights = [typical / pair for pair in pairs]
    mean = math.fsum(map(operator.mul, weights, means)) / count
    squares = math.fsum(w * (m - mean) ** 2 for w, m in zip(weights, means, strict=True))
    each = rounds_differ / (typical - LEAST_SCALE**2)
    return Sample(mean, count, squares, count - 1, ratios.size, count, within, freedom, each)


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
    return math.exp(min(_sample(log_ratios).student(s0).whole.log_e(null), 700.0))


def confidence_sequence(log_ratios: Sample | npt.ArrayLike, s0: float, *, level: float = _LEVEL) -> Estimate:
    """The ratio with the values whose e-value is below ``1 / (1 - level)``, whenever it is looked at."""
    found = _sample(log_ratios).student(s0)
    return _ratio(found.mean, found.sequence(level))


def interval(log_ratios: Sample | npt.ArrayLike, s0: float, *, level: float = _LEVEL) -> Estimate:
    """The ratio with Student's interval, for a figure that is looked at once; nothing is concluded from it.

    The posterior of the mean under a flat prior, so that one round has one, too. By simulation it covers what it says
    where pairs differ by up to 5 %, and from the sixth pair on by up to 8 %.
    """
    found = _sample(log_ratios).student(s0)
    return _ratio(found.mean, found.single(level))


def _ratio(mean: float, ends: tuple[float, float]) -> Estimate:
    low, middle, high = (math.exp(min(max(value, -700.0), 700.0)) for value in (ends[0], mean, ends[1]))
    return Estimate(estimate=middle, low=low, high=high)


def noise_scale(against_itself: Sample | None, others: Iterable[Sample] = (), *, mostly_invalid: bool = False) -> float:
    """``s0``: what pairs of processes of equal configurations differ by in this session, at least 3 %.

    The larger of the baseline's own two runs about zero, and of all pairs about the means of their configurations, each
    together with three pairs' worth of the 3 % that are expected, less what their rounds explain. A deviation between
    processes is one, however many rounds they live through. A quarter more where most rounds were disturbed and were
    kept for want of others.
    """
    own = [*others, *([against_itself] if against_itself is not None else [])]
    spread = [(sum(one.squares - one.freedom * one.of_rounds for one in own), sum(one.freedom for one in own))]
    if against_itself is not None:
        freedom = against_itself.freedom + 1
        about_zero = against_itself.squares + against_itself.weight * against_itself.mean**2
        spread.append((about_zero - freedom * against_itself.of_rounds, freedom))
    return max(LEAST_SCALE, *(_expected(*one) for one in spread)) * (_WIDER if mostly_invalid else 1.0)


def round_scale(samples: Iterable[Sample]) -> float:
    """Standard deviation between the rounds of one pair of processes, of all samples together."""
    own = list(samples)
    return _expected(sum(sample.within for sample in own), sum(sample.within_freedom for sample in own))


def _expected(squares: float, freedom: float) -> float:
    return math.sqrt((_NU * LEAST_SCALE**2 + max(squares, 0.0)) / (_NU + freedom))


def decide(
    log_ratios: Sample | npt.ArrayLike, s0: float, *, candidates: int = 1, margin: float, undisturbed: bool = True
) -> Evidence:
    """Weighs the evidence for one of several ``candidates``, each of which has to show that many times the evidence.

    The log ratios are of its speed over that of what it is compared with, and ``s0`` is of the session
    (:func:`noise_scale`). A difference that is certainly below ``margin``, a share, is *no difference*; nothing is
    *clear* unless a process of each side was ``undisturbed``.
    """
    found = _sample(log_ratios)
    student, value = found.student(s0), e_value(found, s0)
    word = _word(student, value, candidates, margin, undisturbed=undisturbed)
    more = None if word in DECIDED else rounds_to_decide(found, s0, candidates=candidates, margin=margin)
    ends = student.sequence(1 - (1 - _LEVEL) / candidates)
    ratio = _ratio(student.mean, ends if math.isfinite(ends[1]) else student.sequence(_LEVEL))
    no_gain, futile = (of(_ONE_SIDED)[1] < math.log1p(margin) for of in (student.sequence, student.single))
    return Evidence(word, ratio, value, found.rounds, found.processes, more, no_gain, futile)


def smallest_visible(log_ratios: Sample | npt.ArrayLike, s0: float, *, candidates: int = 1) -> float | None:
    """The effect that rounds as many and as noisy as these would decide in four cases of five, as a share.

    What the mean has to reach for ``20 m``, and 0.84 standard errors beyond; ``None`` where nothing would.
    """
    found = _sample(log_ratios).student(s0).whole
    low, high = found.sequence(1 - 1 / (DECIDES * candidates))
    reach = (high - low) / 2 + _normal(0.8) * math.sqrt(found.variance)
    return math.expm1(reach) if reach < 700 else None


def rounds_to_decide(found: Sample, s0: float, *, candidates: int, margin: float) -> int | None:
    """Further rounds after which the word is final if they are like those so far; ``None`` beyond a thousand.

    They are taken to come in further processes, as many in each as so far.
    """
    own = found.student(s0)

    def decides(more: int) -> bool:
        times = 1 + more / found.rounds
        freedom = own.freedom + (times - 1) * found.processes
        later = Student(own.mean, own.variance / times, freedom, 1 + (own.wide - 1) * times, own.fixed)
        return later.whole.log_e() >= math.log(DECIDES * candidates) or _within(later, margin)

    if not decides(_FORESEEN):
        return None
    return 1 + bisect.bisect_left(range(1, _FORESEEN + 1), True, key=decides)


def _word(found: Student, value: float, candidates: int, margin: float, *, undisturbed: bool) -> Word:
    faster = found.mean > 0
    if _within(found, margin):
        return "no_difference"
    if value >= CLEARLY * candidates and undisturbed:
        return "clearly_faster" if faster else "clearly_slower"
    if value >= DECIDES * candidates:
        return "faster" if faster else "slower"
    if value >= LIKELY * candidates:
        return "likely_faster" if faster else "likely_slower"
    return "undecided"


def _within(found: Student, margin: float) -> bool:
    low, high = found.sequence(_LEVEL)
    return -math.log1p(margin) <= low and high <= math.log1p(margin)


def _sample(log_ratios: Sample | npt.ArrayLike) -> Sample:
    return log_ratios if isinstance(log_ratios, Sample) else paired(log_ratios)
