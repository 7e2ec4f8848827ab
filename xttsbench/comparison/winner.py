"""What a sweep comes to: the arm to take, whether that is proven, and in one sentence why. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.analysis.evidence import smallest_visible
from xttsbench.comparison.sweep import Seen, State, baseline_gone, state_of, tied
from xttsbench.records.base import Estimate
from xttsbench.records.plan import Comparison, PlannedArm, Procedure

_SHOWN: Final = 3
"""Arms whose end is told in a sentence; the report has all of them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The arm to take.

    Attributes:
        winner: id of an arm, the baseline's where none was shown to be better.
        proven: whether the winner was shown to be faster than the baseline, in two processes at least.
        effect: its speed against the baseline as a ratio with its interval; ``None`` for the baseline itself.
        blocks: processes of each side that this rests on; 0 where there was none.
        rounds: paired rounds of these.
        evidence: its e-value.
        tied_with: arms that are as good as the winner as far as can be told, in the order of the plan.
        smallest_visible_effect: what these rounds would have decided in four cases of five, as a share; ``None`` where
            there were too few for any.
        why: one sentence.
        decided: whether the question is answered: an arm is proven, or none is faster by the margin. Where it is not,
            the baseline is kept for want of evidence.
    """

    winner: str
    proven: bool
    effect: Estimate | None
    blocks: int
    rounds: int
    evidence: float | None
    tied_with: tuple[str, ...]
    smallest_visible_effect: float | None
    why: str
    decided: bool


def choose(comparison: Comparison, procedure: Procedure, seen: Seen) -> Choice:
    """The choice that what was measured so far allows, whatever that is.

    An arm wins that is faster than the baseline, with evidence for all candidates of the sweep; among such arms that
    cannot be told from the best one the cheapest is taken. In all other cases the baseline is kept, and nothing is
    called proven.
    """
    state = state_of(comparison, seen)
    ended = baseline_gone(comparison, seen)
    if ended is not None:
        why = f"nothing can be compared, since the baseline ended ({ended.rstrip('. ')})"
        return _kept(comparison, state, why, decided=False)
    if not state.winners:
        return _none_won(comparison, state)
    alike = tied(comparison, state)
    costs = {arm.id: cost(arm, procedure.cost) for arm in comparison.arms}
    winner = min(alike, key=lambda name: costs[name])  # the first of the plan where costs are equal
    others = tuple(name for name in alike if name != winner)
    found = state.found[winner]
    cheapest = f", the cheapest of {len(alike)} that cannot be told apart" if others else ""
    why = (
        f"{winner} is {_ratio(found.ratio)} as fast as {comparison.baseline.id} in {found.rounds} rounds of "
        f"{found.processes} processes{cheapest}"
    )
    if ahead := [name for name in state.ahead if name not in alike]:
        why += f"; {_list(ahead)} may still be faster"
    visible = _visible(comparison, state)
    return Choice(
        winner,
        True,
        found.ratio,
        found.processes,
        found.rounds,
        found.value,
        others,
        visible,
        f"{why}; {_seen(visible)}.",
        True,
    )


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


def _none_won(comparison: Comparison, state: State) -> Choice:
    gone = [f"{name}: {why.rstrip('. ')}" for name, why in state.seen.gone.items()]
    if not state.found:
        shown = "; ".join(gone[:_SHOWN]) + (f"; and {len(gone) - _SHOWN} more" if len(gone) > _SHOWN else "")
        missing = [arm for arm in comparison.arms if arm.role == "candidate" and arm.id not in state.seen.gone]
        why = "nothing was measured" if missing else f"no candidate ran to its end ({shown})"
        return _kept(comparison, state, why, decided=False)
    if not state.open:
        same = tuple(name for name, one in state.found.items() if one.word == "no_difference")
        of = f"of {len(state.found)} configurations none is faster by {comparison.margin:.0%} or more"
        return _kept(comparison, state, of, decided=True, tied_with=same)
    best = max(state.open, key=lambda name: _estimate(state, name))
    found = state.found.get(best)
    said = f": {best} looks {_ratio(found.ratio)} as fast" if found else ""
    more = f", and about {found.more_rounds} more rounds like these would decide" if found and found.more_rounds else ""
    return _kept(
        comparison, state, f"{_list(list(state.open))} may be faster, and is undecided{said}{more}", decided=False
    )


def _kept(comparison: Comparison, state: State, why: str, *, decided: bool, tied_with: tuple[str, ...] = ()) -> Choice:
    """The baseline, unproven."""
    visible = _visible(comparison, state)
    return Choice(
        winner=comparison.baseline.id,
        proven=False,
        effect=None,
        blocks=max((one.processes for one in state.found.values()), default=0),
        rounds=max((one.rounds for one in state.found.values()), default=0),
        evidence=None,
        tied_with=tied_with,
        smallest_visible_effect=visible,
        why=f"{comparison.baseline.id} is kept: {why}; {_seen(visible)}.",
        decided=decided,
    )


def _visible(comparison: Comparison, state: State) -> float | None:
    """The smallest effect that some candidate's rounds would have decided."""
    count = sum(arm.role == "candidate" for arm in comparison.arms)
    baseline = comparison.baseline.id
    samples = [sample for name in state.found if (sample := state.seen.versus(name, baseline)) is not None]
    found = [smallest_visible(sample, state.noise_scale, candidates=count) for sample in samples]
    return min((one for one in found if one is not None), default=None)


def _estimate(state: State, name: str) -> float:
    return state.found[name].ratio.estimate if name in state.found else 0.0


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _ratio(effect: Estimate) -> str:
    return f"{effect.estimate:.3f}x ({effect.low:.3f} to {effect.high:.3f})"


def _seen(visible: float | None) -> str:
    if visible is None:
        return "these rounds are too few for any effect to be decided"
    return f"the smallest effect that could have been decided is {visible:.1%}"
