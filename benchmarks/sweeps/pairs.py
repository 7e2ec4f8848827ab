"""Simulated comparisons of one candidate: pairs of processes that differ, rounds within them, and a noise check beside.

The baseline, its second run and the candidate have a process each in every pair, whose speeds differ by a standard
deviation that the rules do not know, and their rounds by another. What the sample says is the project's own code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from xttsbench.analysis.evidence import Sample, confidence_sequence, e_value, interval, noise_scale, paired
from xttsbench.comparison.effects import MIN_PROCESSES

MOST = 12
"""Pairs, looked at after each, and in the first one after each round."""


@dataclass(frozen=True)
class Noise:
    """Noise of a log ratio as standard deviations, and how often a neighbour slows a round by 5 to 25 %.

    Attributes:
        between: of pairs of processes.
        within: of the rounds of a pair.
        rounds: of a pair.
        disturbed: share of the rounds, of each side.
    """

    between: float
    within: float
    rounds: int
    disturbed: float

    def looks(self, effect: float, rng: np.random.Generator) -> Iterator[tuple[int, int, Sample, float]]:
        """Pairs and rounds so far, the candidate's sample, and what the session shows of the noise."""
        logs = math.sqrt(0.5) * self.between * rng.standard_normal((3, MOST, 1))
        logs = logs + math.sqrt(0.5) * self.within * rng.standard_normal((3, MOST, self.rounds))
        slowed = rng.random(logs.shape) < self.disturbed
        logs += np.where(slowed, np.log1p(-rng.uniform(0.05, 0.25, logs.shape)), 0.0)
        candidate, again = logs[1] - logs[0] + effect, logs[2] - logs[0]
        sizes = [(1, count) for count in range(1, self.rounds)] + [(pairs, self.rounds) for pairs in range(1, MOST + 1)]
        for pairs, each in sizes:
            names = np.repeat(range(pairs), each).tolist()
            own, check = (paired(of[:pairs, :each].ravel(), names) for of in (candidate, again))
            yield pairs, pairs * each, own, noise_scale(check, [own])


@dataclass
class Told:
    """Shares of sessions.

    Attributes:
        covered: pairs -> sessions whose confidence sequence holds the truth, and whose interval for one look does.
        named: sessions that would name the candidate a winner where nothing differs: faster in two pairs, at any look.
        clearly: sessions that call either side clearly faster, at any look.
    """

    covered: dict[int, list[tuple[bool, bool]]] = field(default_factory=dict)
    named: list[bool] = field(default_factory=list)
    clearly: list[bool] = field(default_factory=list)


def equal(noise: Noise, count: int, seed: int) -> Told:
    """Sessions in which nothing differs."""
    rng, told = np.random.default_rng(seed), Told()
    for _ in range(count):
        most = winning = 0.0
        for pairs, rounds, sample, s0 in noise.looks(0.0, rng):
            value = e_value(sample, s0)
            most = max(most, value)
            if sample.mean > 0 and pairs >= MIN_PROCESSES:
                winning = max(winning, value)
            if rounds == pairs * noise.rounds:
                ends = (confidence_sequence(sample, s0), interval(sample, s0))
                told.covered.setdefault(pairs, []).append(tuple(own.low <= 1 <= own.high for own in ends))
        told.named.append(winning >= 20)
        told.clearly.append(most >= 1000)
    return told


def decides(noise: Noise, effect: float, count: int, seed: int) -> float:
    """Median rounds until an effect is decided among four candidates; endless where twelve pairs do not."""
    rng, taken = np.random.default_rng(seed), []
    for _ in range(count):
        looks = noise.looks(math.log(effect), rng)
        taken.append(next((n for _, n, sample, s0 in looks if e_value(sample, s0) >= 20 * 4), math.inf))
    return float(np.median(taken))
