"""Speed of one side relative to another, from the rounds or sessions of both, and whether it is decided.

The measure is samples per second, so that batches of another size compare too. Within a run a round is one turn of each
side, in one pair of processes: its rows are those with the same block and round. The two are compared on the batches
that both had, where both know which these were: utterances differ in length more than loaders in speed. The logarithms
of the ratios are the evidence (:mod:`xttsbench.analysis.evidence`), also of how a comparison stands as it runs.

Two runs are two sessions, and nothing pairs them. Their blocks may have the same numbers, seeds and batches, but block
3 of one was not run beside block 3 of the other: pairing them would take the batches' variance out of the interval and
leave in what changed on the machine in between. Each process of either gives the logarithm of its rate, and the two
means are compared unpaired. That alone is not enough: simulated with 2 % noise between processes, all runs of A before
all runs of B call 45 % of equal pairs different where 5 % are allowed, since no number of processes within a session
shows what sessions differ by. That is about what a standard deviation of 2 % between sessions gives, so that much
(:data:`SESSION_NOISE`) is added to the variance of each side unless the user knows better. Pure.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.disturbance import Gate, gate
from xttsbench.analysis.evidence import (
    DECIDES,
    LEAST_SCALE,
    Evidence,
    Sample,
    confidence_sequence,
    decide,
    noise_scale,
    paired,
    round_scale,
    smallest_visible,
    unpaired,
)
from xttsbench.analysis.steps import Steps
from xttsbench.comparison.runs import GroupRuns, Taken, Turn, VariantRuns, collect, taken_in
from xttsbench.records.base import Estimate, Word
from xttsbench.records.plan import Comparison
from xttsbench.records.trial import TrialRecord

NOISY: Final = 0.05
"""Rounds of equal configurations that differ by more are a noisy session's."""
SESSION_NOISE: Final = 0.02
"""Standard deviation of the speed of one session about that of the machine, as a share."""
MIN_PROCESSES: Final = 2
"""Fewest processes of each side for a decision on two runs and for a gate: one is no evidence for the next."""
FINAL: Final = ("clearly_faster", "clearly_slower", "no_difference")
"""Words that stay; one that is faster may yet be clearly so."""
RATE: Final = operator.attrgetter("rate_per_s")
"""Samples per second of some steps; steps per second where the elements have no batch dimension."""
_COMMON: Final = 0.5
"""Share of the slower side's rows: with fewer that have the other's batches, all rows are compared."""


@dataclass(frozen=True)
class Effect:
    """Effect of one side on the speed, relative to another.

    Attributes:
        sample: logarithms of the ratios; ``None`` where the two have nothing in common.
        noise_scale: what pairs of equal configurations differ by, as a standard deviation.
        found: what the sample is evidence for; ``None`` without one.
        word: what may be said.
        sure: whether the interval tells of processes to come, so that a gate may rest on it.
        why: why nothing was decided, where it was not.
        candidates: how many were compared beside one another.
        round_s: seconds that another round takes; ``None`` where that is not known.
    """

    sample: Sample | None = None
    noise_scale: float = LEAST_SCALE
    found: Evidence | None = None
    word: Word = "undecided"
    sure: bool = False
    why: str | None = None
    candidates: int = 1
    round_s: float | None = None

    @property
    def ratio(self) -> Estimate | None:
        """The speed as a ratio, with the interval that is shown."""
        return None if self.found is None else self.found.ratio

    @property
    def evidence(self) -> float | None:
        """The e-value that the two differ."""
        return None if self.found is None else self.found.value

    @property
    def smallest_visible_effect(self) -> float | None:
        """Smallest detectable effect, as a share; ``None`` where no size would be decided."""
        if self.sample is None:
            return None
        return smallest_visible(self.sample, self.noise_scale, candidates=self.candidates)

    def interval(self, level: float) -> Estimate:
        """The ratio with its confidence sequence at another level; only where there is a sample."""
        if self.sample is None:
            raise ValueError("there is nothing to make an interval of")
        return confidence_sequence(self.sample, self.noise_scale, level=level)

    def at_most(self, most: float) -> Effect:
        """The effect whose interval ends at a ratio that is not possible to exceed; what was measured stays."""
        if self.found is None or self.found.ratio.high <= most:
            return self
        ratio = self.found.ratio.model_copy(update={"high": max(most, self.found.ratio.estimate)})
        return replace(self, found=replace(self.found, ratio=ratio))

    def withheld(self, why: str) -> Effect:
        """The effect without its word, and no ground for a gate."""
        return replace(self, word="undecided", sure=False, why=why)


def effect_of(
    sample: Sample, s0: float, *, candidates: int, margin: float, undisturbed: bool = True, round_s: float | None = None
) -> Effect:
    """Decides on a sample; for the arguments see :func:`xttsbench.analysis.evidence.decide`.

    ``round_s`` is what another round takes, in seconds, where that is known.
    """
    found = decide(sample, s0, candidates=candidates, margin=margin, undisturbed=undisturbed)
    why = None if found.decided else _undecided(found, candidates, round_s)
    return Effect(sample, s0, found, found.word, found.processes >= MIN_PROCESSES, why, candidates, round_s)


def _undecided(evidence: Evidence, candidates: int, round_s: float | None) -> str:
    said = f"evidence of a difference is {evidence.value:.3g}, and {DECIDES * candidates:g} decides"
    more = evidence.more_rounds
    if more is None:
        return f"{said}; a thousand rounds like these would not"
    took = f" ({more * round_s:.0f} s)" if round_s else ""
    return f"{said}; about {more} more {'round' if more == 1 else 'rounds'} like these would{took}"


def decide_pairs(
    samples: Mapping[str, Sample], *, margin: float, session_noise: float | None = None
) -> dict[str, Effect]:
    """Decide on pairs of configurations, of one run by its paired rounds, or of two sessions.

    Args:
        samples: log ratios of B's speed over A's; of two sessions B's mean log rate less A's, unpaired.
        margin: a share.
        session_noise: standard deviation between sessions, a share, where there are two; it is known, and so costs no
            degrees of freedom.
    """
    s0 = noise_scale(None, samples.values())
    effects = {}
    for name, own in samples.items():
        wide = own if session_noise is None else replace(own, fixed=2 * math.log1p(session_noise) ** 2)
        one = effect_of(wide, s0, candidates=len(samples), margin=margin)
        few = f"{own.processes} process of each; a result takes {MIN_PROCESSES}"
        effects[name] = one if one.sure else one.withheld(few)
    return effects


def reported(ours: Estimate, our_processes: int, theirs: Estimate, their_processes: int) -> Sample:
    """The unpaired difference of two reported rates, where the processes themselves are not at hand.

    Raises:
        ValueError: there is no process on a side, or an interval is not positive.
    """
    counts = (our_processes, their_processes)
    if min(counts) < 1 or not all(0 < own.low <= own.estimate <= own.high for own in (ours, theirs)):
        raise ValueError(f"positive intervals over a process at least are needed; got {ours}, {theirs}, {counts}")
    error = math.hypot(*(_error(own, count) for own, count in zip((ours, theirs), counts, strict=True)))
    shape = unpaired([0.0] * our_processes, [0.0] * their_processes)
    # As large as the squares of processes are that have this standard error.
    squares = (error**2 * shape.weight) * (3 + shape.freedom) - 3 * LEAST_SCALE**2
    return replace(shape, mean=math.log(theirs.estimate / ours.estimate), squares=max(squares, 0.0))


def _error(rate: Estimate, processes: int) -> float:
    """Standard error of a logarithm, from the interval that :func:`xttsbench.analysis.evidence.interval` makes."""
    from scipy import special

    return math.log(rate.high / rate.low) / (2 * float(special.stdtrit(3 + processes - 1, 0.975)))


@dataclass(frozen=True)
class Weighed:
    """The rounds of a group, weighed.

    Attributes:
        group: the trials without the rounds that were left out.
        effects: candidate -> its effect, of all that were measured and did not end.
        again: the baseline against itself; ``None`` where it was not measured twice.
        noise_scale: what pairs of equal configurations differ by in this session, as a standard deviation.
        round_scale: what the rounds of one pair of processes differ by, likewise.
        smallest_visible_effect: what as many rounds as the candidates have would have decided, as a share.
        slope: power of the share of the processors that neighbours left, by which speeds were compared; 0 where they
            did not follow it.
        widened: most rounds were disturbed, or all of a configuration's, and are kept; the noise is taken to be larger.
        why: why the baseline is not known against itself.
        pairs: all of its configurations, paired.
    """

    group: GroupRuns
    effects: Mapping[str, Effect] = field(default_factory=dict)
    again: Evidence | None = None
    noise_scale: float = 0.0
    round_scale: float = LEAST_SCALE
    smallest_visible_effect: float | None = None
    slope: float = 0.0
    widened: bool = False
    why: str | None = None
    pairs: Paired = field(default_factory=lambda: Paired({}))

    @property
    def noisy(self) -> bool | None:
        """Whether equal configurations differ by more than 5 %; ``None`` where no round of them was compared."""
        return None if self.again is None else self.noise_scale > NOISY


def weigh(group: GroupRuns, margin: float) -> Weighed:
    """Weighs a group's rounds for each of its candidates.

    Rounds in which something else used the machine are left out, unless they are more than half, or all that a
    configuration has beside the baseline: then they are kept, and the noise is taken to be larger. Each candidate has
    to show as many times the evidence as there are candidates. The margin is the smallest difference that matters, as
    a share.
    """
    judged = gate([trial for runs in group.arms for trial in runs.trials.values()])
    left_out = judged.invalid - _all_there_are(group, judged.invalid)
    widened = judged.widened or left_out != judged.invalid
    group = group.without(left_out)
    baseline, pairs = group.baseline, Paired.of(group, judged)
    samples = {
        runs.arm.id: sample
        for runs in group.candidates
        if runs.ended is None and (sample := pairs.sample(runs.arm.id, baseline.arm.id)) is not None
    }
    again = pairs.sample(group.again.arm.id, baseline.arm.id) if group.again is not None else None
    s0 = noise_scale(again, samples.values(), mostly_invalid=widened)
    count = max(len(group.candidates), 1)
    found = {}
    for runs in group.candidates:
        if (sample := samples.get(name := runs.arm.id)) is not None:
            clean, round_s = bool(baseline.turns.keys() & runs.turns.keys() - judged.disturbed), _round_s(group, runs)
            effect = effect_of(sample, s0, candidates=count, margin=margin, undisturbed=clean, round_s=round_s)
            found[name] = effect.at_most(_without_waiting(baseline, runs))
        elif runs.ended is None and runs.steps:
            found[name] = Effect(why="no round has both it and the baseline")
    visible = [smallest_visible(sample, s0, candidates=count) for sample in (*samples.values(), again) if sample]
    why = "no round has both runs of the baseline" if group.again else "the baseline was measured once a round"
    return Weighed(
        group=group,
        effects=found,
        again=decide(again, s0, margin=margin) if again is not None else None,
        noise_scale=s0,
        round_scale=round_scale((*samples.values(), *([again] if again else []))),
        smallest_visible_effect=min((one for one in visible if one is not None), default=None),
        slope=pairs.taken.slope,
        widened=widened,
        why=why if again is None else None,
        pairs=pairs,
    )


def _without_waiting(baseline: VariantRuns, runs: VariantRuns) -> float:
    """Highest speed of the rounds if nothing but an emulated device took time; endless without one."""
    most = 0.0
    for turn in baseline.turns.keys() & runs.turns.keys():
        own = runs.turns[turn]
        device_s = float(own.emulated_s.sum())
        rate_per_s = float(own.batch_size.sum() or len(own)) / device_s if device_s else math.inf
        most = max(most, rate_per_s / baseline.turns[turn].rate_per_s)
    return most or math.inf


def _all_there_are(group: GroupRuns, turns: Collection[Turn]) -> set[Turn]:
    """Turns, among those given, of configurations that have no others beside the baseline.

    Rounds that were quieter came after theirs, and what they showed at the time is better than nothing.
    """
    ours = group.baseline.turns.keys()
    beside = [ours & runs.turns.keys() for runs in group.arms if runs is not group.baseline]
    return {turn for own in beside if own.issubset(turns) for turn in own}


def settled_arms(comparison: Comparison, trials: Sequence[TrialRecord], processes: int) -> set[str]:
    """Candidates that need no more rounds: decided on every accelerator that measured them, in so many processes."""
    enough: dict[str, bool] = {}
    for group in collect(comparison, trials):
        effects = weigh(group, comparison.margin).effects
        for runs in group.candidates:
            if runs.steps or runs.ended is not None:
                found = effects[runs.arm.id].found if runs.arm.id in effects else None
                decided = found is not None and found.decided and found.processes >= processes
                enough[runs.arm.id] = enough.get(runs.arm.id, True) and (decided or runs.ended is not None)
    return {name for name, so in enough.items() if so}


def log_ratios(
    ours: Mapping[Turn, Steps], theirs: Mapping[Turn, Steps], rate: Callable[[Steps], float] = RATE
) -> dict[Turn, float]:
    """Logarithms of their speed over ours in the turns that both had, in order.

    ``rate`` is what a speed is: samples per second without it.
    """
    pairs = {turn: matched(ours[turn], theirs[turn]) for turn in sorted(ours.keys() & theirs.keys())}
    return {turn: math.log(rate(other) / rate(one)) for turn, (one, other) in pairs.items()}


def pooled(ratios: Mapping[Turn, float]) -> Sample | None:
    """Log ratios by turn, those of one pair of processes pooled; ``None`` where there are none."""
    return paired([*ratios.values()], [block for block, _ in ratios]) if ratios else None


@dataclass(frozen=True)
class Paired:
    """The configurations of a group, paired round by round, with what neighbours gave one of a pair taken out.

    Attributes:
        turns: configuration -> turn -> its steps.
        taken: what neighbours took in each turn.
        ratios: two configurations -> log ratios of the first one's speed over the second's, where they are known
            already.
    """

    turns: Mapping[str, Mapping[Turn, Steps]]
    taken: Taken = field(default_factory=Taken)
    ratios: Mapping[tuple[str, str], Mapping[Turn, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, group: GroupRuns, judged: Gate) -> Paired:
        """The turns of a group, and the neighbours' part from all of its configurations together."""
        turns = {runs.arm.id: runs.turns for runs in group.arms}
        baseline, *others = turns
        if baseline not in judged.left:
            return cls(turns)
        ratios = {name: log_ratios(turns[baseline], turns[name]) for name in others}
        known = {(name, baseline): found for name, found in ratios.items()}
        return cls(turns, taken_in(baseline, judged.left, ratios), known)

    def sample(self, over: str, under: str) -> Sample | None:
        """Log ratios of the first one's speed over the second's; ``None`` where no round has both."""
        if over not in self.turns or under not in self.turns:
            return None
        ratios = self.ratios.get((over, under))
        if ratios is None:
            ratios = log_ratios(self.turns[under], self.turns[over])
        return pooled({turn: ratio - self.taken.gave(over, under, turn) for turn, ratio in ratios.items()})


def matched(one: Steps, other: Steps) -> tuple[Steps, Steps]:
    """The rows of both whose batches both had; all rows where that is not known, or where too few are common.

    So it is where one is so much faster that its turn had to go on: what it had in common with the other was ready.

    A batch that one side had more often counts as often as in the other. Batches of other sizes are other batches, even
    at the same place.
    """
    ours, theirs = _occurrences(one.batch), _occurrences(other.batch)
    common = ours.keys() & theirs.keys()
    few, many = sorted((len(one), len(other)))
    if len(common) < _COMMON * few or not common or few < _COMMON * many:
        return one, other
    rows = [[where[key] for key in sorted(common)] for where in (ours, theirs)]
    if not np.array_equal(one.batch_size[rows[0]], other.batch_size[rows[1]]):
        return one, other
    return one[np.sort(rows[0])], other[np.sort(rows[1])]


def _occurrences(batches: npt.NDArray[np.int64]) -> dict[tuple[int, int], int]:
    """Batch and how often it was seen before -> row; none for a batch that is not known."""
    seen: dict[int, int] = {}
    found = {}
    for row, batch in enumerate(batches.tolist()):
        if batch >= 0:
            seen[batch] = seen.get(batch, -1) + 1
            found[batch, seen[batch]] = row
    return found


def _round_s(group: GroupRuns, runs: VariantRuns) -> float | None:
    """Seconds that a round of a configuration and the baseline takes: their turns, or else their processes."""
    sides: Sequence[VariantRuns] = (group.baseline, runs)
    if any(turn for side in sides for _, turn in side.turns):
        walls = [float(steps.wall_s.sum()) for side in sides for steps in side.turns.values()]
    else:
        walls = [trial.duration_s for side in sides for trial in side.trials.values()]
    return 2 * sum(walls) / len(walls) if walls else None
