"""Rounds and result of a sweep.

Every arm is measured once, then those that may still win, until one has won or none can.

Each answer follows from what was measured so far and nothing else, so that the same journal gives the same sweep, and
one that was killed goes on where it was. Nothing is thrown away: what chose the arms that went on counts in the end,
since evidence may be looked at after every round. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from xttsbench.analysis.evidence import (
    DECIDES,
    LEAST_SCALE,
    Evidence,
    Sample,
    decide,
    e_value,
    interval,
    noise_scale,
    round_scale,
    smallest_visible,
)
from xttsbench.comparison.effects import MIN_PROCESSES, weigh
from xttsbench.comparison.runs import collect, parity_found
from xttsbench.planning import AGAIN
from xttsbench.records.base import FASTER, SLOWER, Estimate
from xttsbench.records.plan import Comparison, PlannedVariant, Procedure
from xttsbench.records.trial import TrialRecord

LEAST_ROUNDS: Final = 3
MOST_ROUNDS: Final = 12
"""Most rounds that the processes of a block live through."""
_OPENING_TURNS: Final = 3.0  # Opening a process takes as long as so many turns
AGAIN_BLOCKS: Final = 4
"""Blocks in which the baseline is measured twice: by then the configurations' own rounds tell the noise."""
_ONE_SIDED: Final = 0.90  # Level of an interval whose one end is passed in five cases of a hundred


@dataclass(frozen=True)
class Seen:
    """Measurements of a sweep so far.

    Attributes:
        versus: log ratios of the first configuration's speed over the second's, by name; ``None`` where no round has
            both.
        gone: configuration -> why it cannot win: it died, or its data are not known to be the baseline's.
        processes: configuration -> processes that measured it.
        next_block: number of the block after the last.
        rounds: of the baseline.
        widened: disturbed rounds are kept, for want of others.
        turns: processes live through several rounds.
    """

    versus: Callable[[str, str], Sample | None]
    gone: Mapping[str, str] = field(default_factory=dict)
    processes: Mapping[str, int] = field(default_factory=dict)
    next_block: int = 0
    rounds: int = 0
    widened: bool = False
    turns: bool = False


@dataclass(frozen=True)
class State:
    """Standing of a sweep's configurations.

    Attributes:
        seen: what was measured.
        noise_scale: what pairs of processes of equal configurations differ by.
        round_scale: what the rounds of one pair differ by.
        found: candidate -> evidence against the baseline, of those that are not gone.
        out: candidate -> why it is not measured further; those that are gone, too.
        open: candidates that may still win, in the order of the plan.
        winners: of these the ones that are faster than the baseline, the fastest first.
        ahead: of the open ones those that may be better than the fastest winner by something that matters, where there
            is one; without any the question is answered.
    """

    seen: Seen
    noise_scale: float
    round_scale: float
    found: Mapping[str, Evidence]
    out: Mapping[str, str]
    open: tuple[str, ...]
    winners: tuple[str, ...]
    ahead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """Next round of a sweep: configurations, in new processes.

    Attributes:
        first_block: number of the processes.
        rounds: that they live through.
        beaten: configuration that the others have to beat, in a sequence; empty where there is none.
    """

    comparison: Comparison
    first_block: int
    rounds: int
    beaten: tuple[str, ...] = ()


def seen_in(comparison: Comparison, trials: Sequence[TrialRecord]) -> Seen:
    """Reads the trials of a journal; those of other groups, and interrupted ones, are left alone."""
    own = [trial for trial in trials if trial.spec.group == comparison.name and trial.status != "interrupted"]
    data = parity_found(comparison, own)
    gone = {arm: f"refused: {data.why_refused(arm)}" for arm in data.differences}
    for arm, why in data.unknown.items():
        gone.setdefault(arm, f"whether it yields the baseline's data is not known: {why}")
    if data.why_failed is not None:
        gone[comparison.baseline.id] = f"its data could not be read: {data.why_failed}"
    weighed = weigh(collect(comparison, own)[0], comparison.margin)
    arms = {runs.arm.id: runs for runs in weighed.group.arms}
    for name, runs in arms.items():
        if runs.ended is not None:
            gone.setdefault(name, runs.ended)
    measured = [trial.spec.block for trial in own if trial.spec.kind == "arm"]
    return Seen(
        weighed.pairs.sample,
        gone,
        {name: len(runs.steps) for name, runs in arms.items()},
        max(measured, default=-1) + 1,
        len(arms[comparison.baseline.id].turns),
        weighed.widened,
        any(trial.spec.turns for trial in own),
    )


def state_of(comparison: Comparison, seen: Seen) -> State:
    """Judges the configurations by the measurements so far.

    A configuration is out that is decided not to be faster, whose rounds make a gain that matters improbable, or that
    is worse than the best by the margin with an e-value of 20.
    """
    names = [arm.id for arm in comparison.arms if arm.role == "candidate"]
    baseline = comparison.baseline.id
    samples = {
        name: sample for name in names if name not in seen.gone and (sample := seen.versus(name, baseline)) is not None
    }
    s0 = noise_scale(seen.versus(again(comparison).id, baseline), samples.values(), mostly_invalid=seen.widened)
    count = max(len(names), 1)
    found = {name: decide(own, s0, candidates=count, margin=comparison.margin) for name, own in samples.items()}
    out = {name: seen.gone[name] for name in names if name in seen.gone}
    winners = sorted(
        (name for name, one in found.items() if one.word in FASTER and one.processes >= MIN_PROCESSES),
        key=lambda name: -found[name].ratio.estimate,
    )
    best = max(found, key=lambda name: found[name].ratio.estimate, default=None)
    for name, evidence in found.items():
        if (why := _why_out(name, best, evidence, seen, s0, comparison.margin)) is not None:
            out[name] = why
    open_ = tuple(name for name in names if name not in out)
    ahead = tuple(name for name in open_ if not winners or _may_beat(name, winners[0], seen, s0, comparison.margin))
    return State(seen, s0, round_scale(samples.values()), found, out, open_, tuple(winners), ahead)


def next_round(comparison: Comparison, procedure: Procedure, seen: Seen) -> Round | None:
    """The round that follows, or ``None`` where nothing is left to measure.

    That is so where the question is answered, where the baseline is gone, and where every configuration that may still
    win has as many processes as it may have.
    """
    state = state_of(comparison, seen)
    if baseline_gone(comparison, seen) is not None:
        return None
    left = [name for name in state.ahead if seen.processes.get(name, 0) < procedure.blocks]
    if not left:
        return None
    keep = {comparison.baseline.id, *left, *state.winners[:1]}  # what has to be beaten is measured beside the others
    arms = tuple(arm for arm in comparison.arms if arm.id in keep)
    twice = seen.processes.get(again(comparison).id, 0) < AGAIN_BLOCKS
    narrowed = comparison.model_copy(
        update={"arms": (*arms, again(comparison)) if twice else arms, "accelerators": comparison.accelerators[:1]}
    )
    return Round(narrowed, seen.next_block, rounds_of_a_process(state.round_scale), state.winners[:1])


def rounds_of_a_process(round_scale: float) -> int:
    """Rounds in each process that give the most evidence for the time.

    With processes that differ by ``sigma_p`` and their rounds by ``sigma`` it is ``sqrt(cost of a process / cost of a
    round) * sigma / sigma_p`` (two-stage sampling: Cochran 1977, "Sampling techniques", section 10.6). On a quiet
    machine both are 3 %; beside neighbours rounds differ by more, and a process is worth living longer. What the rounds
    of a pair differ by is a standard deviation.
    """
    best = math.sqrt(_OPENING_TURNS) * round_scale / LEAST_SCALE
    return min(max(round(best), LEAST_ROUNDS), MOST_ROUNDS)


def enough(comparison: Comparison, procedure: Procedure, state: State) -> set[str]:
    """Candidates that need no more turns in the processes at hand.

    They are out, or what their process can show is decided and another process is what is missing, or all that is
    measured now has as many processes as it may have.
    """
    seen, names = state.seen, {arm.id for arm in comparison.arms if arm.role == "candidate"}
    needed = {*state.ahead, *state.winners[:1]} if state.ahead else set()
    few = {name for name in needed if seen.processes.get(name, 0) < MIN_PROCESSES}
    shown = {name for name in few if name in state.found and state.found[name].decided}
    over = {name for name in needed if not seen.turns and seen.processes.get(name, 0) >= procedure.blocks}
    return names - needed | shown | over


def again(comparison: Comparison) -> PlannedVariant:
    """The baseline's second run, made where the plan has none: without it the noise of a session is not known."""
    found = next((arm for arm in comparison.arms if arm.role == "aa"), None)
    baseline = comparison.baseline
    return found or baseline.model_copy(update={"id": baseline.id + AGAIN, "role": "aa"})


def baseline_gone(comparison: Comparison, seen: Seen) -> str | None:
    """Why the baseline, in either of its runs, is gone; ``None`` where it is not."""
    return next((seen.gone[name] for name in (comparison.baseline.id, again(comparison).id) if name in seen.gone), None)


def tied(comparison: Comparison, state: State) -> list[str]:
    """The fastest winner, and the winners that are as good as far as can be told, in the order of the plan.

    As good is one that is at most a quarter of the margin slower by estimate and, paired with the fastest, not shown to
    be slower. A quarter, since the estimate is uncertain and the cheapest of many is chosen: by simulation the loss
    stays within the margin.
    """
    best = state.winners[0]

    def as_good(name: str) -> bool:
        sample = state.seen.versus(name, best)
        if sample is None:
            return False
        return e_value(sample, state.noise_scale) < DECIDES and sample.mean >= -math.log1p(comparison.margin / 4)

    return [arm.id for arm in comparison.arms if arm.id in state.winners and (arm.id == best or as_good(arm.id))]


def _why_out(name: str, best: str | None, evidence: Evidence, seen: Seen, s0: float, margin: float) -> str | None:
    if evidence.word in (*SLOWER, "no_difference"):
        return evidence.word.replace("_", " ")
    if evidence.futile:
        return f"no gain of {margin:.0%} to be seen"
    if best is None or best == name or (behind := seen.versus(name, best)) is None:
        return None
    if behind.mean < -math.log1p(margin) and e_value(behind, s0) >= DECIDES:
        return f"slower than {best}"
    return None


def _may_beat(name: str, winner: str, seen: Seen, s0: float, margin: float) -> bool:
    if name == winner:
        return False
    sample = seen.versus(name, winner)
    return sample is None or interval(sample, s0, level=_ONE_SIDED).high >= 1 + margin


_SHOWN: Final = 3  # Configurations whose end is told in a sentence; the report has all of them


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration to take.

    Attributes:
        winner: id of a configuration, the baseline's where none was shown to be better.
        proven: whether the winner was shown to be faster than the baseline, in two processes at least.
        effect: its speed against the baseline as a ratio with its interval; ``None`` for the baseline itself.
        blocks: processes of each side that this rests on; 0 where there was none.
        rounds: paired rounds of these.
        evidence: its e-value.
        tied_with: configurations that are as good as the winner as far as can be told, in the order of the plan.
        smallest_visible_effect: what these rounds would have decided in four cases of five, as a share; ``None`` where
            there were too few for any.
        why: one sentence.
        decided: whether the question is answered: a configuration is proven, or none is faster by the margin. Where it
            is not, the baseline is kept for want of evidence.
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

    A configuration wins that is faster than the baseline, with evidence for all candidates of the sweep; among such
    configurations that cannot be told from the best one the cheapest is taken. In all other cases the baseline is kept,
    and nothing is called proven.
    """
    state = state_of(comparison, seen)
    ended = baseline_gone(comparison, seen)
    if ended is not None:
        why = f"nothing can be compared, since the baseline ended ({ended.rstrip('. ')})"
        return _choice(comparison, state, why, decided=False)
    if not state.winners:
        return _none_won(comparison, state)
    alike = tied(comparison, state)
    costs = {arm.id: cost(arm, procedure.cost) for arm in comparison.arms}
    winner = min(alike, key=lambda name: costs[name])  # the first of the plan where costs are equal
    others = tuple(name for name in alike if name != winner)
    found = state.found[winner]
    cheapest = f", the cheapest of {len(alike)} without a proven difference" if others else ""
    why = (
        f"{winner} is {_ratio(found.ratio)} as fast as {comparison.baseline.id} in {found.rounds} rounds of "
        f"{found.processes} processes{cheapest}"
    )
    if ahead := [name for name in state.ahead if name not in alike]:
        why += f"; {_list(ahead)} may still be faster"
    return _choice(comparison, state, why, winner=winner, tied_with=others, decided=True)


def cost(arm: PlannedVariant, keys: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Cost of a configuration, for comparison with another's: less is cheaper, the first key weighs most.

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
        return _choice(comparison, state, why, decided=False)
    if not state.open:
        same = tuple(name for name, one in state.found.items() if one.word == "no_difference")
        sure = all(one.no_gain or one.word in SLOWER for one in state.found.values())
        most = max(comparison.margin, *(one.ratio.high - 1 for one in state.found.values()))
        of = f"of {len(state.found)} configurations none {'is' if sure else 'looks'} faster by {comparison.margin:.0%}"
        why = f"{of} or more" if sure else f"{of}, and gains above {most:.0%} are ruled out"
        return _choice(comparison, state, why, decided=sure, tied_with=same)
    best = max(state.open, key=lambda name: state.found[name].ratio.estimate if name in state.found else 0.0)
    found = state.found.get(best)
    said = f": {best} looks {_ratio(found.ratio)} as fast" if found else ""
    more = f", and about {found.more_rounds} more rounds like these would decide" if found and found.more_rounds else ""
    why = f"whether {_list(state.open)} {'is' if len(state.open) == 1 else 'are'} faster is undecided{said}{more}"
    return _choice(comparison, state, why, decided=False)


def _choice(
    comparison: Comparison,
    state: State,
    why: str,
    *,
    winner: str | None = None,
    tied_with: tuple[str, ...] = (),
    decided: bool,
) -> Choice:
    """The winner, or the baseline, unproven; with the smallest effect that some candidate's rounds would have shown."""
    baseline, count = comparison.baseline.id, sum(arm.role == "candidate" for arm in comparison.arms)
    samples = [sample for name in state.found if (sample := state.seen.versus(name, baseline)) is not None]
    visible = [smallest_visible(sample, state.noise_scale, candidates=count) for sample in samples]
    least = min((one for one in visible if one is not None), default=None)
    found = state.found[winner] if winner is not None else None
    measured = [found] if found is not None else list(state.found.values())
    shown = "these rounds are too few for any effect to be decided"
    if least is not None:
        shown = f"the smallest effect that could have been decided is {least:.1%}"
    return Choice(
        winner=winner or baseline,
        proven=found is not None,
        effect=found.ratio if found is not None else None,
        blocks=max((one.processes for one in measured), default=0),
        rounds=max((one.rounds for one in measured), default=0),
        evidence=found.value if found is not None else None,
        tied_with=tied_with,
        smallest_visible_effect=least,
        why=f"{why if found is not None else f'{baseline} is kept: {why}'}; {shown}.",
        decided=decided,
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _ratio(effect: Estimate) -> str:
    return f"{effect.estimate:.3f}x ({effect.low:.3f} to {effect.high:.3f})"
