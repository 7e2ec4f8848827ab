"""What the rounds of a sweep come to: the arm to take, whether that is proven, and in one sentence why.

The decision rests on the blocks of the confirmation alone. An arm wins where it is faster than the baseline with
Holm's correction for all finalists; among such arms that cannot be told from the best one the cheapest is taken. In
all other cases the baseline is kept, and nothing is called proven.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.analysis.candidates import decide_together
from xttsbench.analysis.decision import decide, paired_t_interval, smallest_visible_effect
from xttsbench.records.base import Estimate
from xttsbench.records.plan import Comparison, PlannedArm, Procedure
from xttsbench.rules.arm_effects import MIN_BLOCKS, is_noisy
from xttsbench.rules.rounds import Result, again, baseline_gone, candidates, complete, next_round

_SHOWN: Final = 3
"""Arms whose end is told in a sentence; the report has all of them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The arm to take.

    Attributes:
        winner: id of an arm, the baseline's where none was shown to be better.
        proven: whether the winner was shown to be faster than the baseline in fresh blocks.
        effect: its speed against the baseline as a ratio with its interval; ``None`` for the baseline itself.
        blocks: of the confirmation, that the decision rests on; 0 where there was none.
        tied_with: arms that are as good as the winner as far as can be told, in the order of the plan.
        noisy: whether the baseline differs from itself too much to say anything; ``None`` where that is not known.
        smallest_visible_effect: what these blocks would have shown in four cases of five, as a share; ``None`` where
            no two blocks had the baseline twice.
        why: one sentence.
        decided: whether the question is answered: an arm is proven, or none is faster by the margin. Where it is not,
            the baseline is kept for want of evidence.
    """

    winner: str
    proven: bool
    effect: Estimate | None
    blocks: int
    tied_with: tuple[str, ...]
    noisy: bool | None
    smallest_visible_effect: float | None
    why: str
    decided: bool


def choose(comparison: Comparison, procedure: Procedure, results: Sequence[Result]) -> Choice:
    """The choice that the results allow, whatever they are.

    Args:
        comparison: all arms of the sweep.
        procedure: how they were narrowed down.
        results: of all rounds, in their order; the last one may be incomplete.
    """
    session = _session(comparison, results)
    if (why := _undecidable(comparison, procedure, results, session)) is not None:
        return _kept(comparison, session, why, decided=False)
    if (why := _nothing_to_confirm(comparison, results)) is not None:
        return _kept(comparison, session, why, decided=True)
    confirmed = results[-1]
    ratios = {
        arm.id: confirmed.ratios(arm.id, comparison.baseline.id).tolist() for arm in candidates(comparison, results)
    }
    decided = decide_together(ratios, margin=comparison.margin, min_blocks=MIN_BLOCKS)
    faster = [name for name, found in decided.items() if found.decision.decision == "faster"]
    if not faster:
        same = tuple(name for name, found in decided.items() if found.decision.decision == "equivalent")
        said = "; ".join(f"{name} is {_ratio(found.decision.effect)}" for name, found in decided.items())
        sure = all(found.decision.decision in ("equivalent", "slower") for found in decided.values())
        why = f"no finalist was shown to be faster ({said})"
        return _kept(comparison, session, why, decided=sure, tied_with=same)
    tied = _tied(confirmed, faster, {name: decided[name].decision.effect for name in faster}, comparison.margin)
    costs = {arm.id: cost(arm, procedure.cost) for arm in comparison.arms}
    winner = min(tied, key=lambda name: costs[name])  # the first of the plan where costs are equal
    others = tuple(name for name in tied if name != winner)
    effect, blocks = decided[winner].decision.effect, len(ratios[winner])
    cheapest = f", the cheapest of {len(tied)} that cannot be told apart" if others else ""
    sentence = (
        f"{winner} is {_ratio(effect)} as fast as {comparison.baseline.id} in {blocks} fresh blocks{cheapest}; "
        f"{_seen(session)}."
    )
    return Choice(winner, True, effect, blocks, others, session.noisy, session.visible, sentence, True)


def cost(arm: PlannedArm, keys: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """What an arm costs, to be compared with another's: less is cheaper, the first key weighs most.

    A smaller number is cheaper, and ``False`` is cheaper than ``True``. -1 (AUTOTUNE) is dearer than any other number,
    since it may take whatever there is. Dearest is what is no number or is not named: the target's default is not
    known here, and cannot be called cheap.
    """
    return tuple(_price(arm.kwargs.get(key)) for key in keys)


def _price(value: object) -> tuple[int, float]:
    if isinstance(value, int | float) and math.isfinite(value):
        return (1, 0.0) if value == -1 else (0, float(value))
    return (2, 0.0)


@dataclass(frozen=True, slots=True)
class _Session:
    """The confirmation's whole blocks, and what the baseline's two runs say of the noise."""

    blocks: int
    ratio: Estimate | None
    noisy: bool | None
    visible: float | None


def _session(comparison: Comparison, results: Sequence[Result]) -> _Session:
    """The noise of the confirmation or, where there was none, of the screening, which is too short to be judged."""
    blocks, ratio, noisy, visible = 0, None, None, None
    for result in reversed(results):
        confirming = result.round.kind == "confirm"
        if confirming:
            arms = [arm.id for arm in result.round.comparison.arms if arm.id not in result.gone]
            blocks = sum(all(block in result.rates.get(name, {}) for name in arms) for block in result.round.blocks)
        ratios = result.ratios(again(comparison).id, comparison.baseline.id)
        if len(ratios) < 2:
            continue
        ratio, visible = paired_t_interval(ratios), smallest_visible_effect(ratios)
        if confirming and blocks >= MIN_BLOCKS:
            noisy = is_noisy(ratios)
        break
    return _Session(blocks, ratio, noisy, visible)


def _undecidable(
    comparison: Comparison, procedure: Procedure, results: Sequence[Result], session: _Session
) -> str | None:
    """Why the results cannot name a winner, whatever the finalists' rates are; ``None`` where they can."""
    ended = baseline_gone(comparison, results)
    if ended is not None:
        return f"nothing can be compared, since the baseline ended ({ended.rstrip('. ')})"
    left = candidates(comparison, results)
    if not left:
        gone = [f"{name}: {why.rstrip('. ')}" for result in results for name, why in result.gone.items()]
        shown = "; ".join(gone[:_SHOWN]) + (f"; and {len(gone) - _SHOWN} more" if len(gone) > _SHOWN else "")
        return f"no candidate ran to its end ({shown})" if gone else "there is nothing to compare it with"
    if not results:
        return "nothing was measured"
    last = results[-1]
    if last.round.kind != "confirm":
        ended_early = not complete(last) or next_round(comparison, procedure, results) is not None
        return "the run ended before the best arms were confirmed" if ended_early else None
    if session.blocks < MIN_BLOCKS:
        return f"the confirmation has {session.blocks} whole blocks, and a decision takes {MIN_BLOCKS}"
    if session.noisy and session.ratio is not None:
        return f"the session is noisy (the baseline against itself: {_ratio(session.ratio)}), so no winner is named"
    return None


def _nothing_to_confirm(comparison: Comparison, results: Sequence[Result]) -> str | None:
    """What a screening says that leaves no finalist; ``None`` where there was a confirmation."""
    last = results[-1].round
    if last.kind == "confirm":
        return None
    return (
        f"of {len(candidates(comparison, results))} arms none looks faster by {comparison.margin:.0%} or more in "
        f"{last.comparison.blocks} blocks of screening"
    )


def _kept(
    comparison: Comparison, session: _Session, why: str, *, decided: bool, tied_with: tuple[str, ...] = ()
) -> Choice:
    """The baseline, unproven."""
    return Choice(
        winner=comparison.baseline.id,
        proven=False,
        effect=None,
        blocks=session.blocks,
        tied_with=tied_with,
        noisy=session.noisy,
        smallest_visible_effect=session.visible,
        why=f"{comparison.baseline.id} is kept: {why}; {_seen(session)}.",
        decided=decided,
    )


def _tied(confirmed: Result, faster: Sequence[str], effects: Mapping[str, Estimate], margin: float) -> list[str]:
    """The best of the arms shown to be faster, and those that are as good, in the order of the plan.

    As good is an arm that is at most half the margin slower by estimate and, compared block by block, not shown to be
    slower by something that matters. Half, since the estimate is uncertain: the loss stays within the margin.
    """
    best = max(faster, key=lambda name: effects[name].estimate)

    def as_good(name: str) -> bool:
        ratios = confirmed.ratios(name, best)
        if len(ratios) < MIN_BLOCKS:
            return False
        behind = decide(ratios, margin=margin, min_blocks=MIN_BLOCKS)
        return behind.decision != "slower" and behind.effect.estimate >= 1 / (1 + margin / 2)

    return [name for name in faster if name == best or as_good(name)]


def _ratio(effect: Estimate) -> str:
    return f"{effect.estimate:.3f}x ({effect.low:.3f} to {effect.high:.3f})"


def _seen(session: _Session) -> str:
    if session.visible is None:
        return "how small an effect could have been seen is not known, since the baseline did not run twice in 2 blocks"
    return f"the smallest effect that could have been seen is {session.visible:.1%}"
