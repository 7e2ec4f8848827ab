"""How a comparison stands while it runs: which arms go on, and which of them leads. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xttsbench.analysis.decision import paired_t_interval
from xttsbench.records.base import Estimate
from xttsbench.records.plan import Comparison
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.arm_effects import log_ratios
from xttsbench.rules.arm_runs import collect


@dataclass(frozen=True, slots=True)
class Standing:
    """Of the first accelerator's arms, the baseline's second run left out.

    Attributes:
        alive: arms that have not ended.
        arms: all of them.
        leader: the fastest candidate so far by its mean log ratio to the baseline; ``None`` before a block has both.
        ratio: the leader's speed against the baseline.
        interval: the same with its 95 % interval, from three blocks on: that of two says nothing.
    """

    alive: int
    arms: int
    leader: str | None = None
    ratio: float | None = None
    interval: Estimate | None = None

    def __str__(self) -> str:
        said = f"{self.alive} of {self.arms} arms alive"
        if self.leader is None or self.ratio is None:
            return said
        interval = f" ({self.interval.low:.2f} to {self.interval.high:.2f})" if self.interval is not None else ""
        return f"{said}; {self.leader} leads, {self.ratio:.2f}x{interval} the baseline"


def standing(comparison: Comparison, trials: Sequence[TrialRecord]) -> Standing:
    """Where the arms of a comparison stand after these trials."""
    group = collect(comparison, trials)[0]
    arms = [runs for runs in group.arms if runs.arm.role != "aa"]
    alive = sum(runs.ended is None for runs in arms)
    ratios = {
        runs.arm.id: found
        for runs in group.candidates
        if runs.ended is None and (found := log_ratios(group.baseline, runs))
    }
    if not ratios:
        return Standing(alive, len(arms))
    leader = max(ratios, key=lambda name: float(np.mean(ratios[name])))
    own = ratios[leader]
    interval = paired_t_interval(own) if len(own) >= 3 else None
    return Standing(alive, len(arms), leader, float(np.exp(np.mean(own))), interval)
