"""A grid whose arms were all measured in many processes, and sweeps that draw their processes from it.

What the choice loses is known then, against the run's own means, and the noise is the machine's and not a model of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from xttsbench.execution import journal
from xttsbench.execution.run_directory import read_plan
from xttsbench.records.plan import Comparison
from xttsbench.rules.arm_runs import collect
from xttsbench.rules.rounds import Result, Round


@dataclass(frozen=True)
class Grid:
    """The rates of an exhaustive run.

    Attributes:
        comparison: its arms.
        rates: arm -> block -> samples per second of one process; complete.
    """

    comparison: Comparison
    rates: Mapping[str, Mapping[int, float]]

    @property
    def blocks(self) -> int:
        """Complete blocks of the run."""
        return len(self.rates[self.comparison.baseline.id])

    @cached_property
    def mean_rates(self) -> dict[str, float]:
        """Geometric mean over the blocks, of the arms that can be chosen."""
        return {
            arm.id: float(np.exp(np.mean(np.log(list(self.rates[arm.id].values())))))
            for arm in self.comparison.arms
            if arm.role != "aa"
        }

    def drawn(self, asked: Round, rng: np.random.Generator) -> Result:
        """A round whose every block is one of the run's, all arms of it, drawn with replacement."""
        known = sorted(self.rates[self.comparison.baseline.id])
        drawn = dict(zip(asked.blocks, rng.choice(known, len(asked.blocks)).tolist(), strict=True))
        rates = {
            arm.id: {block: self.rates[arm.id][of_run] for block, of_run in drawn.items()}
            for arm in asked.comparison.arms
        }
        return Result(asked, rates, {})


def read_grid(directory: Path) -> Grid:
    """Read a run of ``xttsbench run`` over one accelerator.

    Raises:
        SystemExit: it is a run of something else, or an arm lacks a block that another has.
    """
    comparison = read_plan(directory).comparison
    if comparison is None or len(comparison.accelerators) != 1:
        raise SystemExit(f"{directory}: an exhaustive run of one grid behind one accelerator is expected")
    (group,) = collect(comparison, journal.read(directory))
    rates = {runs.arm.id: {block: steps.rate_per_s for block, steps in runs.steps.items()} for runs in group.arms}
    if len({frozenset(own) for own in rates.values()}) != 1:
        raise SystemExit(
            f"{directory}: not every arm was measured in every block: { {k: len(v) for k, v in rates.items()} }"
        )
    return Grid(comparison, rates)
