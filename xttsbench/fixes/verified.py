"""Results of verified fixes, from the trials: the data that each yields, its speed, and the proposals. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from xttsbench.analysis.evidence import DECIDES, LEAST_SCALE, Evidence, e_value
from xttsbench.comparison.effects import Effect, Weighed, weigh
from xttsbench.comparison.figures import figures_of
from xttsbench.comparison.runs import collect
from xttsbench.fixes.cache import CACHE, over_a_training
from xttsbench.fixes.rounds import LEAST_BLOCKS, PATCHED, ROUNDS, TOGETHER, planned
from xttsbench.fixes.same_data import originals_of, semantics_of
from xttsbench.records.base import FASTER, MARGIN, SLOWER, Estimate
from xttsbench.records.fix import FixSet, Semantics
from xttsbench.records.pipeline import GraphIdentity
from xttsbench.records.plan import Accelerator
from xttsbench.records.trial import TrialRecord

_LEAST_ROUNDS: Final = 2
"""Fewest rounds of a fix that is clearly faster: beside one candidate a single round would always be enough."""


@dataclass(frozen=True)
class Measured:
    """One configuration over all rounds: its effect, its mean step, and how it ended where it did."""

    effect: Effect | None
    step_time_s: Estimate | None
    ended: str | None

    @property
    def evidence(self) -> Evidence | None:
        """Evidence from the configuration's rounds beside the original's; ``None`` without an effect."""
        return self.effect.found if self.effect else None

    @property
    def accepted(self) -> bool:
        """Whether the configuration is faster: clearly so, or in two processes."""
        found = self.evidence
        return self.settled and self.ended is None and found is not None and found.word in FASTER

    @property
    def settled(self) -> bool:
        """Whether more rounds are needless."""
        found = self.evidence
        if self.ended is not None or found is None:
            return self.ended is not None
        enough = found.processes >= LEAST_BLOCKS
        clearly = found.word.startswith("clearly") and found.rounds >= _LEAST_ROUNDS
        return clearly or (enough and (found.decided or found.futile))


@dataclass(frozen=True)
class Verified:
    """All that was found out about fixes."""

    semantics: Mapping[str, Semantics] = field(default_factory=dict)  # configuration -> what it does to the data
    measured: Mapping[str, Measured] = field(default_factory=dict)
    """Configuration -> what it was measured at, in all rounds together."""
    last: frozenset[str] = frozenset()
    """Configurations of the last group, in which what may be proposed is measured side by side."""
    behind: Mapping[str, str] = field(default_factory=dict)
    """Configuration -> the faster one that it is decided to be slower than, by more than the margin."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Configuration -> elements of each source, where it was measured on a part of the data."""
    round_scale: float = LEAST_SCALE  # what the rounds of one pair of processes differ by in this session
    noise_processes: int = 0  # processes of the original's second run
    identity: GraphIdentity | None = None  # of the original's graph
    unreadable: str | None = None  # why nothing can be compared, where the original itself could not be read

    def accepted(self, arm: str) -> bool:
        """Whether a configuration is faster with the same data."""
        found = self.measured.get(arm)
        return found is not None and found.accepted and self._same_data(arm)

    def _same_data(self, arm: str) -> bool:
        return arm in self.semantics and self.semantics[arm].equivalent is True

    def ratio(self, arm: str) -> float:
        """Measured speed of a configuration relative to the original's; 0 where it was not measured."""
        found = self.measured.get(arm)
        return found.evidence.ratio.estimate if found is not None and found.evidence is not None else 0.0

    def ended(self, arm: str) -> bool:
        """Whether a trial of a configuration did not end well."""
        return (found := self.measured.get(arm)) is not None and found.ended is not None

    def settled(self, arm: str) -> bool:
        """Whether more rounds of a configuration are needless."""
        return arm in self.behind or ((found := self.measured.get(arm)) is not None and found.settled)

    def more_s(self, arm: str) -> float | None:
        """Seconds that would decide a configuration if its rounds were like those so far; endless for over a thousand.

        ``None`` where it has had none, or is decided.
        """
        found = self.measured.get(arm)
        if found is None or found.evidence is None or found.evidence.decided or found.effect is None:
            return None
        more = found.evidence.more_rounds
        return math.inf if more is None else more * (found.effect.round_s or 0.0)

    @property
    def decided(self) -> set[str]:
        """Configurations of which more rounds in the same processes are needless; a second process may still be wanted.

        One that is faster goes on, since it may be clearly so before another process has begun.
        """
        seen = {arm: one.evidence for arm, one in self.measured.items() if one.evidence is not None}
        slow = {arm for arm, one in seen.items() if one.futile or one.word in (*SLOWER, "no_difference")}
        return slow | {arm for arm in self.measured if self.settled(arm)}

    @property
    def best_first(self) -> list[str]:
        """Accepted fixes, the fastest first; of those that are alike, the one with fewer parts."""
        names = self.measured.keys() - {PATCHED}
        return sorted((name for name in names if self.accepted(name)), key=self._rank)

    @property
    def helpful(self) -> list[str]:
        """Fixes that are faster in one process, or look faster behind a better one: parts of what may be better yet."""
        names = (
            name
            for name, one in self.measured.items()
            if name != PATCHED and one.ended is None and one.evidence is not None
            if one.evidence.word in FASTER or (name in self.behind and one.evidence.ratio.estimate > 1 + 2 * MARGIN)
        )
        return sorted(names, key=self._rank)

    @property
    def promising(self) -> list[str]:
        """Fixes that leave the data alone and look faster, and are not decided; the fastest first."""
        names = (name for name in self.measured.keys() - {PATCHED} if self._same_data(name) and not self.settled(name))
        return sorted((name for name in names if self.ratio(name) > 1 + 2 * MARGIN), key=self._rank)

    @property
    def contenders(self) -> list[str]:
        """Accepted fixes, the best first, and before them one that is undecided where it looks better than they are.

        It was clearly faster until noisier rounds came, or had few: it gets a second chance.
        """
        accepted = self.best_first
        least = (1 + 2 * MARGIN) * self.training_speedup(accepted[0]) if accepted else 0.0
        return [*(name for name in self.promising[:1] if self.training_speedup(name) > least), *accepted]

    @property
    def chosen(self) -> str | None:
        """The fix that the run proposes; ``None`` where none was accepted.

        It is the best of those that were measured side by side in the end, unless a part of it was as fast by itself.
        """
        last = [name for name in self.best_first if name in self.last] or self.best_first
        if not last:
            return None
        parts, speed = FixSet.parse(last[0]), self._rank(last[0])[0]
        as_good = (name for name in self.best_first if FixSet.parse(name) < parts and self._rank(name)[0] <= speed)
        return next(as_good, last[0])

    def training_speedup(self, name: str) -> float:
        """Measured speed of a whole training with a configuration, relative to the original's; 0 if not measured.

        The first pass counts where a cache was measured on a part of the data because filling it takes long: the other
        fixes are at work meanwhile, as far as they were accepted without the cache.
        """
        after = self.ratio(name)
        if not after or not _filled_later(name, self.parts):
            return after
        others = FixSet.parse(name).without(CACHE.name)
        arms = self.measured.keys() - {PATCHED}
        first = (self.ratio(arm) for arm in arms if FixSet.parse(arm) <= others and self.accepted(arm))
        return over_a_training(max(first, default=1.0), after)

    def _rank(self, name: str) -> tuple[float, int, str]:
        speed = self.training_speedup(name)
        # Within the margin fewer parts are better: there is less to understand, and less to keep.
        return -round(np.log(max(speed, 1e-9)) / np.log1p(2 * MARGIN)), len(FixSet.parse(name)), name


def verified(trials: Sequence[TrialRecord], accelerator: Accelerator) -> Verified:
    """Everything that the trials of a verification say. The same trials give the same answer."""
    read, unreadable = originals_of(trials)
    semantics = semantics_of(trials, read, unreadable)
    patched = next((number for number, trial in enumerate(trials) if trial.spec.arm == PATCHED), None)
    every = trials
    if patched is not None:
        data, best = semantics.get(PATCHED), verified(trials[:patched], accelerator).chosen
        trials = list(_as_the_fix(every, best if data is not None and data.equivalent else None))
    timed = [trial.spec for trial in trials if trial.spec.group in ROUNDS and trial.spec.kind == "arm"]
    found = Verified(
        semantics=semantics,
        parts={spec.arm: spec.source_limit for spec in timed if spec.arm and spec.source_limit},
        last=frozenset(t.spec.arm for t in trials if t.spec.group == TOGETHER and t.spec.arm and t.status == "ok"),
        identity=next((one.identity for one in read if one.identity is not None), None),
        unreadable=unreadable,
    )
    plan = planned(trials, accelerator)
    if plan is None:
        return found
    weighed = weigh(collect(plan, trials, groups=ROUNDS)[0], MARGIN)
    measured = _measured(weighed)
    if patched is not None and (own := planned(every, accelerator)) is not None:
        beside = _measured(weigh(collect(own, every, groups=ROUNDS)[0], MARGIN))
        measured |= {PATCHED: beside[PATCHED]} if PATCHED in beside else {}
    found = replace(found, measured=measured, round_scale=weighed.round_scale)
    again = weighed.group.again
    return replace(found, behind=_behind(weighed, found), noise_processes=len(again.steps) if again else 0)


def _as_the_fix(trials: Sequence[TrialRecord], fix: str | None) -> Iterator[TrialRecord]:
    """Trials with those of the patched source as further processes of the fix whose patch it is.

    The change is the same, and no candidate of its own. Where the fix was measured beside it, or there is none, its
    times are left out.
    """
    own = {trial.spec.block for trial in trials if trial.spec.kind == "arm" and trial.spec.arm == fix}
    for trial in trials:
        if trial.spec.arm != PATCHED or trial.spec.kind != "arm":
            yield trial
        elif fix is not None and trial.spec.block not in own:
            spec = trial.spec.model_copy(update={"arm": fix, "fix": fix, "patched": {}})
            yield trial.model_copy(update={"spec": spec})


def _filled_later(arm: str, parts: Collection[str]) -> bool:
    """Whether a cache of a configuration was measured on a part of the data: with all of it the gain comes late."""
    return arm in parts and CACHE.name in FixSet.parse(arm)


def _measured(weighed: Weighed) -> dict[str, Measured]:
    found = {}
    for arm in weighed.group.candidates:
        effect = weighed.effects.get(arm.arm.id)
        ratio = effect.ratio.estimate if effect and effect.ratio else None
        figures = figures_of(arm, weighed.group, weighed.noise_scale, ratio)
        found[arm.arm.id] = Measured(effect, figures.get("step_time_s"), arm.ended)
    return found


def _behind(weighed: Weighed, found: Verified) -> dict[str, str]:
    """Configurations slower than the fastest with the same data that was measured beside them.

    Being slower than a cache that takes long to fill says nothing of one that fills none.
    """
    changed = {arm for arm, data in found.semantics.items() if data.equivalent is not True}
    fast = {
        name
        for name, one in found.measured.items()
        if name not in {PATCHED, *changed} and one.ended is None and one.evidence and one.evidence.word in FASTER
    }
    behind: dict[str, str] = {}
    for best in sorted(fast, key=lambda name: -found.ratio(name)):
        for name in found.measured.keys() - {best, PATCHED, *behind}:
            if _filled_later(best, found.parts) and not _filled_later(name, found.parts):
                continue
            sample = weighed.pairs.sample(name, best)
            if sample is None or sample.mean > -math.log1p(MARGIN):
                continue
            if e_value(sample, weighed.noise_scale) >= DECIDES * len(found.measured):
                behind[name] = best
    return behind
