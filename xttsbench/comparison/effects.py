"""Each arm's speed against its group's baseline, from paired rounds on matched batches, and what may be said of it.

The measure is samples per second, so that arms with batches of another size compare too. A round is one turn of each
side, in one pair of processes: its rows are those with the same block and round. The two are compared on the batches
that both had, where both know which these were: utterances differ in length more than loaders in speed. The logarithms
of the ratios are the evidence (:mod:`xttsbench.analysis.evidence`), also of how a comparison stands as it runs. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.disturbance import gate
from xttsbench.analysis.evidence import (
    DECIDES,
    Evidence,
    Sample,
    decide,
    noise_scale,
    paired,
    smallest_visible,
)
from xttsbench.analysis.steps import Steps
from xttsbench.comparison.runs import ArmRuns, GroupRuns, Turn, collect
from xttsbench.records.base import Estimate, Word
from xttsbench.records.plan import Comparison
from xttsbench.records.trial import TrialRecord

NOISY: Final = 0.05
"""Rounds of equal configurations that differ by more are a noisy session's."""
_COMMON: Final = 0.5
"""Of the slower side's rows: where fewer have batches that the other has too, all rows are compared."""


@dataclass(frozen=True)
class Effect:
    """What the paired rounds say of one arm; ``why`` is why nothing was decided, where it was not."""

    found: Evidence | None = None
    word: Word = "undecided"
    why: str | None = None

    @property
    def ratio(self) -> Estimate | None:
        """Speed against the baseline."""
        return self.found.ratio if self.found else None


@dataclass(frozen=True)
class Weighed:
    """The rounds of a group, weighed.

    Attributes:
        group: the trials without the rounds that were left out.
        effects: candidate -> its effect, of all that were measured and did not end.
        again: the baseline against itself; ``None`` where it was not measured twice.
        noise_scale: what rounds of equal configurations differ by in this session, as a standard deviation.
        smallest_visible_effect: what as many rounds as the candidates have would have decided, as a share.
        why: why the baseline is not known against itself.
    """

    group: GroupRuns
    effects: Mapping[str, Effect] = field(default_factory=dict)
    again: Evidence | None = None
    noise_scale: float = 0.0
    smallest_visible_effect: float | None = None
    why: str | None = None

    @property
    def noisy(self) -> bool | None:
        """Whether equal configurations differ by more than 5 %; ``None`` where no round of them was compared."""
        return None if self.again is None else self.noise_scale > NOISY


def weigh(group: GroupRuns, margin: float, *, candidates: int | None = None) -> Weighed:
    """What the rounds of a group say of each of its candidates.

    Rounds in which something else used the machine are left out, unless they are more than half: then all are kept, and
    the noise is taken to be larger.

    Args:
        group: the trials of one accelerator, sorted.
        margin: the smallest difference that matters, as a share.
        candidates: how many are compared, which each has to show that many times the evidence for; those of the group
            without it.
    """
    judged = gate([trial for runs in group.arms for trial in runs.trials.values()])
    group = group.without(judged.invalid)
    baseline = group.baseline
    samples = {
        runs.arm.id: sample
        for runs in group.candidates
        if runs.ended is None and (sample := sample_of(baseline, runs)) is not None
    }
    again = sample_of(baseline, group.again) if group.again is not None else None
    s0 = noise_scale(again, samples.values(), mostly_invalid=judged.widened)
    count = candidates or max(len(group.candidates), 1)
    found = {}
    for runs in group.candidates:
        name = runs.arm.id
        if name in samples:
            clean = bool(baseline.turns.keys() & runs.turns.keys() - judged.disturbed)
            evidence = decide(samples[name], s0, candidates=count, margin=margin, undisturbed=clean)
            why = None if evidence.decided else undecided(evidence, count, _round_s(group, runs))
            found[name] = Effect(evidence, evidence.word, why)
        elif runs.ended is None and runs.steps:
            found[name] = Effect(why="no round has both it and the baseline")
    visible = [smallest_visible(sample, s0, candidates=count) for sample in (*samples.values(), again) if sample]
    why = "no round has both runs of the baseline" if group.again else "the baseline was measured once a round"
    return Weighed(
        group=group,
        effects=found,
        again=decide(again, s0, margin=margin) if again is not None else None,
        noise_scale=s0,
        smallest_visible_effect=min((one for one in visible if one is not None), default=None),
        why=why if again is None else None,
    )


def settled_arms(comparison: Comparison, trials: Sequence[TrialRecord], processes: int) -> set[str]:
    """Candidates that need no more rounds: decided on every accelerator that measured them, in so many processes."""
    open_: set[str] = set()
    found: set[str] = set()
    for group in collect(comparison, trials):
        effects = weigh(group, comparison.margin).effects
        for runs in group.candidates:
            if runs.steps or runs.ended is not None:
                evidence = effects[runs.arm.id].found if runs.arm.id in effects else None
                enough = evidence is not None and evidence.decided and evidence.processes >= processes
                (found if enough or runs.ended is not None else open_).add(runs.arm.id)
    return found - open_


def sample_of(baseline: ArmRuns, other: ArmRuns) -> Sample | None:
    """The log ratios of the other's speed over the baseline's, those of one pair of processes pooled; or ``None``."""
    ratios = log_ratios(baseline, other)
    return paired(list(ratios.values()), [block for block, _ in ratios]) if ratios else None


def log_ratios(baseline: ArmRuns, other: ArmRuns) -> dict[Turn, float]:
    """Block and round that both have -> logarithm of the other's samples per second over the baseline's."""
    return {
        turn: log_ratio(baseline.turns[turn], other.turns[turn])
        for turn in sorted(baseline.turns.keys() & other.turns.keys())
    }


def log_ratio(one: Steps, other: Steps) -> float:
    """Logarithm of the other's speed over that of the one, on the batches that both had."""
    mine, theirs = matched(one, other)
    return math.log(theirs.rate_per_s / mine.rate_per_s)


def matched(one: Steps, other: Steps) -> tuple[Steps, Steps]:
    """The rows of both whose batches both had; all rows where that is not known, or where too few are common.

    A batch that one side had more often counts as often as in the other. Batches of other sizes are other batches, even
    at the same place.
    """
    ours, theirs = _occurrences(one.batch), _occurrences(other.batch)
    common = ours.keys() & theirs.keys()
    if len(common) < _COMMON * min(len(one), len(other)) or not common:
        return one, other
    mine, its = (np.array(sorted(where[key] for key in common)) for where in (ours, theirs))
    sizes = [
        [steps.batch_size[where[key]] for key in sorted(common)] for steps, where in ((one, ours), (other, theirs))
    ]
    return (one[mine], other[its]) if sizes[0] == sizes[1] else (one, other)


def _occurrences(batches: npt.NDArray[np.int64]) -> dict[tuple[int, int], int]:
    """Batch and how often it was seen before -> row; none for a batch that is not known."""
    seen: dict[int, int] = {}
    found = {}
    for row, batch in enumerate(batches.tolist()):
        if batch >= 0:
            seen[batch] = seen.get(batch, -1) + 1
            found[batch, seen[batch]] = row
    return found


def undecided(evidence: Evidence, candidates: int, round_s: float | None = None) -> str:
    """What would decide it: evidence, rounds, and seconds where it is known what a round takes."""
    said = f"evidence {evidence.value:.3g}, and {DECIDES * candidates:g} decides"
    more = evidence.more_rounds
    if more is None:
        return f"{said}; a thousand rounds like these would not"
    took = f" ({more * round_s:.0f} s)" if round_s else ""
    return f"{said}; about {more} more {'round' if more == 1 else 'rounds'} like these would{took}"


def _round_s(group: GroupRuns, runs: ArmRuns) -> float | None:
    """Seconds that a round of an arm and the baseline takes: their turns, or their processes where each has one."""
    sides: Sequence[ArmRuns] = (group.baseline, runs)
    if any(turn for side in sides for _, turn in side.turns):
        walls = [float(steps.wall_s.sum()) for side in sides for steps in side.turns.values()]
    else:
        walls = [trial.duration_s for side in sides for trial in side.trials.values()]
    return 2 * sum(walls) / len(walls) if walls else None


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
