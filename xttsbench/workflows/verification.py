"""What fixes are verified, and in what time: seconds of a trial, of a block, and what is left of the run's.

Every fix that is measured needs two processes at least, and a cache in memory is filled anew in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from xttsbench.diagnosis.next_trial import Job
from xttsbench.evidence.evidence import Evidence
from xttsbench.fixes.proposals import Proposal
from xttsbench.fixes.rounds import LEAST_BLOCKS, ORIGINAL, PATCHED
from xttsbench.records.fix import Patch
from xttsbench.records.fix_set import FixSet
from xttsbench.records.plan import Accelerator, PlannedArm
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.measure.arms import Trials

WINDOW_S: Final = 2.0
LEAST_WINDOW_S: Final = 0.8
_AROUND_S: Final = 1.5
"""Of a trial outside its window, besides building the target: fork, first batches."""
_FILLING_SHARE: Final = 0.5
"""Of the time that is left, for filling a cache in each trial of two rounds."""


class Timed(Trials, Protocol):
    """What runs trials and knows what a block costs before any of them runs."""

    @property
    def import_s(self) -> float:
        """Seconds that the last helper took to start."""

    @property
    def fills_anew(self) -> bool:
        """Whether each trial fills the caches in memory that it measures; in one process they stay full."""


@dataclass(frozen=True)
class Verification:
    """What is verified, and in what time.

    Attributes:
        job: target, arguments, steps and seed of all trials.
        accelerator: that the steps run on.
        evidence: of the diagnosis before.
        proposed: fixes, the best first.
        directory: of the run.
        until_s: seconds of the session at which everything has to be over.
        patch: makes the patch of some fixes, joined by `` + ``; ``None`` where there is no source.
    """

    job: Job
    accelerator: Accelerator
    evidence: Evidence
    proposed: Sequence[Proposal]
    directory: Path
    until_s: float
    patch: Callable[[str], Patch | None]

    @property
    def cache_dir(self) -> str:
        """Where fixes keep elements on disk."""
        return str(self.directory / "cache")

    def first_pass_s(self, arm: str) -> float:
        """Seconds until the cache of an arm is full, at the pace of the original; 0 where it has none that is known."""
        passes = {one.name: one.first_pass_s for one in self.proposed}
        whole = passes.get(arm)
        return whole if whole is not None else max(passes.get(name) or 0.0 for name in FixSet.parse(arm).names)


@dataclass(frozen=True)
class Clock:
    """What trials of a verification take, going by those that ran, and what time there is for more."""

    wanted: Verification
    session: Timed

    @property
    def left_s(self) -> float:
        """Seconds until everything has to be over."""
        return self.wanted.until_s - self.session.spent_s

    @property
    def setup_s(self) -> float:
        """Seconds that building the target takes."""
        return max((trial.setup_s or 0.0 for trial in self.session.trials), default=0.0)

    def window_s(self, names: Sequence[str], budget_s: float) -> float:
        """Seconds that a trial may measure so that enough blocks of these and the original fit; below 0 for none."""
        arms = (ORIGINAL, *names)
        return min((budget_s / LEAST_BLOCKS - self.session.import_s - self.around_s(arms)) / len(arms), WINDOW_S)

    def around_s(self, names: Sequence[str]) -> float:
        """Of trials of these arms, outside their windows: what the last ones took or an estimate, and their caches."""
        seen = [
            trial.duration_s - _measured_s(trial) - self.filling_s(trial.spec.arm or "")
            for trial in self.session.trials
            if trial.spec.rung == "arm" and trial.status == "ok"
        ]
        each_s = max([*seen[-6:], self.setup_s]) if seen else self.setup_s + _AROUND_S
        return sum(each_s + self.filling_s(name) for name in names)

    def filling_s(self, arm: str) -> float:
        """Of a trial of an arm, for filling its cache; none where an earlier trial has left it full."""
        return self.wanted.first_pass_s(arm) if self._fills_anew(arm) else 0.0

    def is_filled_in_time(self, arm: str) -> bool:
        """Whether the cache of an arm can be filled as often as trials that decide something need it."""
        times = 2 * LEAST_BLOCKS if self._fills_anew(arm) else 1
        return times * self.wanted.first_pass_s(arm) <= _FILLING_SHARE * self.left_s

    def _fills_anew(self, arm: str) -> bool:
        """Whether each trial does: a cache on disk is full for the second one."""
        return self.session.fills_anew and not FixSet.parse(arm).keeps_files


def _measured_s(trial: TrialRecord) -> float:
    """Seconds that an arm's trial measured, in its turns or in one stretch."""
    return sum(mark.end_ns - mark.start_ns for mark in trial.rounds) / 1e9 if trial.spec.turns else trial.spec.window_s


def timed_as(arms: Sequence[PlannedArm]) -> list[str]:
    """Names of the arms; the patched source, which is that of the first one, fills the cache that it does."""
    return [arms[0].id if arm.id == PATCHED else arm.id for arm in arms]
