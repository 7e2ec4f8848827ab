"""Fixes verified: the data first, then each alone and the good ones together, beside the original, until decided.

What they come to is told by :func:`xttsbench.fixes.verified.verified`, from the trials alone and after each round. A
fix that is decided, or behind the best one, is not measured further, and what was measured counts, whichever group it
was measured in. A fix that is not clearly faster needs two processes, and a cache in memory is filled anew in each of
them. Where nothing is timed trials run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.comparison.sweep import rounds_of_a_process
from xttsbench.evidence.evidence import Evidence
from xttsbench.execution.limits import Limits
from xttsbench.files import atomic_write
from xttsbench.fixes.cache.spec import CACHE
from xttsbench.fixes.proposal import Proposal
from xttsbench.fixes.proposals import longer_buffer, predict_speedup
from xttsbench.fixes.rounds import (
    ALONE,
    LEAST_BLOCKS,
    ORIGINAL,
    PART_S,
    PATCHED,
    TOGETHER,
    Size,
    arm_of,
    combine,
    comparison,
    guard_size,
    guard_trial,
)
from xttsbench.fixes.spec import WORTH
from xttsbench.fixes.verified import Verified, data_of, verified
from xttsbench.planning import Job
from xttsbench.records.fix import Patch
from xttsbench.records.fix_set import FixSet
from xttsbench.records.plan import Accelerator, Comparison, PlannedArm
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.workflows.measure.arms import Trials, compare_arms

WINDOW_S: Final = 2.0
LEAST_WINDOW_S: Final = 0.8
_AROUND_S: Final = 1.5
"""Of a trial outside its window, besides building the target: fork, first batches."""
_WHOLE_S: Final = 2 * PART_S
"""Seconds of a first pass over all of the data, above which a part of them is what a cache is measured on."""
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

    def run_all(self, specs: Sequence[TrialSpec], limits: Limits, *, most: int = 1) -> list[TrialRecord]:
        """Run trials in which nothing is timed, up to ``most`` of them at a time; keep them in their order."""


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
        step_files: of some fixes, the files that are read in place of the user's where that is how the step is changed.
    """

    job: Job
    accelerator: Accelerator
    evidence: Evidence
    proposed: Sequence[Proposal]
    directory: Path
    until_s: float
    patch: Callable[[str], Patch | None]
    step_files: Callable[[str], Mapping[str, str]] = lambda _: {}

    def arm(self, name: str) -> PlannedArm:
        """The arm of some fixes."""
        return arm_of(self.job, name, patched=self.step_files(name))

    @property
    def cache_dir(self) -> str:
        """Where fixes keep elements on disk."""
        return str(self.directory / "cache")

    def first_pass_s(self, arm: str) -> float | None:
        """Seconds until the cache of an arm is full, at the pace of the original; ``None`` where that is not known.

        It is 0 where there is no cache.
        """
        passes = {one.name: one.first_pass_s for one in self.proposed}
        if (whole := passes.get(arm)) is not None:
            return whole
        caches = [passes.get(str(fix)) for fix in FixSet.parse(arm) if fix.kind == CACHE.name]
        return None if None in caches else max((pass_s or 0.0 for pass_s in caches), default=0.0)


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

    def is_of_part(self, arm: str) -> bool:
        """Whether an arm is measured on a part of the data, since its cache would take long to fill with all of them.

        Where nothing is built anew in each trial, or by a script, the data are what they are.
        """
        if self.wanted.job.again is not None or not self.session.fills_anew:
            return False
        if not any(fix.kind == CACHE.name for fix in FixSet.parse(arm)):
            return False
        whole_s = self.wanted.first_pass_s(arm)
        return (whole_s is None or whole_s > _WHOLE_S) and self.source_limit is not None

    @property
    def source_limit(self) -> int | None:
        """Elements of each source that make a part of the data; ``None`` where what was read cannot be cut."""
        size = guard_size(self.wanted.evidence)
        cut = [one.elements.source_limit for one in self.session.trials if one.spec.arm == ORIGINAL and one.elements]
        return size.part if not cut else max(cut[0], size.part) if cut[0] else None

    def pass_s(self, arm: str) -> float:
        """Seconds until the cache of an arm is full; 0 where it has none, or nobody knows."""
        return PART_S if self.is_of_part(arm) else self.wanted.first_pass_s(arm) or 0.0

    def filling_s(self, arm: str) -> float:
        """Of a trial of an arm, for filling its cache; none where an earlier trial has left it full."""
        return self.pass_s(arm) if self._fills_anew(arm) else 0.0

    def is_filled_in_time(self, arm: str) -> bool:
        """Whether the cache of an arm can be filled as often as trials that decide something need it."""
        times = 2 * LEAST_BLOCKS if self._fills_anew(arm) else 1
        return times * self.pass_s(arm) <= _FILLING_SHARE * self.left_s

    def _fills_anew(self, arm: str) -> bool:
        """Whether each trial does: a cache on disk is full for the second one."""
        return self.session.fills_anew and not FixSet.parse(arm).keeps_files


def _measured_s(trial: TrialRecord) -> float:
    """Seconds that an arm's trial measured, in its turns or in one stretch."""
    return sum(mark.end_ns - mark.start_ns for mark in trial.rounds) / 1e9 if trial.spec.turns else trial.spec.window_s


def timed_as(arms: Sequence[PlannedArm], patched_as: str = "") -> list[str]:
    """Names of the arms; the patched source fills the cache that the fix does whose patch it is."""
    return [patched_as if arm.id == PATCHED else arm.id for arm in arms]


_MOST: Final = 6
"""Fixes that are measured alone."""
_FINAL: Final = 2
"""Fixes in the last group: the best one alone, and all together or it with a longer buffer."""
_ALONE_SHARE: Final = 0.6
"""Of the time that is left, for fixes alone; the rest is for what is proposed in the end."""
_MOST_PROCESSES: Final = 12
"""Of a group: by then a fix worth 1.1 is decided on a machine whose rounds differ by 5 %."""
_TRIED: Final = 4
"""Processes after which what a fix is expected to need is believed; most that give nothing are known by then."""
_HOPE: Final = 2.0
"""Times the seconds that are left: where it is expected to need more, it is left undecided."""
_GUARD_S: Final = 4.0
"""What one trial of the guard is expected to take besides its passes and building the target."""
_AT_ONCE: Final = 6
"""Trials of the guard that run side by side at most, of a target that waits."""
_ROOM: Final = 1.3
"""Times the processor time and the memory of the target as it is that one of them is expected to take."""
_FILLING: Final = 3.0
"""First passes, as they are expected, that filling a cache may take: beside others some take twice as long."""
_SLACK_S: Final = 1.0
"""More of them, for one that is very short."""
_TRIAL_S: Final = 20.0
"""Least time limit of a trial: a fix that hangs costs this much once."""
_PATCHED_DIR: Final = "patched"


def verify(wanted: Verification, session: Timed) -> Patch | None:
    """Run the trials of a verification, as far as the time allows; they are in the session and in the journal.

    A fix whose trial raises, hangs or dies costs that trial, and is rejected.

    Returns:
        The patch of what is proposed in the end, where there is one.
    """
    clock = Clock(wanted, session)
    worth = [one.name for one in wanted.proposed if one.worth and clock.is_filled_in_time(one.name)]
    if not worth or clock.left_s <= 0:
        return None
    size = guard_size(wanted.evidence)
    # Where the runs of the original show that its sources cannot be cut, a cache is filled with all that they yield.
    sound = [name for name in _sound(wanted, session, size, worth) if clock.is_filled_in_time(name)]
    if not sound or _over(session):
        return None
    left_s = clock.left_s
    for of_part in (False, True):
        alone = [wanted.arm(name) for name in sound if clock.is_of_part(name) is of_part]
        # Planned for a share of the time, but until there are enough blocks to decide anything it gets what it takes.
        planned_s = _ALONE_SHARE * left_s * len(alone) / len(sound)
        _compare(wanted, session, ALONE, alone, planned_s=planned_s, most_s=clock.left_s)
    return _finish(wanted, session, size)


def _sound(wanted: Verification, session: Timed, size: Size, names: Sequence[str]) -> list[str]:
    """The best fixes that leave the data alone, as many as may be measured; none where the original cannot be read.

    In place of one that falls the next is tried, as long as there is time to measure it.
    """
    clock, waiting = Clock(wanted, session), list(names)
    most = _affordable(wanted, session, size, names)
    sound: list[str] = []
    while waiting and len(sound) < most and not _over(session):
        some = waiting[: most - len(sound)]
        first = len(waiting) == len(names)
        if not first and clock.window_s(some[:1], clock.left_s - clock.setup_s - _GUARD_S) < LEAST_WINDOW_S:
            break
        del waiting[: len(some)]
        originals = [(ORIGINAL, again) for again in range(3)] if first else []
        found = _guard(wanted, session, size, [*originals, *((name, 0) for name in some)])
        if any(trial.status != "ok" for trial in found[: len(originals)]):
            return []
        sound += [name for name in some if _is_same(session, name)]
    return sound


def _finish(wanted: Verification, session: Timed, size: Size) -> Patch | None:
    """Measure what may be proposed side by side, then the patch of the best; what is settled stays so."""
    found = _found(wanted, session)
    # Where nothing was decided, what looked best gets a second chance.
    good = found.best_first or found.promising[:1]
    if not good or _over(session):
        return None
    maybe = _final(wanted, session, [*good, *(name for name in found.helpful if name not in good)])
    new = [name for name in maybe if name not in found.semantics]
    if new:
        _guard(wanted, session, size, [(name, 0) for name in new])
    finalists = [name for name in maybe if _is_same(session, name)][:_FINAL]
    if not finalists or _over(session):
        return None
    if len(finalists) > 1 or not found.accepted(finalists[0]):
        arms = _fitting(wanted, session, [wanted.arm(name) for name in finalists])
        left_s = Clock(wanted, session).left_s
        _compare(wanted, session, TOGETHER, arms, planned_s=_ALONE_SHARE * left_s, most_s=left_s)
    best = _found(wanted, session).chosen
    return None if best is None else _patched(wanted, session, size, best)


def _patched(wanted: Verification, session: Timed, size: Size, best: str) -> Patch | None:
    """Run the patch of the best fix: its data, then its speed beside the original's."""
    patch = wanted.patch(best)
    if patch is None or not patch.files or patch.unpatched or _over(session) or Clock(wanted, session).left_s <= 0:
        return patch
    files = copies(wanted.directory, patch)
    _guard(wanted, session, size, [(PATCHED, 0)], patched=files)
    patch = patch.model_copy(update={"ran": True})
    if not _is_same(session, PATCHED) or _over(session):
        return patch
    arms = [arm_of(wanted.job, PATCHED, patched=files)]
    if not _found(wanted, session).stays(best, 1):
        arms.insert(0, wanted.arm(best))  # accepted among fewer, it might not be beside one more, its patch
    left_s = Clock(wanted, session).left_s
    _compare(
        wanted,
        session,
        TOGETHER,
        _fitting(wanted, session, arms, best),
        planned_s=left_s,
        most_s=left_s,
        patched_as=best,
    )
    if _found(wanted, session).chosen is None and not _over(session):
        # Its own rounds may be disturbed ones beside those that were quieter since: they are taken once more.
        left_s = Clock(wanted, session).left_s
        _compare(wanted, session, TOGETHER, [wanted.arm(best)], planned_s=left_s, most_s=left_s)
    last = _found(wanted, session).chosen
    if last is None or last == best:
        return patch if last else None
    why_not = f"what was run is the patch of {best}, which was not the best any more beside it"
    other = wanted.patch(last)
    return other and other.model_copy(update={"why_not": why_not})


def _final(wanted: Verification, session: Timed, good: Sequence[str]) -> list[str]:
    """What might be proposed in the end, the most promising first; the second best only in place of what falls."""
    best, every = good[0], combine(good)
    finalists = [best]
    steps = _steps(session, best)
    buffer = longer_buffer(wanted.evidence, FixSet.parse(best), steps) if steps is not None else None
    if buffer is not None:
        finalists.insert(0, combine([best, str(buffer)]))
    if every != best:
        both, alone = (predict_speedup(wanted.evidence, FixSet.parse(name)) for name in (every, best))
        # Where the best one is expected to leave nothing to the others, they come after it.
        no_more = both is not None and alone is not None and both < WORTH * alone
        finalists.insert(len(finalists) if no_more else 0, every)
        finalists.extend(good[1:2])
    return list(dict.fromkeys(finalists))


def _steps(session: Timed, arm: str) -> Steps | None:
    """The longest run of steps of an arm in the first group."""
    own = (t for t in session.trials if (t.spec.rung, t.spec.group, t.spec.arm, t.status) == ("arm", ALONE, arm, "ok"))
    runs = [steady(rows)[0] for trial in own if (rows := measured(trial, "as_is")) is not None]
    return max(runs, key=len, default=None)


def _fitting(
    wanted: Verification, session: Timed, arms: Sequence[PlannedArm], patched_as: str = ""
) -> Sequence[PlannedArm]:
    """The arms of the last group, without the last of them as long as blocks enough do not fit into the time."""
    clock = Clock(wanted, session)
    for count in range(len(arms), 1, -1):
        names = [ORIGINAL, *timed_as(arms[:count], patched_as)]  # the original may be measured twice
        if clock.window_s(names, clock.left_s) >= LEAST_WINDOW_S:
            return arms[:count]
    return arms[:1]


def _affordable(wanted: Verification, session: Timed, size: Size, names: Sequence[str]) -> int:
    """How many of the best are measured alone: as many as fit into their share of the time, or 1."""
    clock = Clock(wanted, session)
    at_once = _at_once(wanted, session)
    each_s = clock.setup_s + _GUARD_S + size.pass_s
    for count in range(min(_MOST, len(names)), 1, -1):
        guards_s = math.ceil((3 + count) / at_once) * each_s
        if clock.window_s(names[:count], _ALONE_SHARE * (clock.left_s - guards_s)) >= LEAST_WINDOW_S:
            return count
    return 1


def _at_once(wanted: Verification, session: Timed) -> int:
    """Trials of the guard that may run side by side: what a target waits others may compute."""
    opens, steps = session.side_by_side, wanted.evidence.steps
    if isinstance(opens, str):
        return 1
    held = max((max(one.readings.host.rss_bytes, default=0) for one in session.trials if one.readings.host), default=0)
    fit = opens.available_bytes / (_ROOM * held) if held else 1.0
    share = float(steps.cpu_s.sum() / steps.wall_s.sum()) if steps is not None and len(steps) else 1.0
    return max(int(min(opens.processors / max(_ROOM * share, 0.01), fit, max(_AT_ONCE, opens.processors))), 1)


def _is_same(session: Timed, arm: str) -> bool:
    data = data_of(session.trials, arm)
    return data is not None and data.equivalent is True


def _guard(
    wanted: Verification,
    session: Timed,
    size: Size,
    arms: Sequence[tuple[str, int]],
    *,
    patched: Mapping[str, str] | None = None,
) -> list[TrialRecord]:
    """Take the fingerprints of arms, each with the number of its run."""
    block, first = session.trials[-1].spec.block if session.trials else 0, len(session.trials)
    specs = [
        guard_trial(
            wanted.job,
            number,
            size,
            block=block,
            arm=arm,
            fix=None if arm == ORIGINAL or patched else arm,
            patched=patched or wanted.step_files(arm),
            # Of its own: what a shortened pass keeps there must not be read by a trial of the whole.
            cache_dir=None if arm == ORIGINAL or patched else f"{wanted.cache_dir}/{number:03d}",
            again=again,
        )
        for number, (arm, again) in enumerate(arms, start=first)
    ]
    trial_s = max(_TRIAL_S, 3 * specs[0].window_s + 2 * Clock(wanted, session).setup_s)
    return session.run_all(specs, Limits(trial_s, max(trial_s / 2, 15.0)), most=_at_once(wanted, session))


def _compare(
    wanted: Verification,
    session: Timed,
    group: str,
    arms: Sequence[PlannedArm],
    *,
    planned_s: float,
    most_s: float,
    patched_as: str = "",
) -> None:
    """Measure arms beside the original, round after round, each until it is decided or cannot be in the time.

    The first processes are of all of them, so that what may be proposed is compared side by side. As many as decide
    anything at all may take ``most_s``; further ones are for what is not decided, within ``planned_s``.
    """
    clock = Clock(wanted, session)
    until_s = session.spent_s + planned_s
    names = [ORIGINAL, *timed_as(arms, patched_as)]
    # What is compared side by side reads the same data.
    source_limit = clock.source_limit if any(clock.is_of_part(name) for name in names) else None
    window_s = max(clock.window_s(names, planned_s), LEAST_WINDOW_S)
    block_s = session.import_s + (1 + len(names)) * window_s + clock.around_s([ORIGINAL, *names])
    if block_s > most_s and any(clock.filling_s(name) for name in names):
        return  # with caches to be filled not even one block would be over in time
    first_s = session.spent_s + min(max(planned_s, LEAST_BLOCKS * block_s), most_s)
    for processes in range(_MOST_PROCESSES):
        due_s = first_s if processes < LEAST_BLOCKS else until_s
        found = _found(wanted, session)
        left = [arm for arm in arms if not (found.settled(arm.id) if processes else found.ended(arm.id))]
        if processes >= _TRIED:
            left = [arm for arm in left if (found.more_s(arm.id) or 0.0) <= _HOPE * (due_s - session.spent_s)]
        if not left or _over(session):
            return
        ran = compare_arms(
            _planned(
                wanted,
                session,
                group,
                left,
                pass_s=max(clock.pass_s(name) for name in timed_as(left, patched_as)),
                source_limit=source_limit,
                twice=found.noise_processes < LEAST_BLOCKS,
            ),
            session,
            first_block=max(trial.spec.block for trial in session.trials) + 1,
            rounds=rounds_of_a_process(found.noise_scale),
            budget_s=due_s - session.spent_s,
            window_s=window_s,
            parity=False,
            seed=wanted.job.seed,
            enough=lambda trials: verified(trials, wanted.accelerator).decided,
        )
        if not ran:
            return


def _planned(
    wanted: Verification,
    session: Timed,
    group: str,
    arms: Sequence[PlannedArm],
    *,
    pass_s: float,
    source_limit: int | None,
    twice: bool,
) -> Comparison:
    first = session.trials[0]
    return comparison(
        wanted.job,
        wanted.accelerator,
        group,
        arms,
        window_s=WINDOW_S,
        cache_dir=wanted.cache_dir,
        trial_s=max(_TRIAL_S, 3 * first.duration_s),
        fill_s=_FILLING * pass_s + _SLACK_S if pass_s else None,
        twice=twice,
        source_limit=source_limit,
    )


def copies(directory: Path, patch: Patch, folder_name: str = _PATCHED_DIR) -> dict[str, str]:
    """The patched text of each file beside the run's other files: the user's own are never touched."""
    folder = directory / folder_name
    folder.mkdir(exist_ok=True)
    found = {}
    for number, (file, text) in enumerate(sorted(patch.files.items())):
        copy = folder / f"{number}-{Path(file).name}"
        atomic_write(copy, text.encode())  # bytes: line ends stay what they are
        found[file] = str(copy)
    return found


def _found(wanted: Verification, session: Timed) -> Verified:
    return verified(session.trials, wanted.accelerator)


def _over(session: Timed) -> bool:
    return any(trial.status == "interrupted" for trial in session.trials)
