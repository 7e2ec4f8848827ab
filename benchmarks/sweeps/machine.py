"""A machine that is not there: rates of processes with known truths and known noise, and sweeps run on it.

The sweeps go through the project's own rules, round by round, as the command does; only the trials are made up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xttsbench.analysis.evidence import Sample, paired
from xttsbench.comparison.sweep import Choice, Round, Seen, choose, next_round
from xttsbench.records.plan import Comparison, PlannedVariant, Procedure

Rates = dict[str, dict[tuple[int, int], float]]  # variant -> block and round -> logarithm of its samples per second


@dataclass(frozen=True)
class Machine:
    """Noise of the logarithm of samples per second, as standard deviations unless said otherwise.

    Attributes:
        process: between processes of the same arm.
        block: shared by all arms of a block: the state of the machine.
        turn: between the turns of a process that lives through several rounds.
        rounds: that a process lives through; one where each round has fresh processes.
        outliers: share of turns that something else disturbs.
        slower: what a disturbed turn loses, from and to, as a share.
    """

    process: float = 0.02
    block: float = 0.03
    turn: float = 0.0
    rounds: int = 1
    outliers: float = 0.01
    slower: tuple[float, float] = (0.05, 0.25)

    def measured(self, asked: Round, truth: Mapping[str, float], rng: np.random.Generator) -> Rates:
        """A block's rates; the baseline's second run is as fast as its first."""
        arms = [arm.id for arm in asked.comparison.arms]
        shape = (len(arms), self.rounds)
        logs = np.log([[truth[arm]] for arm in arms]) + self.block * rng.standard_normal(self.rounds)
        logs = logs + self.process * rng.standard_normal((len(arms), 1)) + self.turn * rng.standard_normal(shape)
        disturbed = rng.random(shape) < self.outliers
        logs = logs + np.where(disturbed, np.log1p(-rng.uniform(*self.slower, shape)), 0.0)
        return {
            arm: {(asked.first_block, number): float(value) for number, value in enumerate(row)}
            for arm, row in zip(arms, logs, strict=True)
        }


PLAIN = Machine(outliers=0.0)
DISTURBED = Machine()
LIVE = Machine(turn=0.02, rounds=4, outliers=0.0)


@dataclass(frozen=True)
class Sweep:
    """One simulated sweep."""

    choice: Choice
    rounds: tuple[Round, ...]
    trials: int
    turns: int


@dataclass
class Measured:
    """What was measured so far, as the rules see it."""

    rates: Rates = field(default_factory=dict)
    next_block: int = 0

    def add(self, asked: Round, new: Rates) -> None:
        """Keep a block."""
        for arm, own in new.items():
            self.rates.setdefault(arm, {}).update(own)
        self.next_block = asked.first_block + 1

    def versus(self, over: str, under: str) -> Sample | None:
        """Paired log ratios."""
        above, below = self.rates.get(over, {}), self.rates.get(under, {})
        both = sorted(above.keys() & below.keys())
        return paired([above[turn] - below[turn] for turn in both], [block for block, _ in both]) if both else None

    @property
    def seen(self) -> Seen:
        """For the rules."""
        processes = {arm: len({block for block, _ in own}) for arm, own in self.rates.items()}
        return Seen(self.versus, {}, processes, self.next_block)


def planned(configs: Sequence[Mapping[str, Any]], **fields: Any) -> Comparison:
    """The comparison of a sweep over configurations, the first of them the baseline."""
    arms = [
        PlannedVariant(id=f"arm{index}", role="candidate" if index else "baseline", config=dict(own), kwargs=dict(own))
        for index, own in enumerate(configs)
    ]
    arms.append(arms[0].model_copy(update={"id": "arm0:again", "role": "aa"}))
    limits = {"blocks": 8, "steps": 240, "window_s": 6.0, "trial_s": 60.0, "stall_s": 30.0}
    return Comparison(**({"name": "simulated", "target": "simulated"} | limits | fields), arms=tuple(arms))


def swept(
    comparison: Comparison, procedure: Procedure, rates: Sequence[float], machine: Machine, rng: np.random.Generator
) -> Sweep:
    """A sweep on a made-up machine; ``rates`` are the arms' true ones, in their order."""
    truth = {arm.id: rate for arm, rate in zip(comparison.arms, rates, strict=False)}
    truth |= {arm.id: rates[0] for arm in comparison.arms if arm.role == "aa"}
    return decided(comparison, procedure, lambda asked: machine.measured(asked, truth, rng))


def decided(comparison: Comparison, procedure: Procedure, measure: Callable[[Round], Rates]) -> Sweep:
    """Round after round until nothing is left to measure."""
    measured, rounds = Measured(), []
    while (asked := next_round(comparison, procedure, measured.seen)) is not None:
        measured.add(asked, measure(asked))
        rounds.append(asked)
    trials = sum(len(asked.comparison.arms) for asked in rounds)
    turns = sum(len(own) for own in measured.rates.values())
    return Sweep(choose(comparison, procedure, measured.seen), tuple(rounds), trials, turns)


def rates_of(logs: Mapping[str, Mapping[tuple[int, int], float]]) -> dict[str, float]:
    """Geometric mean of each arm's rates."""
    return {arm: math.exp(float(np.mean(list(own.values())))) for arm, own in logs.items()}
