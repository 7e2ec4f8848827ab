"""Arms measured against one another: first whether they feed the same data, then round after round within a budget.

What the trials come to is told by :func:`xttsbench.comparison.arms.compare`, from the trials alone.

Arms that fit into memory together live side by side and take turns (:mod:`xttsbench.workflows.measure.turns`). Where
they do not, each round is a complete block of fresh processes, one after another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final, Protocol

from xttsbench.analysis.disturbance import node_of
from xttsbench.comparison.runs import ParityFound, parity_found, reading
from xttsbench.execution.limits import Limits
from xttsbench.planning import Part, arm_trial, block_order, expected_s, parity_arms, parity_trial, window_within
from xttsbench.records.plan import Comparison
from xttsbench.records.trial import TrialRecord, TrialSpec, interrupted
from xttsbench.workflows.measure.session import Session
from xttsbench.workflows.measure.turns import AfterRound, Enough, Group, Rounds, goes_on

_OPEN_S: Final = 1.0  # of a process that takes turns, besides building the target: fork and warm-up, at the least


class Trials(Protocol):
    """Runner of trials: a :class:`~xttsbench.workflows.measure.session.Session`, or a stand-in of the tests."""

    import_s: float
    """Seconds that the last helper took to start."""
    fills_anew: bool
    """Whether each trial fills the caches in memory that it measures; in one process they stay full."""
    trials: list[TrialRecord]
    earlier: dict[str, TrialRecord]  # by id, of a run that goes on: trials that are not run again

    @property
    def spent_s(self) -> float:
        """Seconds since the run began."""

    @property
    def block(self) -> int | None:
        """The block whose trials need no new helper."""

    @property
    def side_by_side(self) -> Session | str:
        """Session that opens processes which live side by side; or the reason for none."""

    def run(self, spec: TrialSpec, limits: Limits, label: str | None = None, *, note: str | None = None) -> TrialRecord:
        """Run one trial, keep it and write it down, with a note where one is given."""

    def run_all(self, specs: Sequence[TrialSpec], limits: Limits, *, most: int = 1) -> list[TrialRecord]:
        """Run trials, ``most`` of them side by side."""


def compare_arms(
    comparison: Comparison,
    session: Trials,
    *,
    first_block: int = 0,
    rounds: int | None = None,
    budget_s: float,
    window_s: float | None = None,
    parity: bool = True,
    seed: int = 0,
    enough: Enough | None = None,
    after_round: AfterRound | None = None,
    first: int | None = None,
) -> list[TrialRecord]:
    """Run the trials of a comparison; they are in ``session.trials`` and in the journal too.

    The data are compared first, and a configuration that feeds others than the baseline is not measured. A
    configuration whose trial does not end well is not run again; where that is the baseline, its group ends. A round is
    begun only where it is expected to end within the budget, from what the one before took.

    Args:
        comparison: the configurations, the accelerators, and the limits of a trial.
        session: runs the trials.
        first_block: number of the first processes; those of trials that the session has had belong to others.
        rounds: how many, at most; as many as the comparison has blocks without it.
        budget_s: seconds from now for everything.
        window_s: seconds that a turn, or a trial by itself, may measure; without it, what fits into the budget.
        parity: compare the data first; without it they have been compared.
        seed: of the order within the rounds, and of the trials.
        enough: which candidates need no more rounds; without it those that are clearly faster, clearly slower, or no
            different, each accelerator by itself.
        after_round: called after each round.
        first: number of the first trial of a configuration; as many as the session has had without it.

    Returns:
        The new trials. One with the status ``interrupted`` is the last.
    """
    began, before, earlier = session.spent_s, len(session.trials), set(session.earlier)
    rounds = comparison.blocks if rounds is None else rounds
    limits = Limits(comparison.trial_s, comparison.stall_s)
    data = _compare_data(comparison, session, first_block, limits, seed) if parity else ParityFound()
    if interrupted(session.trials[before:]) or data.failed is not None or not rounds:
        return session.trials[before:]
    wanted = Rounds(
        comparison,
        refused=frozenset(data.differences),
        block=first_block,
        most=rounds,
        until_s=began + budget_s,
        setup_s=max((trial.setup_s or 0.0 for trial in session.trials[before:]), default=0.0),
        window_s=window_s,
        seed=seed,
        enough=enough,
        after_round=after_round,
        ahead=0 if first is None else first - len(session.trials),
    )
    why_alone = _in_turns(wanted, session)
    if why_alone is not None and not interrupted(session.trials[before:]):
        _in_blocks(wanted, session, why_alone, earlier)
    return session.trials[before:]


def compare_parts(parts: Sequence[Part], session: Trials, *, budget_s: float, **how: Any) -> list[TrialRecord]:
    """Run the parts of a comparison here, one after another; for the rest see :func:`compare_arms`."""
    until_s, before = session.spent_s + budget_s, len(session.trials)
    for left, part in zip(range(len(parts), 0, -1), parts, strict=True):
        how |= {"first_block": part.block, "rounds": part.rounds, "first": part.first}
        if interrupted(compare_arms(part.comparison, session, budget_s=(until_s - session.spent_s) / left, **how)):
            break
    return session.trials[before:]


def _in_turns(wanted: Rounds, session: Trials) -> str | None:
    """Measure the configurations in turns; why some cannot, or ``None`` where all have been measured."""
    side_by_side, arms = session.side_by_side, wanted.arms
    if not goes_on(wanted.comparison.arms, wanted.refused):
        return None
    if all(arm.role != "candidate" for arm in arms):
        return ""  # nothing takes turns with the baseline: what another run is compared with are fresh processes
    if isinstance(side_by_side, str):
        return side_by_side
    # Where the device is emulated there is often no step to trace, so that its configurations are told of sooner.
    devices = sorted(wanted.comparison.accelerators, key=lambda accelerator: not accelerator.step_times_ms)
    before = len(session.trials)
    for number, accelerator in enumerate(devices):
        if session.spent_s + len(arms) * (wanted.setup_s + _OPEN_S) > wanted.until_s:
            return None
        why = Group(wanted, accelerator, 1 / (len(devices) - number), side_by_side).measure()
        if why is not None or interrupted(session.trials[before:]):
            return why
    return None


def _in_blocks(wanted: Rounds, session: Trials, why: str, earlier: set[str]) -> None:
    """Measure the configurations in complete blocks of fresh processes, one round each.

    What an ``earlier`` session ran takes no time of this one, and is counted as if it had.
    """
    comparison, limits = wanted.comparison, Limits(wanted.comparison.trial_s, wanted.comparison.stall_s)
    before, refused = len(session.trials), wanted.refused
    ended: dict[str, set[str]] = {accelerator.label: set() for accelerator in comparison.accelerators}
    warm = session.block == wanted.block
    window_s = (
        wanted.window_s
        or _window_before(comparison, session)
        or window_within(
            comparison, wanted.until_s - session.spent_s, blocks=wanted.most, setup_s=wanted.setup_s, warm=warm
        )
    )
    block_s = expected_s(comparison, window_s, setup_s=wanted.setup_s, warm=warm)
    done: dict[str, Collection[str]] = {}
    note = f"measured in fresh processes, one after another: {why}" if why else None
    for number in range(wanted.most):
        begun, block = session.spent_s, wanted.block + number
        slots = [
            slot
            for slot in block_order(comparison, block, wanted.seed)
            if goes_on(comparison.arms, ended[slot.accelerator.label] | refused)
            and slot.arm.id not in {*ended[slot.accelerator.label], *refused, *done.get(slot.accelerator.label, ())}
        ]
        if not slots or begun + block_s > wanted.until_s:
            return
        trial_of = partial(arm_trial, comparison, block=block, window_s=window_s, seed=wanted.seed)
        numbered = enumerate(slots, start=len(session.trials) + wanted.ahead)
        earlier -= _measured_anew([trial_of(slot, number=number).trial_id for number, slot in numbered], session)
        for slot in slots:
            gone = ended[slot.accelerator.label]
            if not goes_on(comparison.arms, gone | refused):
                continue
            ahead = len(session.trials) + wanted.ahead
            spec = trial_of(slot, number=ahead)
            label = f"round {number + 1} of {wanted.most}: {slot.arm.id}, {slot.accelerator.label}"
            record = session.run(spec, limits, label, note=note)
            if record.status == "interrupted":
                return
            if record.status != "ok":
                gone.add(slot.arm.id)
        own = [trial for trial in session.trials[before:] if trial.spec.block == block]
        had_s = sum(trial.duration_s for trial in own if trial.spec.trial_id in earlier)
        block_s = session.spent_s - begun + had_s
        if wanted.after_round is not None:
            wanted.after_round(number + 1, wanted.most, session.trials)
        done = {one.label: wanted.done(one, session.trials) for one in comparison.accelerators}
        left = [
            slot for slot in slots if slot.arm.role == "candidate" and slot.arm.id not in done[slot.accelerator.label]
        ]
        if not left and any(arm.role == "candidate" for arm in comparison.arms):
            return


def _measured_anew(block: Sequence[str], session: Trials) -> set[str]:
    """Trials of a block that are run again, all of them where a machine of a cluster has measured a part of it."""
    had = [session.earlier.get(name) for name in block]
    nodes = {node_of(one) for one in had if one is not None}
    if nodes <= {None} or (None not in had and len(nodes) == 1):
        return set()
    for name in block:
        session.earlier.pop(name, None)
    return {*block}


def _window_before(comparison: Comparison, session: Trials) -> float | None:
    """The window of this comparison's trials in the journal of a run that goes on."""
    own = (trial.spec for trial in session.earlier.values() if trial.spec.group == comparison.name)
    return next((spec.window_s for spec in own if spec.kind == "arm"), None)


def _compare_data(comparison: Comparison, session: Trials, block: int, limits: Limits, seed: int) -> ParityFound:
    """Run the trials of parity: one, and another for the rest after each configuration that ends its process."""
    pending = list(parity_arms(comparison)[0])
    before = len(session.trials)
    while pending:
        spec = parity_trial(comparison, pending, number=len(session.trials), block=block, seed=seed)
        # One trial builds all of them, and XLA compiles in each whose step it is.
        longer = Limits(limits.time_s * (1 + len(pending)), limits.stall_s)
        record = session.run(spec, longer, f"comparing the data of {len(pending) + 1} configurations")
        last = reading(record)
        if last is None or record.status == "interrupted":
            break
        names = [arm.id for arm in pending]
        pending = pending[names.index(last) + 1 :]
    return parity_found(comparison, session.trials[before:])
