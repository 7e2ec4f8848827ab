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
from typing import Final

from xttsbench.analysis.steps import Steps, measured, steady
from xttsbench.comparison.sweep import rounds_of_a_process
from xttsbench.execution.limits import Limits
from xttsbench.files import atomic_write
from xttsbench.fixes import rounds
from xttsbench.fixes.cache import over_a_training
from xttsbench.fixes.dataset import DATASET
from xttsbench.fixes.predictions import longer_buffer, predict_speedup
from xttsbench.fixes.service import SERVICE, START
from xttsbench.fixes.spec import WORTH
from xttsbench.fixes.verified import verified
from xttsbench.records.fix import FixSet, Patch
from xttsbench.records.plan import PlannedVariant
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.optimize.verification import LEAST_WINDOW_S, WINDOW_S, Verification, timed_as

SOURCES: Final = "patched"
"""Folder in a run's directory for patched copies of the user's files."""
_MOST: Final = 6  # fixes that are measured alone
_FINAL: Final = 2  # fixes in the last group: the best one alone, and all together or it with a longer buffer
_ALONE_SHARE: Final = 0.6  # of the time that is left, for fixes alone; the rest is for what is proposed in the end
_MOST_PROCESSES: Final = 12  # of a group: by then a fix worth 1.1 is decided on a machine whose rounds differ by 5 %
_TRIED: Final = 4
"""Processes after which what a fix is expected to need is believed; most that give nothing are known by then."""
_HOPE: Final = 2.0  # times the seconds that are left: where it is expected to need more, it is left undecided
_GUARD_S: Final = 4.0  # what one trial of the guard is expected to take besides its passes and building the target
_AT_ONCE: Final = 6  # trials of the guard that run side by side at most, of a target that waits
_ROOM: Final = 1.3
"""Times the processor time and the memory of the target as it is that one of them is expected to take."""
_FILLING: Final = 3.0
"""First passes, as they are expected, that filling a cache may take: beside others some take twice as long."""
_SLACK_S: Final = 1.0  # more of them, for one that is very short
_TRIAL_S: Final = 20.0  # least time limit of a trial: a fix that hangs costs this much once


def verify(work: Verification) -> Patch | None:
    """Run the trials of a verification, as far as the time allows; they are in its session and in the journal.

    A fix whose trial raises, hangs or dies costs that trial, and is rejected.

    Returns:
        The patch of what is proposed in the end, where there is one.
    """
    worth = [one.name for one in work.proposed if one.worth and work.filling(one.name).ends_within(work.left_s)]
    if not worth or work.left_s <= 0:
        return None
    # Filling may take most of what is left once the data are compared: such caches come after what takes none.
    worth.sort(key=lambda name: not work.filling(name).ends_within(work.left_s / 2))
    waiting = worth
    while waiting:
        # Where the runs of the original show that its sources cannot be cut, a cache is filled with all they yield.
        sound = [name for name in _sound(work, waiting) if work.filling(name).ends_within(work.left_s)]
        if not sound or work.over:
            break
        left_s = work.left_s
        for of_part in (False, True):
            alone = [work.arm(name) for name in sound if work.filling(name).of_part is of_part]
            _compare(work, rounds.ALONE, alone, planned_s=_ALONE_SHARE * left_s * len(alone) / len(sound))
        waiting = _worth_more(work, worth)
    if work.over or not any(trial.spec.group == rounds.ALONE for trial in work.trials):
        return None
    return _finish(work)


def _worth_more(work: Verification, worth: Sequence[str]) -> list[str]:
    """Fixes that time was not planned for, once it is left: what is expected to give more than the best one so far.

    None as long as one that was measured is undecided, which the time may decide.
    """
    found = work.found
    if not all(found.settled(name) for name in found.measured):
        return []
    best = max((found.training_speedup(name) for name in found.best_first), default=1.0)
    expected = {
        one.name: over_a_training(best, speedup) if one.fills_long else speedup
        for one in work.proposed
        if (speedup := one.predicted_speedup) is not None
    }
    untried = [name for name in worth if name not in found.semantics][: max(_MOST - len(found.measured), 0)]
    return [name for name in untried if (speedup := expected.get(name)) is None or speedup > WORTH * best]


def _sound(work: Verification, names: Sequence[str]) -> list[str]:
    """The best fixes that leave the data alone, as many as may be measured; none where the original cannot be read.

    In place of one that falls the next is tried, as long as there is time to measure it.
    """
    waiting, most = list(names), _affordable(work, names)
    sound: list[str] = []
    while waiting and len(sound) < most and not work.over:
        some = waiting[: most - len(sound)]
        if work.guarded and not work.fits(some[:1], work.left_s - work.setup_s - _GUARD_S):
            break
        del waiting[: len(some)]
        originals = [] if work.guarded else [(rounds.ORIGINAL, again) for again in range(3)]
        found = _guard(work, [*originals, *((name, 0) for name in some)])
        if any(trial.status != "ok" for trial in found[: len(originals)]):
            return []
        sound += [name for name in some if work.same_data(name)]
    return sound


def _finish(work: Verification) -> Patch | None:
    """Measure what may be proposed side by side, then the patch of the best; what is settled stays so."""
    found = work.found
    good = found.contenders
    if not good or work.over:
        return None
    maybe = _final(work, [*good, *(name for name in found.helpful if name not in good)])
    if new := [(name, 0) for name in maybe if name not in found.semantics]:
        _guard(work, new)
    finalists = [name for name in maybe if work.same_data(name)][:_FINAL]
    if not finalists or work.over:
        return None
    if len(finalists) > 1 or not found.accepted(finalists[0]):
        arms = _fitting(work, [work.arm(name) for name in finalists])
        _compare(work, rounds.TOGETHER, arms, planned_s=_ALONE_SHARE * work.left_s)
    best = work.found.chosen
    return None if best is None else _patched(work, best)


def _patched(work: Verification, best: str) -> Patch | None:
    """Run the patch of the best fix: its data, then its speed beside the original's."""
    patch = work.patch(best)
    if patch is None or not patch.files or patch.unpatched or work.over or work.left_s <= 0:
        return patch
    if SERVICE.name in FixSet.parse(best):  # what it reads is cut and compared before it is shared out, in one process
        return patch.model_copy(update={"why_not": START})
    if DATASET.name in FixSet.parse(best) and {*patch.files} == {*work.step_files(best)}:
        return patch.model_copy(update={"ran": True})  # what its trials ran is the patch
    files = copies(work.directory, patch)
    _guard(work, [(rounds.PATCHED, 0)], patched=files)
    patch = patch.model_copy(update={"ran": True})
    if not work.same_data(rounds.PATCHED) or work.over:
        return patch
    _compare(
        work,
        rounds.TOGETHER,
        [rounds.arm_of(work.job, rounds.PATCHED, patched=files)],
        planned_s=work.left_s,
        patched_as=best,
    )
    if not work.found.accepted(best) and not work.over:
        # What one process made clear may not be so with that of its patch, which counts as well: another one decides.
        _compare(work, rounds.TOGETHER, [work.arm(best)], planned_s=work.left_s)
    last = work.found.chosen
    if last is None or last == best:
        return patch if last else None
    why_not = f"what was run is the patch of {best}, which was not the best any more beside it"
    other = work.patch(last)
    return other and other.model_copy(update={"why_not": why_not})


def _final(work: Verification, good: Sequence[str]) -> list[str]:
    """Candidates for the proposal, the most promising first; the second best only in place of one that fails."""
    best, every = good[0], rounds.combine(good)
    finalists = [best]
    steps = _steps(work.trials, best)
    buffer = longer_buffer(work.evidence, FixSet.parse(best), steps) if steps is not None else None
    if buffer is not None:
        finalists.insert(0, rounds.combine([best, str(buffer)]))
    if every != best:
        both, alone = (predict_speedup(work.evidence, FixSet.parse(name)) for name in (every, best))
        # Where the best one is expected to leave nothing to the others, they come after it.
        no_more = both is not None and alone is not None and both < WORTH * alone
        finalists.insert(len(finalists) if no_more else 0, every)
        finalists.extend(good[1:2])
    return list(dict.fromkeys(finalists))


def _steps(trials: Sequence[TrialRecord], arm: str) -> Steps | None:
    """The longest run of steps of a configuration in the first group."""
    own = (t for t in trials if (t.spec.kind, t.spec.group, t.spec.arm, t.status) == ("arm", rounds.ALONE, arm, "ok"))
    runs = [steady(rows)[0] for trial in own if (rows := measured(trial, "as_is")) is not None]
    return max(runs, key=len, default=None)


def _fitting(work: Verification, arms: Sequence[PlannedVariant]) -> Sequence[PlannedVariant]:
    """The configurations of the last group, without the last ones while too few blocks fit into the time."""
    for count in range(len(arms), 1, -1):
        if work.fits([rounds.ORIGINAL, *timed_as(arms[:count])], work.left_s):  # it may be measured twice
            return arms[:count]
    return arms[:1]


def _affordable(work: Verification, names: Sequence[str]) -> int:
    """Number of the best fixes that are measured alone, by their share of the time; at least 1 at first."""
    at_once, each_s = _at_once(work), work.setup_s + _GUARD_S + rounds.guard_size(work.evidence).pass_s
    originals = 0 if work.guarded else 3
    for count in range(min(_MOST, len(names)), 0, -1):
        guards_s = math.ceil((originals + count) / at_once) * each_s
        if work.fits(names[:count], _ALONE_SHARE * (work.left_s - guards_s)):
            return count
    return 1 if originals else 0


def _at_once(work: Verification) -> int:
    """Trials of the guard that may run side by side: what a target waits others may compute."""
    opens, steps = work.session.side_by_side, work.evidence.steps
    if isinstance(opens, str):
        return 1
    held = max((max(one.readings.host.rss_bytes, default=0) for one in work.trials if one.readings.host), default=0)
    fit = opens.available_bytes / (_ROOM * held) if held else 1.0
    share = float(steps.cpu_s.sum() / steps.wall_s.sum()) if steps is not None and len(steps) else 1.0
    return max(int(min(opens.processors / max(_ROOM * share, 0.01), fit, max(_AT_ONCE, opens.processors))), 1)


def _guard(
    work: Verification, arms: Sequence[tuple[str, int]], *, patched: Mapping[str, str] | None = None
) -> list[TrialRecord]:
    """Take the fingerprints of configurations, each with the number of its run."""
    session, size = work.session, rounds.guard_size(work.evidence)
    specs = [
        rounds.guard_trial(
            work.job,
            number,
            size,
            block=session.trials[-1].spec.block if session.trials else 0,
            arm=arm,
            fix=None if arm == rounds.ORIGINAL or patched else arm,
            patched=patched or work.step_files(arm),
            again=again,
        )
        for number, (arm, again) in enumerate(arms, start=len(session.trials))
    ]
    trial_s = max(_TRIAL_S, 3 * specs[0].window_s + 2 * work.setup_s)
    return session.run_all(specs, Limits(trial_s, max(trial_s / 2, 15.0)), most=_at_once(work))


def _compare(
    work: Verification, group: str, arms: Sequence[PlannedVariant], *, planned_s: float, patched_as: str = ""
) -> None:
    """Measure configurations beside the original, round after round, each until it is decided or cannot be in the time.

    The first processes are of all of them, so that what may be proposed is compared side by side. As many as decide
    anything at all may take all that is left; further ones are for what is not decided, within ``planned_s``.
    """
    session, most_s = work.session, work.left_s
    until_s = session.spent_s + planned_s
    names = [rounds.ORIGINAL, *timed_as(arms, patched_as)]
    fillings = [work.filling(name) for name in names]
    # What is compared side by side reads the same data.
    source_limit = work.source_limit if any(one.of_part for one in fillings) else None
    window_s = max(work.window_s(names, planned_s), LEAST_WINDOW_S)
    block_s = session.import_s + (1 + len(names)) * window_s + work.around_s([rounds.ORIGINAL, *names])
    if block_s > most_s and any(one.trial_s for one in fillings):
        return  # with caches to be filled not even one block would be over in time
    first_s = session.spent_s + min(max(planned_s, rounds.LEAST_BLOCKS * block_s), most_s)
    for processes in range(_MOST_PROCESSES):
        due_s = first_s if processes < rounds.LEAST_BLOCKS else until_s
        found = work.found
        left = [arm for arm in arms if not (found.settled(arm.id) if processes else found.ended(arm.id))]
        if processes >= _TRIED:
            left = [arm for arm in left if (found.more_s(arm.id) or 0.0) <= _HOPE * (due_s - session.spent_s)]
        if not left or work.over:
            return
        pass_s = max(work.filling(name).pass_s for name in timed_as(left, patched_as))
        ran = compare_arms(
            rounds.comparison(
                work.job,
                work.accelerator,
                group,
                left,
                window_s=WINDOW_S,
                trial_s=max(_TRIAL_S, 3 * session.trials[0].duration_s),
                fill_s=_FILLING * pass_s + _SLACK_S if pass_s else None,
                twice=found.noise_processes < rounds.LEAST_BLOCKS,
                source_limit=source_limit,
            ),
            session,
            first_block=max(trial.spec.block for trial in session.trials) + 1,
            rounds=rounds_of_a_process(found.round_scale),
            budget_s=due_s - session.spent_s,
            window_s=window_s,
            parity=False,
            seed=work.job.seed,
            enough=lambda trials: verified(trials, work.accelerator).decided,
        )
        if not ran:
            return


def copies(directory: Path, patch: Patch, part: str = "whole") -> dict[str, str]:
    """The patched text of each file beside the run's other files: the user's own are never touched."""
    folder = directory / SOURCES / part
    folder.mkdir(exist_ok=True, parents=True)
    found = {}
    for number, (file, text) in enumerate(sorted(patch.files.items())):
        copy = folder / f"{number}-{Path(file).name}"
        atomic_write(copy, text.encode())  # bytes: line ends stay what they are
        found[file] = str(copy)
    return found
