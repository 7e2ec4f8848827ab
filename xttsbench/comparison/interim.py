"""Interim status of a comparison while it is measured: how its configurations stand, and which need no more turns."""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.comparison.effects import FINAL, Weighed, weigh
from xttsbench.comparison.runs import collect
from xttsbench.records.plan import Comparison
from xttsbench.records.trial import TrialRecord


def interim_status(comparison: Comparison, trials: Sequence[TrialRecord]) -> str:
    """Phrase for the first accelerator's configurations after these trials: how many live, and which one leads.

    None leads before a round has it and the baseline; the baseline's second run is left out.
    """
    weighed = _first(comparison, trials)
    arms = [runs for runs in weighed.group.arms if runs.arm.role != "aa"]
    said = f"{sum(runs.ended is None for runs in arms)} of {len(arms)} configurations alive"
    found = [(one.ratio, name, one.word) for name, one in weighed.effects.items() if one.ratio is not None]
    if not found:
        return said
    ratio, leader, word = max(found, key=lambda one: one[0].estimate)
    speed = f"{ratio.estimate:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{said}; {leader} leads, {speed} the baseline: {word.replace('_', ' ')}"


def no_more_to_say(comparison: Comparison, trials: Sequence[TrialRecord]) -> set[str]:
    """Candidates of the first accelerator of which more rounds would say nothing else: the words that are final."""
    return {name for name, effect in _first(comparison, trials).effects.items() if effect.word in FINAL}


def _first(comparison: Comparison, trials: Sequence[TrialRecord]) -> Weighed:
    return weigh(collect(comparison, trials)[0], comparison.margin)
