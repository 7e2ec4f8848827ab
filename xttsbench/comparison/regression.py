"""How much faster B is than A, from a few processes on each side, and whether that is decided.

Arms of one run were measured in the same blocks and rounds, on the same batches: paired rounds, as everywhere
(:mod:`xttsbench.comparison.effects`).

Two runs are two sessions, and nothing pairs them. Their blocks may have the same numbers, seeds and batches, but block
3 of one was not run beside block 3 of the other: pairing them would take the batches' variance out of the interval and
leave in what changed on the machine in between. Each process of either gives the logarithm of its rate, and the two
means are compared unpaired. That alone is not enough: simulated with 2 % noise between processes, all runs of A before
all runs of B call 45 % of equal pairs different where 5 % are allowed, since no number of processes within a session
shows what sessions differ by. That is about what a standard deviation of 2 % between sessions gives, so that much
(:data:`SESSION_NOISE`) is added to the variance of each side unless the user knows better.

Either way a decision and a gate take two processes a side: one says nothing of the next. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from scipy import special

from xttsbench.analysis.evidence import (
    LEAST_SCALE,
    Sample,
    decide,
    interval,
    noise_scale,
    smallest_visible,
    unpaired,
)
from xttsbench.comparison.effects import undecided
from xttsbench.records.base import Estimate, Word

SESSION_NOISE: Final = 0.02
"""Standard deviation of the speed of one session about that of the machine, as a share."""
MIN_PROCESSES: Final = 2
"""Of each side, for a decision or a gate."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What is known of one pair of arms.

    Attributes:
        sample: logarithms of B's speed over A's; ``None`` where the two have nothing in common.
        noise_scale: what rounds of equal configurations differ by.
        word: what may be said.
        evidence: the e-value that they differ.
        smallest_visible_effect: what would have been decided, as a share; ``None`` where nothing would.
        sure: whether the interval tells of processes to come, so that a gate may rest on it.
        why: why nothing was decided, where it was not.
    """

    sample: Sample | None = None
    noise_scale: float = LEAST_SCALE
    word: Word = "undecided"
    evidence: float | None = None
    smallest_visible_effect: float | None = None
    sure: bool = False
    why: str | None = None

    @property
    def ratio(self) -> Estimate | None:
        """Speed of B over A, with the 95 % interval that is shown."""
        return None if self.sample is None else self.interval(0.95)

    def interval(self, level: float) -> Estimate:
        """The ratio with its interval at another level; only where there is a sample."""
        if self.sample is None:
            raise ValueError("there is nothing to make an interval of")
        return interval(self.sample, self.noise_scale, level=level)


def decide_paired(samples: Mapping[str, Sample], *, margin: float) -> dict[str, Effect]:
    """Decide on pairs of arms of one run, by their paired rounds.

    Args:
        samples: pair -> log ratios of B's speed over A's.
        margin: the smallest difference that matters, as a share.
    """
    return _decided(samples, noise_scale(None, samples.values()), margin)


def decide_apart(samples: Mapping[str, Sample], *, margin: float, session_noise: float) -> dict[str, Effect]:
    """Decide on pairs of arms of two sessions.

    Args:
        samples: pair -> B's mean log rate less A's, unpaired.
        margin: the smallest difference that matters, as a share.
        session_noise: standard deviation of a session's speed, as a share; known, so it costs no degrees of freedom.
    """
    s0 = noise_scale(None, samples.values())
    between = 2 * math.log1p(session_noise) ** 2
    return _decided({name: own.widened(s0, between) for name, own in samples.items()}, s0, margin)


def reported(ours: Estimate, our_processes: int, theirs: Estimate, their_processes: int) -> Sample:
    """The unpaired difference of two reported rates, where the processes themselves are not at hand.

    Raises:
        ValueError: there is no process on a side, or an interval is not positive.
    """
    counts = (our_processes, their_processes)
    if min(counts) < 1 or not all(0 < own.low <= own.estimate <= own.high for own in (ours, theirs)):
        raise ValueError(f"positive intervals over a process at least are needed; got {ours}, {theirs}, {counts}")
    error = math.hypot(*(_error(own, count) for own, count in zip((ours, theirs), counts, strict=True)))
    shape = unpaired([0.0] * our_processes, [0.0] * their_processes)
    # As large as the squares of processes are that have this standard error.
    squares = (error**2 * shape.weight) * (3 + shape.freedom) - 3 * LEAST_SCALE**2
    return replace(shape, mean=math.log(theirs.estimate / ours.estimate), squares=max(squares, 0.0))


def withheld(effect: Effect, why: str) -> Effect:
    """The effect without its word, and no ground for a gate."""
    return replace(effect, word="undecided", sure=False, why=why)


def _decided(samples: Mapping[str, Sample], s0: float, margin: float) -> dict[str, Effect]:
    found = {}
    for name, sample in samples.items():
        evidence = decide(sample, s0, candidates=len(samples), margin=margin)
        visible = smallest_visible(sample, s0, candidates=len(samples))
        effect = Effect(sample, s0, evidence.word, evidence.value, visible, sure=True)
        if sample.processes < MIN_PROCESSES:
            effect = withheld(effect, f"{sample.processes} process of each; a decision takes {MIN_PROCESSES}")
        elif not evidence.decided:
            effect = replace(effect, why=undecided(evidence, len(samples)))
        found[name] = effect
    return found


def _error(rate: Estimate, processes: int) -> float:
    """Standard error of a logarithm, from the interval that :func:`xttsbench.analysis.evidence.interval` makes."""
    return math.log(rate.high / rate.low) / (2 * float(special.stdtrit(3 + processes - 1, 0.975)))
