"""How a comparison stands while it runs: which arms go on, which of them leads, and which need no more rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.comparison.effects import weigh
from xttsbench.comparison.runs import collect
from xttsbench.records.base import Estimate, Word
from xttsbench.records.plan import Comparison
from xttsbench.records.trial import TrialRecord

FINAL: Final = ("clearly_faster", "clearly_slower", "no_difference")
"""Words that stay; one that is faster may yet be clearly so."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Of the first accelerator's arms, the baseline's second run left out.

    Attributes:
        alive: arms that have not ended.
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
        said = f"{self.alive} of {self.arms} arms alive"
        if self.leader is None or self.ratio is None:
            return said
        ratio = f"{self.ratio.estimate:.2f}x ({self.ratio.low:.2f} to {self.ratio.high:.2f})"
        return f"{said}; {self.leader} leads, {ratio} the baseline: {self.word.replace('_', ' ')}"


def standing(comparison: Comparison, trials: Sequence[TrialRecord]) -> Standing:
    """Where the arms of a comparison stand after these trials."""
    weighed = weigh(collect(comparison, trials)[0], comparison.margin)
    arms = [runs for runs in weighed.group.arms if runs.arm.role != "aa"]
    alive = sum(runs.ended is None for runs in arms)
    found = {name: effect for name, effect in weighed.effects.items() if effect.found}
    if not found:
        return Standing(alive, len(arms))
    leader = max(found, key=lambda name: found[name].found.ratio.estimate)  # type: ignore[union-attr]
    return Standing(alive, len(arms), leader, found[leader].ratio, found[leader].word)


def no_more_to_say(comparison: Comparison, trials: Sequence[TrialRecord]) -> set[str]:
    """Candidates of the first accelerator of which more rounds would say nothing else: the words that are final."""
    weighed = weigh(collect(comparison, trials)[0], comparison.margin)
    return {name for name, effect in weighed.effects.items() if effect.word in FINAL}
