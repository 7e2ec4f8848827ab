"""What a sweep measures next: every arm once, then those that may still win, until one has won or none can.

Each answer follows from what was measured so far and nothing else, so that the same journal gives the same sweep, and
one that was killed goes on where it was. Nothing is thrown away: what chose the arms that went on counts in the end,
since evidence may be looked at after every round. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from xttsbench.analysis.disturbance import gate
from xttsbench.analysis.evidence import DECIDES, Evidence, Sample, decide, e_value, interval, noise_scale
from xttsbench.comparison.effects import sample_of
from xttsbench.comparison.runs import collect, parity_found
from xttsbench.planning.arms import AGAIN
from xttsbench.records.base import FASTER, SLOWER
from xttsbench.records.plan import Comparison, PlannedArm, Procedure
from xttsbench.records.trial import TrialRecord

LEAST_PROCESSES: Final = 2
"""Behind a winner."""
ROUNDS: Final = 3
"""That the processes of a block live through. As processes weigh (:mod:`xttsbench.analysis.evidence`), two to three
rounds in each give the most evidence for the time where opening one takes as long as three turns."""
AGAIN_BLOCKS: Final = 4
"""Blocks in which the baseline is measured twice: by then the arms' own rounds tell the noise."""
_ONE_SIDED: Final = 0.90
"""Level of an interval whose one end is passed in five cases of a hundred."""


@dataclass(frozen=True)
class Seen:
    """What was measured so far.

    Attributes:
        versus: log ratios of the first arm's speed over the second's, by name; ``None`` where no round has both.
        gone: arm -> why it cannot win: it died, or its data are not known to be the baseline's.
        processes: arm -> processes that measured it.
        next_block: number of the block after the last.
        rounds: of the baseline.
        widened: most rounds were disturbed, and all are kept.
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
    """How the arms of a sweep stand.

    Attributes:
        seen: what was measured.
        noise_scale: what rounds of equal configurations differ by.
        found: candidate -> evidence against the baseline, of those that are not gone.
        out: candidate -> why it is not measured further; those that are gone, too.
        open: candidates that may still win, in the order of the plan.
        winners: of these the ones that are faster than the baseline, the fastest first.
        ahead: of the open ones those that may be better than the fastest winner by something that matters, where there
            is one; without any the question is answered.
    """

    seen: Seen
    noise_scale: float
    found: Mapping[str, Evidence]
    out: Mapping[str, str]
    open: tuple[str, ...]
    winners: tuple[str, ...]
    ahead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """What is measured next: the arms of ``comparison``, in new processes from block ``first_block`` on."""

    comparison: Comparison
    first_block: int


def seen_in(comparison: Comparison, trials: Sequence[TrialRecord]) -> Seen:
    """What the trials of a journal say; those of other groups, and interrupted ones, are left alone."""
    own = [trial for trial in trials if trial.spec.group == comparison.name]
    data = parity_found(comparison, [trial for trial in own if trial.status != "interrupted"])
    gone = {arm: f"refused: {data.why_refused(arm)}" for arm in data.differences}
    for arm, why in data.unknown.items():
        gone.setdefault(arm, f"whether it yields the baseline's data is not known: {why}")
    if data.why_failed is not None:
        gone[comparison.baseline.id] = f"its data could not be read: {data.why_failed}"
    group = collect(comparison, own)[0]
    judged = gate([trial for runs in group.arms for trial in runs.trials.values()])
    for runs in group.arms:
        if runs.ended is not None:
            gone.setdefault(runs.arm.id, runs.ended)
    arms = {runs.arm.id: runs for runs in group.without(judged.invalid).arms}
    turns = {name: runs.turns for name, runs in arms.items()}
    measured = [trial.spec.block for trial in own if trial.spec.rung == "arm"]
    return Seen(
        lambda over, under: sample_of(turns[under], turns[over]) if over in turns and under in turns else None,
        gone,
        {name: len(runs.steps) for name, runs in arms.items()},
        max(measured, default=-1) + 1,
        len(arms[comparison.baseline.id].turns),
        judged.widened,
        any(trial.spec.turns for trial in own),
    )


def state_of(comparison: Comparison, seen: Seen) -> State:
    """How the arms stand after what was measured.

    An arm is out that is decided not to be faster, whose rounds leave no room for a gain that matters, or that is worse
    than the best by the margin with an e-value of 20.
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
        (name for name, one in found.items() if one.word in FASTER and one.processes >= LEAST_PROCESSES),
        key=lambda name: -found[name].ratio.estimate,
    )
    best = max(found, key=lambda name: found[name].ratio.estimate, default=None)
    for name, evidence in found.items():
        if (why := _why_out(name, best, evidence, seen, s0, comparison.margin)) is not None:
            out[name] = why
    open_ = tuple(name for name in names if name not in out)
    ahead = tuple(name for name in open_ if not winners or _may_beat(name, winners[0], seen, s0, comparison.margin))
    return State(seen, s0, found, out, open_, tuple(winners), ahead)


def next_round(comparison: Comparison, procedure: Procedure, seen: Seen) -> Round | None:
    """The round that follows, or ``None`` where nothing is left to measure.

    That is so where the question is answered, where the baseline is gone, and where every arm that may still win has as
    many processes as it may have.
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
        update={
            "arms": (*arms, again(comparison)) if twice else arms,
            "accelerators": comparison.accelerators[:1],
        }
    )
    return Round(narrowed, seen.next_block)


def enough(comparison: Comparison, procedure: Procedure, seen: Seen) -> set[str]:
    """Candidates that need no more turns in the processes at hand.

    They are out, or what their process can show is decided and another process is what is missing, or all that is
    measured now has as many processes as it may have.
    """
    state = state_of(comparison, seen)
    names = {arm.id for arm in comparison.arms if arm.role == "candidate"}
    needed = {*state.ahead, *state.winners[:1]} if state.ahead else set()
    shown = {
        name for name in needed if name in state.found and state.found[name].decided and not _has_processes(seen, name)
    }
    over = {name for name in needed if not seen.turns and seen.processes.get(name, 0) >= procedure.blocks}
    return names - needed | shown | over


def _has_processes(seen: Seen, name: str) -> bool:
    return seen.processes.get(name, 0) >= LEAST_PROCESSES


def again(comparison: Comparison) -> PlannedArm:
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
    """Why an arm is not measured further; ``None`` where it is."""
    if evidence.word in (*SLOWER, "no_difference"):
        return evidence.word.replace("_", " ")
    if evidence.no_gain:
        return f"not faster by {margin:.0%}"
    if best is None or best == name or (behind := seen.versus(name, best)) is None:
        return None
    if behind.mean < -math.log1p(margin) and e_value(behind, s0) >= DECIDES:
        return f"slower than {best}"
    return None


def _may_beat(name: str, winner: str, seen: Seen, s0: float, margin: float) -> bool:
    """Whether an arm may be better than the winner by something that matters."""
    if name == winner:
        return False
    sample = seen.versus(name, winner)
    return sample is None or interval(sample, s0, level=_ONE_SIDED).high >= 1 + margin
