"""Fixes verified: the data first, then each alone and the good ones together, beside the original, until decided.

What they come to is told by :func:`xttsbench.fixes.verified.verified`, from the trials alone and after each round. A
fix that is decided, or behind the best one, is not measured further, and what was measured counts, whichever group it
was measured in. A fix that is not clearly faster needs two processes, and a cache in memory is filled anew in each of
them. Where nothing is timed trials run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.comparison.sweep import rounds_of_a_process
from xttsbench.execution.child import Limits
from xttsbench.files import atomic_write
from xttsbench.fixes.cache import over_a_training
from xttsbench.fixes.proposals import longer_buffer, predict_speedup
from xttsbench.fixes.rounds import (
    ALONE,
    LEAST_BLOCKS,
    ORIGINAL,
    PATCHED,
    TOGETHER,
    Size,
    arm_of,
    combine,
    comparison,
    guard_size,
    guard_trial,
)
from xttsbench.fixes.same_data import data_of
from xttsbench.fixes.spec import WORTH
from xttsbench.fixes.verified import Verified, verified
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.plan import Comparison, PlannedVariant
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.optimize.verification import LEAST_WINDOW_S, WINDOW_S, Clock, Timed, Verification, timed_as

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
    # Filling may take most of what is left once the data are compared: such caches come after what takes none.
    worth.sort(key=lambda name: not clock.is_filled_in_time(name, of_s=clock.left_s / 2))
    size = guard_size(wanted.evidence)
    waiting = worth
    while waiting:
        # Where the runs of the original show that its sources cannot be cut, a cache is filled with all they yield.
        sound = [name for name in _sound(wanted, session, size, waiting) if clock.is_filled_in_time(name)]
        if not sound or _over(session):
            break
        left_s = clock.left_s
        for of_part in (False, True):
            alone = [wanted.arm(name) for name in sound if clock.is_of_part(name) is of_part]
            # Planned for a share of the time, but until there are enough blocks to decide anything it gets what it
            # takes.
            planned_s = _ALONE_SHARE * left_s * len(alone) / len(sound)
            _compare(wanted, session, ALONE, alone, planned_s=planned_s, most_s=clock.left_s)
        waiting = _worth_more(wanted, session, worth)
    if _over(session) or not any(trial.spec.group == ALONE for trial in session.trials):
        return None
    return _finish(wanted, session, size)


def _worth_more(wanted: Verification, session: Timed, worth: Sequence[str]) -> list[str]:
    """Fixes that time was not planned for, once it is left: what is expected to give more than the best one so far.

    None as long as one that was measured is undecided, which the time may decide.
    """
    found = _found(wanted, session)
    if not all(found.settled(name) for name in found.measured):
        return []
    best = max((found.training_speedup(name) for name in found.best_first), default=1.0)
    expected = {
        one.name: over_a_training(best, speedup) if one.fills_long else speedup
        for one in wanted.proposed
        if (speedup := one.predicted_speedup) is not None
    }
    untried = [name for name in worth if name not in found.semantics][: max(_MOST - len(found.measured), 0)]
    return [name for name in untried if (speedup := expected.get(name)) is None or speedup > WORTH * best]


def _sound(wanted: Verification, session: Timed, size: Size, names: Sequence[str]) -> list[str]:
    """The best fixes that leave the data alone, as many as may be measured; none where the original cannot be read.

    In place of one that falls the next is tried, as long as there is time to measure it.
    """
    clock, waiting = Clock(wanted, session), list(names)
    most = _affordable(wanted, session, size, names)
    sound: list[str] = []
    while waiting and len(sound) < most and not _over(session):
        some = waiting[: most - len(sound)]
        first = not any(trial.spec.kind == "elements" for trial in session.trials)
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
    good = found.contenders
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
    """The longest run of steps of a configuration in the first group."""
    own = (t for t in session.trials if (t.spec.kind, t.spec.group, t.spec.arm, t.status) == ("arm", ALONE, arm, "ok"))
    runs = [steady(rows)[0] for trial in own if (rows := measured(trial, "as_is")) is not None]
    return max(runs, key=len, default=None)


def _fitting(
    wanted: Verification, session: Timed, arms: Sequence[PlannedVariant], patched_as: str = ""
) -> Sequence[PlannedVariant]:
    """The configurations of the last group, without the last ones while too few blocks fit into the time."""
    clock = Clock(wanted, session)
    for count in range(len(arms), 1, -1):
        names = [ORIGINAL, *timed_as(arms[:count], patched_as)]  # the original may be measured twice
        if clock.window_s(names, clock.left_s) >= LEAST_WINDOW_S:
            return arms[:count]
    return arms[:1]


def _affordable(wanted: Verification, session: Timed, size: Size, names: Sequence[str]) -> int:
    """How many of the best are measured alone: as many as fit into their share of the time; of the first ones, one."""
    clock = Clock(wanted, session)
    at_once = _at_once(wanted, session)
    each_s = clock.setup_s + _GUARD_S + size.pass_s
    originals = 0 if any(trial.spec.kind == "elements" for trial in session.trials) else 3
    for count in range(min(_MOST, len(names)), 0, -1):
        guards_s = math.ceil((originals + count) / at_once) * each_s
        if clock.window_s(names[:count], _ALONE_SHARE * (clock.left_s - guards_s)) >= LEAST_WINDOW_S:
            return count
    return 1 if originals else 0


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
    """Take the fingerprints of configurations, each with the number of its run."""
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

    def run(some: Sequence[TrialSpec]) -> list[TrialRecord]:
        return session.run_all(some, Limits(trial_s, max(trial_s / 2, 15.0)), most=_at_once(wanted, session))

    on_disk = [one for one in specs if one.cache_dir and FixSet.parse(one.fix).keeps_files and session.fills_anew]
    if not on_disk:
        return run(specs)
    run([_of_cache(one, "begun") for one in on_disk])
    found = run([_of_cache(one, "filled") if one in on_disk else one for one in specs])
    run([_of_cache(one, "read") for one in on_disk])
    return found


def _of_cache(spec: TrialSpec, use: Literal["begun", "filled", "read"]) -> TrialSpec:
    """One of three processes in a row that share a cache on disk."""
    return spec.model_copy(update={"cache_use": use, "trial_id": f"{spec.trial_id}-{use}"})


def _compare(
    wanted: Verification,
    session: Timed,
    group: str,
    arms: Sequence[PlannedVariant],
    *,
    planned_s: float,
    most_s: float,
    patched_as: str = "",
) -> None:
    """Measure configurations beside the original, round after round, each until it is decided or cannot be in the time.

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
    arms: Sequence[PlannedVariant],
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
