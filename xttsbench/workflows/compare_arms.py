"""Arms measured against one another: first whether they feed the same data, then block after block within a budget.

``compare_arms(comparison, session, *, first_block=0, blocks=None, budget_s, seed=0) -> list[TrialRecord]`` is all that
another workflow needs: a :class:`~xttsbench.records.plan.Comparison`, made from a scenario by
:func:`~xttsbench.planning.arms.plan_comparison` or by hand, and a :class:`~xttsbench.workflows.session.Session`, which
may go on with a helper that is running already. What the trials come to is told by
:func:`xttsbench.rules.arms.compare`, from the trials alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from xttsbench.execution.limits import Limits
from xttsbench.planning.order import Slot, block_order
from xttsbench.planning.trials import arm_trial, expected_s, parity_arms, parity_trial, window_within
from xttsbench.records.plan import Comparison
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.rules.arm_runs import ParityFound, parity_found, reading


class Trials(Protocol):
    """What runs trials: a :class:`~xttsbench.workflows.session.Session`, or a stand-in of the tests."""

    trials: list[TrialRecord]
    earlier: dict[str, TrialRecord]
    """By id, of a run that goes on: trials that are not run again."""

    @property
    def spent_s(self) -> float:
        """Seconds since the run began."""

    @property
    def block(self) -> int | None:
        """The block whose trials need no new helper."""

    def run(self, spec: TrialSpec, limits: Limits, label: str | None = None) -> TrialRecord:
        """Run one trial, keep it and write it down."""


def compare_arms(
    comparison: Comparison,
    session: Trials,
    *,
    first_block: int = 0,
    blocks: int | None = None,
    budget_s: float,
    window_s: float | None = None,
    parity: bool = True,
    seed: int = 0,
    standing: Callable[[int, int], None] | None = None,
) -> list[TrialRecord]:
    """Run the trials of a comparison; they are in ``session.trials`` and in the journal too.

    The data are compared first, and an arm that feeds others than the baseline is not measured. An arm whose trial
    does not end well is not run again; where that is the baseline, its group ends. A block is begun only where it is
    expected to end within the budget, from what the one before took.

    Args:
        comparison: the arms, the accelerators, and the limits of a trial.
        session: runs the trials.
        first_block: number of the first block; those of trials that the session has had belong to others.
        blocks: how many, at most; as many as the comparison asks for without it.
        budget_s: seconds from now for everything.
        window_s: seconds that a trial may measure; without it, what fits all blocks into the budget.
        parity: compare the data first; without it they have been compared.
        seed: of the order within the blocks, and of the trials.
        standing: told after each block how many are done, and of how many.

    Returns:
        The new trials. One with the status ``interrupted`` is the last.
    """
    began, before, earlier = session.spent_s, len(session.trials), set(session.earlier)
    blocks = comparison.blocks if blocks is None else blocks
    limits = Limits(comparison.trial_s, comparison.stall_s)
    data = _compare_data(comparison, session, first_block, limits, seed) if parity else ParityFound()
    if _interrupted(session, before) or data.failed is not None:
        return session.trials[before:]
    refused = set(data.differences)
    ended: dict[str, set[str]] = {accelerator.label: set() for accelerator in comparison.accelerators}
    setup_s = max((trial.setup_s or 0.0 for trial in session.trials[before:]), default=0.0)
    warm = session.block == first_block
    left_s = budget_s - (session.spent_s - began)
    window_s = (
        window_s
        or _window_before(comparison, session)
        or window_within(comparison, left_s, blocks=blocks, setup_s=setup_s, warm=warm)
    )
    block_s = expected_s(comparison, window_s, setup_s=setup_s, warm=warm)
    for block in range(first_block, first_block + blocks):
        begun = session.spent_s
        slots = [
            slot
            for slot in block_order(comparison, block, seed)
            if _goes_on(comparison, ended[slot.accelerator.label] | refused)
            and slot.arm.id not in ended[slot.accelerator.label] | refused
        ]
        if not slots or begun - began + block_s > budget_s:
            break
        for slot in slots:
            gone = ended[slot.accelerator.label]
            if not _goes_on(comparison, gone | refused):
                continue
            number = len(session.trials)
            spec = arm_trial(comparison, slot, number=number, block=block, window_s=window_s, seed=seed)
            record = session.run(spec, limits, _label(slot, block - first_block, blocks))
            if record.status == "interrupted":
                return session.trials[before:]
            if record.status != "ok":
                gone.add(slot.arm.id)
        own = [trial for trial in session.trials[before:] if trial.spec.block == block]
        block_s = session.spent_s - begun + sum(trial.duration_s for trial in own if trial.spec.trial_id in earlier)
        if standing is not None:
            standing(block - first_block + 1, blocks)
    return session.trials[before:]


def _window_before(comparison: Comparison, session: Trials) -> float | None:
    """The window of this comparison's trials in the journal of a run that goes on."""
    own = (trial.spec for trial in session.earlier.values() if trial.spec.group == comparison.name)
    return next((spec.window_s for spec in own if spec.rung == "arm"), None)


def _goes_on(comparison: Comparison, gone: set[str]) -> bool:
    """Whether a group has its baseline still, both of its runs, and a candidate where it ever had one."""
    if any(arm.id in gone for arm in comparison.arms if arm.role != "candidate"):
        return False
    candidates = [arm.id for arm in comparison.arms if arm.role == "candidate"]
    return not candidates or any(name not in gone for name in candidates)


def _compare_data(comparison: Comparison, session: Trials, block: int, limits: Limits, seed: int) -> ParityFound:
    """Run the trials of parity: one, and another for the rest after each arm that takes the process with it."""
    pending = list(parity_arms(comparison)[0])
    before = len(session.trials)
    while pending:
        spec = parity_trial(comparison, pending, number=len(session.trials), block=block, seed=seed)
        # One trial builds all of them, and XLA compiles in each whose step it is.
        longer = Limits(limits.time_s * (1 + len(pending)), limits.stall_s)
        record = session.run(spec, longer, f"comparing the data of {len(pending) + 1} arms")
        last = reading(record)
        if last is None or record.status == "interrupted":
            break
        names = [arm.id for arm in pending]
        pending = pending[names.index(last) + 1 :]
    return parity_found(comparison, session.trials[before:])


def _interrupted(session: Trials, before: int) -> bool:
    return any(trial.status == "interrupted" for trial in session.trials[before:])


def _label(slot: Slot, block: int, blocks: int) -> str:
    return f"block {block + 1} of {blocks}: {slot.arm.id}, {slot.accelerator.label}"
