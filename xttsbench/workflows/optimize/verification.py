"""Verification of fixes and its time: durations of trials, by those that ran, and the time left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xttsbench.evidence import Evidence
from xttsbench.fixes.cache import CACHE
from xttsbench.fixes.proposal import Proposal
from xttsbench.fixes.rounds import LEAST_BLOCKS, ORIGINAL, PART_S, PATCHED, WHOLE_S, arm_of, guard_size
from xttsbench.fixes.same_data import data_of
from xttsbench.fixes.verified import Verified, verified
from xttsbench.planning import Job
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.plan import Accelerator, PlannedVariant
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.measure.arms import Trials

WINDOW_S: Final = 2.0
LEAST_WINDOW_S: Final = 0.8
_AROUND_S: Final = 1.5  # of a trial outside its window, besides building the target: fork, first batches
_FILLING_SHARE: Final = 0.5  # of the time that is left, for filling a cache in each trial of two rounds


@dataclass(frozen=True)
class Filling:
    """The cache of a configuration, as its trials fill it."""

    pass_s: float  # until it is full, at the pace of the original; 0 where there is none, or nobody knows
    of_part: bool  # it is measured on a part of the data
    anew: bool  # each trial fills it

    @property
    def trial_s(self) -> float:
        """Seconds for filling the cache in a trial; 0 where an earlier trial has left it full."""
        return self.pass_s if self.anew else 0.0

    def ends_within(self, left_s: float) -> bool:
        """Whether the cache can be filled as often as trials that decide need it."""
        return (2 * LEAST_BLOCKS if self.anew else 1) * self.pass_s <= _FILLING_SHARE * left_s


@dataclass(frozen=True)
class Verification:
    """Fixes to verify, the time for it, and the results of trials so far.

    Attributes:
        job: target, arguments, steps and seed of all trials.
        accelerator: that the steps run on.
        evidence: of the diagnosis before.
        proposed: fixes, the best first.
        directory: of the run.
        session: runs the trials, and has those of the diagnosis.
        until_s: seconds of the session at which everything has to be over.
        patch: makes the patch of some fixes, joined by `` + ``; ``None`` where there is no source.
        step_files: of some fixes, the files that are read in place of the user's where that is how the step is changed.
    """

    job: Job
    accelerator: Accelerator
    evidence: Evidence
    proposed: Sequence[Proposal]
    directory: Path
    session: Trials
    until_s: float
    patch: Callable[[str], Patch | None] = lambda _: None
    step_files: Callable[[str], Mapping[str, str]] = lambda _: {}

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """All trials of the run so far."""
        return self.session.trials

    @property
    def found(self) -> Verified:
        """Results of the trials so far."""
        return verified(self.trials, self.accelerator)

    @property
    def over(self) -> bool:
        """Whether the user has ended the run."""
        return any(trial.status == "interrupted" for trial in self.trials)

    @property
    def guarded(self) -> bool:
        """Whether the elements of the original have been looked at."""
        return any(trial.spec.kind == "elements" for trial in self.trials)

    def same_data(self, arm: str) -> bool:
        """Whether a configuration is known to yield the original's data."""
        data = data_of(self.trials, arm)
        return data is not None and data.equivalent is True

    def arm(self, name: str) -> PlannedVariant:
        """The configuration of some fixes."""
        return arm_of(self.job, name, patched=self.step_files(name))

    @property
    def left_s(self) -> float:
        """Seconds until everything has to be over."""
        return self.until_s - self.session.spent_s

    @property
    def setup_s(self) -> float:
        """Seconds that building the target takes."""
        return max((trial.setup_s or 0.0 for trial in self.trials), default=0.0)

    def window_s(self, names: Sequence[str], budget_s: float) -> float:
        """Seconds that a trial may measure so that enough blocks of these and the original fit; below 0 for none."""
        arms = (ORIGINAL, *names)
        return min((budget_s / LEAST_BLOCKS - self.session.import_s - self.around_s(arms)) / len(arms), WINDOW_S)

    def fits(self, names: Sequence[str], budget_s: float) -> bool:
        """Whether enough blocks of these configurations and the original fit into a budget."""
        return self.window_s(names, budget_s) >= LEAST_WINDOW_S

    def around_s(self, names: Sequence[str]) -> float:
        """Seconds of these configurations' trials outside their windows: measured or estimated, and caches."""
        seen = [
            trial.duration_s - _measured_s(trial) - self.filling(trial.spec.arm or "").trial_s
            for trial in self.trials
            if trial.spec.kind == "arm" and trial.status == "ok"
        ]
        each_s = max([*seen[-6:], self.setup_s]) if seen else self.setup_s + _AROUND_S
        return sum(each_s + self.filling(name).trial_s for name in names)

    def filling(self, arm: str) -> Filling:
        """Cache fill of a configuration, with a part of the data where all would take long.

        Where nothing is built anew in each trial, or by a script, the data are what they are.
        """
        fixes, passes = FixSet.parse(arm), {one.name: one.first_pass_s for one in self.proposed}
        whole_s = passes.get(arm)
        if whole_s is None:
            caches = [passes.get(str(fix)) for fix in fixes if fix.kind == CACHE.name]
            whole_s = None if None in caches else max((pass_s or 0.0 for pass_s in caches), default=0.0)
        begins_anew = self.session.fills_anew
        can_be_cut = self.job.again is None and begins_anew and CACHE.name in fixes
        of_part = can_be_cut and (whole_s is None or whole_s > WHOLE_S) and self.source_limit is not None
        return Filling(PART_S if of_part else whole_s or 0.0, of_part, begins_anew)

    @property
    def source_limit(self) -> int | None:
        """Elements of each source that make a part of the data; ``None`` where what was read cannot be cut."""
        part = guard_size(self.evidence).part
        cut = [one.elements.source_limit for one in self.trials if one.spec.arm == ORIGINAL and one.elements]
        return part if not cut else max(cut[0], part) if cut[0] else None


def _measured_s(trial: TrialRecord) -> float:
    return sum(mark.end_ns - mark.start_ns for mark in trial.rounds) / 1e9 if trial.spec.turns else trial.spec.window_s


def timed_as(arms: Sequence[PlannedVariant], patched_as: str = "") -> list[str]:
    """Names of the configurations; the patched source fills the cache that the fix does whose patch it is."""
    return [patched_as if arm.id == PATCHED else arm.id for arm in arms]
