"""A grid whose arms were all measured in many processes, and sweeps that draw their processes from it.

What the choice loses is known then, against the run's own means, and the noise is the machine's and not a model of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from machine import Rates, rates_of

from xttsbench.comparison.runs import collect
from xttsbench.comparison.sweep import Round
from xttsbench.execution.journal import read_trials
from xttsbench.execution.run_directory import read_plan
from xttsbench.records.plan import Comparison


@dataclass(frozen=True)
class Grid:
    """The rates of an exhaustive run.

    Attributes:
        comparison: its arms.
        rates: arm -> block and round -> logarithm of its samples per second; complete.
    """

    comparison: Comparison
    rates: Rates

    @property
    def blocks(self) -> int:
        """Complete blocks of the run."""
        return len({block for block, _ in self.rates[self.comparison.baseline.id]})

    @cached_property
    def mean_rates(self) -> dict[str, float]:
        """Geometric mean over the blocks, of the arms that can be chosen."""
        return rates_of({arm.id: self.rates[arm.id] for arm in self.comparison.arms if arm.role != "aa"})

    def drawn(self, asked: Round, rng: np.random.Generator) -> Rates:
        """One of the run's blocks, all arms and rounds of it, drawn with replacement."""
        known = sorted({block for block, _ in self.rates[self.comparison.baseline.id]})
        of_run = int(rng.choice(known))
        return {
            arm.id: {
                (asked.first_block, number): rate
                for (block, number), rate in self.rates[arm.id].items()
                if block == of_run
            }
            for arm in asked.comparison.arms
        }


def read_grid(directory: Path) -> Grid:
    """Read a run of ``xttsbench run`` over one accelerator.

    Raises:
        SystemExit: it is a run of something else, or an arm lacks a block that another has.
    """
    comparison = read_plan(directory).comparison
    if comparison is None or len(comparison.accelerators) != 1:
        raise SystemExit(f"{directory}: an exhaustive run of one grid behind one accelerator is expected")
    (group,) = collect(comparison, read_trials(directory))
    rates = {
        runs.arm.id: {turn: math.log(steps.rate_per_s) for turn, steps in runs.turns.items()} for runs in group.arms
    }
    if len({frozenset(own) for own in rates.values()}) != 1:
        raise SystemExit(
            f"{directory}: not every arm was measured in every block: { {k: len(v) for k, v in rates.items()} }"
        )
    return Grid(comparison, rates)
