"""What neighbours took in each turn, and the part of it that speeds follow: an analysis of covariance. Pure.

Neighbours leave the configurations of a round unequal shares of the processors. How much they left in a turn is
measured beside it and does not depend on what ran in it, so it may explain a part of the noise (a covariate: Cochran
1957, "Analysis of covariance: its nature and uses", Biometrics 13, 261-281). A speed follows the share that was left
to the power of a slope: 1 where the processors limit it, 0 where it waits for something else. One slope is fitted to
the rounds of all configurations beside one another, each about its own mean, so that it takes nothing from what they
differ by: on a machine of which 15 % was stolen the noise of a round fell from 14 to 8 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from xttsbench.analysis.disturbance import taken_by_round
from xttsbench.comparison.runs import ArmRuns, Turn

_LEAST_FREEDOM: Final = 12
"""Degrees of freedom below which a slope may be chance."""
_LEAST_EXPLAINED: Final = 0.25
"""Of the variance between rounds: where less is explained, the readings' own noise would be added instead."""


@dataclass(frozen=True)
class Taken:
    """How much of the processors was left in the turns of some configurations, and how their speeds follow it.

    Attributes:
        slope: power of the share left that a speed is proportional to, from 0 to 1.
        left: configuration -> turn -> logarithm of the share that neighbours left; without turns of which nothing was
            read.
    """

    slope: float = 0.0
    left: Mapping[str, Mapping[Turn, float]] = field(default_factory=dict)

    def gave(self, over: str, under: str, turn: Turn) -> float:
        """What the log ratio of two speeds owes to the neighbours in a turn; 0 where that is not known."""
        if not self.slope:
            return 0.0
        ours, theirs = self.left.get(under, {}).get(turn), self.left.get(over, {}).get(turn)
        return 0.0 if ours is None or theirs is None else self.slope * (theirs - ours)


def left_in(runs: ArmRuns) -> dict[Turn, float]:
    """Logarithm of the share of the processors that neighbours left, by turn, of the turns in which that was read."""
    return {
        (block, number): math.log(seen.left)
        for block, trial in runs.trials.items()
        if trial.spec.turns
        for number, seen in taken_by_round(trial).items()
        if seen.taken is not None
    }


def taken_in(
    baseline: str, left: Mapping[str, Mapping[Turn, float]], ratios: Mapping[str, Mapping[Turn, float]]
) -> Taken:
    """Fit the slope to the rounds of configurations that were measured beside the baseline.

    Args:
        baseline: its name.
        left: configuration -> turn -> logarithm of the share that neighbours left, the baseline's too.
        ratios: configuration -> turn -> logarithm of its speed over the baseline's.
    """
    ours = left.get(baseline, {})
    given, found, freedom = [], [], -1
    for name, speeds in ratios.items():
        for block in sorted({block for block, _ in speeds}):
            turns = [turn for turn in speeds if turn[0] == block and turn in ours and turn in left.get(name, {})]
            if len(turns) > 1:
                own = np.array([[left[name][turn] - ours[turn], speeds[turn]] for turn in turns])
                own -= own.mean(axis=0)
                given.append(own[:, 0])
                found.append(own[:, 1])
                freedom += len(turns) - 1
    if freedom < _LEAST_FREEDOM:
        return Taken(left=left)
    x, y = np.concatenate(given), np.concatenate(found)
    spread = float(x @ x)
    slope = min(max(float(x @ y) / spread, 0.0), 1.0) if spread else 0.0
    rest = y - slope * x
    explained = 1 - float(rest @ rest) / float(y @ y) if y.any() else 0.0
    return Taken(slope if explained >= _LEAST_EXPLAINED else 0.0, left)
