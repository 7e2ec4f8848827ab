"""``xttsbench run SCENARIO``: its arms measured against their baseline, and what they come to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from xttsbench.comparison.effects import settled_arms, standing
from xttsbench.comparison.runs import collect, parity_found
from xttsbench.comparison.sweep import LEAST_PROCESSES, ROUNDS
from xttsbench.records.plan import Comparison
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.measure.arms import Trials, compare_arms
from xttsbench.workflows.measure.session import Progress, Silent
from xttsbench.workflows.measure.turns import Standing
from xttsbench.workflows.outcome import Outcome
from xttsbench.workflows.report import finish
from xttsbench.workflows.run.begin import REPORT_S, Request, begin, read_scenario
from xttsbench.xtts.data.pool import Progress as DataProgress


def run(request: Request, *, progress: Progress | None = None, data_progress: DataProgress | None = None) -> Outcome:
    """Run a scenario and write its run's directory.

    Everything measured is on disk before the next trial starts, and a report is written however the run ended.

    Raises:
        UsageError, InvalidInputError: the request or the scenario is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    begun = begin(request, read_scenario(request), "run", data_progress=data_progress)
    plan, comparison, told = begun.plan, begun.comparison, progress or Silent()

    def tell(done: int, rounds: int, trials: Sequence[TrialRecord]) -> None:
        told.standing(f"round {done} of {rounds} at most is done: {standing(comparison, trials)}")

    with begun.session(progress, print_to_stderr=request.print_to_stderr) as session:
        until_s = max(plan.budget_s - REPORT_S, session.spent_s + 1.0)
        measure(comparison, session, until_s=until_s, seed=plan.seed, standing=tell)
    return finish(replace(begun, trials=session.trials))


def measure(
    comparison: Comparison, session: Trials, *, until_s: float, seed: int, standing: Standing | None = None
) -> None:
    """Measure arms until each is decided in two processes, or has as many rounds as the comparison asks for.

    A process lives through some rounds; then a new one of each arm that is not decided goes on, since more rounds in
    the same one show little of what others would do.

    Args:
        comparison: the arms.
        session: runs the trials; they are in ``session.trials``.
        until_s: seconds of the session at which everything has to be over.
        seed: of the order, and of the trials.
        standing: called after each round.
    """
    left, plan, processes = comparison.blocks, comparison, min(LEAST_PROCESSES, comparison.blocks)
    alone = len(comparison.arms) == 1
    each = left if alone else min(ROUNDS, math.ceil(left / processes))
    block = 0
    while left > 0:
        rounds = min(each, left)
        ran = compare_arms(
            plan,
            session,
            first_block=block,
            rounds=rounds,
            budget_s=(until_s - session.spent_s) * rounds / left,
            parity=not block,
            seed=seed,
            # In its first process an arm is measured until that can say no more.
            enough=(lambda trials: settled_arms(comparison, trials, processes)) if block else None,
            standing=standing,
        )
        measured = [trial for trial in ran if trial.spec.rung == "arm"]
        if not measured or measured[-1].status == "interrupted":
            return
        done = max(max(1, len(trial.rounds)) for trial in measured)
        left -= max(done, len({trial.spec.block for trial in measured}))
        block = max(trial.spec.block for trial in measured) + 1
        gone = set(parity_found(comparison, session.trials).differences)
        gone |= settled_arms(comparison, session.trials, processes)
        arms = tuple(arm for arm in comparison.arms if arm.id not in gone)
        used = tuple(group.accelerator for group in collect(comparison, session.trials) if group.ended is None)
        if not used or (not alone and not any(arm.role == "candidate" for arm in arms)):
            return
        plan = comparison.model_copy(update={"arms": arms, "accelerators": used})
