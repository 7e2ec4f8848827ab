"""A machine that is not there: rates of processes with known truths and known noise, and sweeps run on it.

The sweeps go through the project's own rules, round by round, as the command does; only the trials are made up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xttsbench.records.plan import Comparison, PlannedArm, Procedure
from xttsbench.rules.rounds import Result, Round, next_round
from xttsbench.rules.winner import Choice, choose

STEPS = 240


@dataclass(frozen=True)
class Machine:
    """Noise of the logarithm of a process's samples per second, as standard deviations unless said otherwise.

    Attributes:
        process: between processes of the same arm; a trial of full length has no other noise of its own.
        block: shared by all arms of a block: the state of the machine.
        steps: what fewer steps add: of the mean over a trial of full length, so steps of 10 % with an autocorrelation
            of 0.6 (240 of them are worth 60).
        outliers: share of processes that something else disturbs.
        slower: what a disturbed process loses, from and to, as a share.
    """

    process: float = 0.02
    block: float = 0.03
    steps: float = 0.013
    outliers: float = 0.01
    slower: tuple[float, float] = (0.05, 0.25)

    def measured(self, asked: Round, truth: Mapping[str, float], rng: np.random.Generator) -> Result:
        """A round's rates; the baseline's second run is as fast as its first."""
        arms = [arm.id for arm in asked.comparison.arms]
        shape = (len(arms), len(asked.blocks))
        short = self.steps * np.sqrt(max(STEPS / asked.comparison.steps - 1, 0.0))
        logs = np.log([[truth[arm]] for arm in arms]) + self.block * rng.standard_normal(shape[1])
        logs = logs + np.hypot(self.process, short) * rng.standard_normal(shape)
        disturbed = rng.random(shape) < self.outliers
        logs += np.where(disturbed, np.log1p(-rng.uniform(*self.slower, shape)), 0.0)
        rows = (dict(zip(asked.blocks, row, strict=True)) for row in np.exp(logs).tolist())
        return Result(asked, dict(zip(arms, rows, strict=True)), {})


PLAIN = Machine(outliers=0.0)
DISTURBED = Machine()


@dataclass(frozen=True)
class Sweep:
    """One simulated sweep."""

    choice: Choice
    results: tuple[Result, ...]

    @property
    def steps(self) -> int:
        """Measured in all trials."""
        rounds = [result.round.comparison for result in self.results]
        return sum(len(made.arms) * made.blocks * made.steps for made in rounds)


def planned(configs: Sequence[Mapping[str, Any]], **fields: Any) -> Comparison:
    """The comparison of a sweep over configurations, the first of them the baseline."""
    arms = [
        PlannedArm(id=f"arm{index}", role="candidate" if index else "baseline", config=dict(own), kwargs=dict(own))
        for index, own in enumerate(configs)
    ]
    arms.append(arms[0].model_copy(update={"id": "arm0:again", "role": "aa"}))
    limits = {"blocks": 8, "steps": STEPS, "window_s": 6.0, "trial_s": 60.0, "stall_s": 30.0}
    return Comparison(**({"name": "simulated", "target": "simulated"} | limits | fields), arms=tuple(arms))


def swept(
    comparison: Comparison, procedure: Procedure, rates: Sequence[float], machine: Machine, rng: np.random.Generator
) -> Sweep:
    """A whole sweep over arms with those true rates, in the order of the plan."""
    truth = {arm.id: rate for arm, rate in zip(comparison.arms, [*rates, rates[0]], strict=True)}
    return decided(comparison, procedure, lambda asked: machine.measured(asked, truth, rng))


def decided(comparison: Comparison, procedure: Procedure, measured: Callable[[Round], Result]) -> Sweep:
    """A whole sweep, round by round, with the trials that ``measured`` gives."""
    results: list[Result] = []
    while (asked := next_round(comparison, procedure, results)) is not None:
        results.append(measured(asked))
    return Sweep(choose(comparison, procedure, results), tuple(results))
