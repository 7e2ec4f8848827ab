"""Interim status of a comparison while it is measured: how its configurations stand, and which need no more turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xttsbench.comparison.effects import FINAL, weigh
from xttsbench.comparison.runs import collect
from xttsbench.records.base import Estimate, Word
from xttsbench.records.plan import Comparison
from xttsbench.records.trial import TrialRecord


@dataclass(frozen=True, slots=True)
class InterimStatus:
    """Interim result of the first accelerator's configurations, the baseline's second run left out.

    Attributes:
        alive: configurations that have not ended.
        arms: all of them.
        leader: the fastest candidate so far; ``None`` before a round has it and the baseline.
        ratio: the leader's speed against the baseline.
        word: what may be said of it.
    """

    alive: int
    arms: int
    leader: str | None = None
    ratio: Estimate | None = None
    word: Word = "undecided"

    def __str__(self) -> str:
        said = f"{self.alive} of {self.arms} configurations alive"
        if self.leader is None or self.ratio is None:
            return said
        ratio = f"{self.ratio.estimate:.2f}x ({self.ratio.low:.2f} to {self.ratio.high:.2f})"
        return f"{said}; {self.leader} leads, {ratio} the baseline: {self.word.replace('_', ' ')}"


def interim_status(comparison: Comparison, trials: Sequence[TrialRecord]) -> InterimStatus:
    """Interim result of a comparison after these trials."""
    weighed = weigh(collect(comparison, trials)[0], comparison.margin)
    arms = [runs for runs in weighed.group.arms if runs.arm.role != "aa"]
    alive = sum(runs.ended is None for runs in arms)
    found = [(one.found.ratio.estimate, name) for name, one in weighed.effects.items() if one.found is not None]
    if not found:
        return InterimStatus(alive, len(arms))
    leader = max(found, key=lambda one: one[0])[1]
    effect = weighed.effects[leader]
    return InterimStatus(alive, len(arms), leader, effect.ratio, effect.word)


def no_more_to_say(comparison: Comparison, trials: Sequence[TrialRecord]) -> set[str]:
    """Candidates of the first accelerator of which more rounds would say nothing else: the words that are final."""
    weighed = weigh(collect(comparison, trials)[0], comparison.margin)
    return {name for name, effect in weighed.effects.items() if effect.word in FINAL}
