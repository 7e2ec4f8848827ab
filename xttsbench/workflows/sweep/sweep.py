"""``xttsbench sweep``: round after round until an arm has won, or none can.

What to measure next, and what it comes to, is decided from the trials alone (:mod:`xttsbench.comparison.sweep`), so
that the same journal gives the same winner again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from xttsbench.comparison.effects import MIN_PROCESSES, interim_status
from xttsbench.comparison.sweep import (
    enough,
    next_round,
    seen_in,
    state_of,
)
from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.planning import IMPORT_S, expected_s, plan_procedure
from xttsbench.records.plan import Comparison, Procedure
from xttsbench.records.trial import TrialRecord, interrupted
from xttsbench.scenario.settings import MOST_SWEEP_ARMS, Scenario
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.measure.session import Progress, Session, Silent
from xttsbench.workflows.measure.turns import TURN_S
from xttsbench.workflows.outcome import Outcome
from xttsbench.workflows.recorded import REPORT_S
from xttsbench.workflows.report import finish
from xttsbench.workflows.run.run import Request, begin, read_scenario
from xttsbench.xtts.data.pool import Progress as DataProgress

_PARITY_S: Final = 15.0
"""Kept for comparing the data before the first round."""


def sweep(request: Request, *, progress: Progress | None = None, data_progress: DataProgress | None = None) -> Outcome:
    """Search a scenario's arms for the fastest, and write the run's directory with its ``best.yaml``.

    Everything measured is on disk before the next trial starts, and a report is written however the run ended.

    Raises:
        UsageError, InvalidInputError: the request or the scenario is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    scenario = read_scenario(request, most_arms=MOST_SWEEP_ARMS)
    if len(scenario.accelerator) > 1:
        raise InvalidInputError(
            f"{scenario.name}: accelerator: a sweep looks for one winner on one device, got "
            f"{', '.join(scenario.accelerator)}; name one with --accelerator."
        )
    procedure = plan_procedure(scenario)
    if request.blocks is not None:
        procedure = procedure.model_copy(update={"blocks": request.blocks})
    run = begin(request, scenario, "sweep", procedure=procedure, check=_fits, data_progress=data_progress)
    told, until_s = progress or Silent(), run.plan.budget_s - REPORT_S
    with run.session(progress, print_to_stderr=request.print_to_stderr) as session:
        search(run.comparison, procedure, session, until_s=until_s, seed=run.plan.seed, progress=told)
    return finish(replace(run, trials=session.trials))


def search(
    comparison: Comparison, procedure: Procedure, session: Session, *, until_s: float, seed: int, progress: Progress
) -> None:
    """Measure round after round; all that is found is in ``session.trials``.

    No block begins that is not expected to end ``until_s`` seconds after the run began.
    """
    compare_arms(  # their data alone
        comparison,
        session,
        rounds=0,
        budget_s=until_s - session.spent_s,
        window_s=comparison.window_s,
        seed=seed,
    )
    while not interrupted(session.trials):
        now = next_round(comparison, procedure, seen_in(comparison, session.trials))
        if now is None:
            return
        ran = compare_arms(
            now.comparison,
            session,
            first_block=now.first_block,
            rounds=now.rounds,
            budget_s=until_s - session.spent_s,
            window_s=comparison.window_s,
            parity=False,
            seed=seed,
            enough=lambda trials: enough(comparison, procedure, seen_in(comparison, trials)),
            after_round=lambda _, __, trials: progress.status(_told(comparison, trials, until_s - session.spent_s)),
        )
        if not ran:
            return


def _told(comparison: Comparison, trials: Sequence[TrialRecord], left_s: float) -> str:
    """How the arms stand, and how long it may still take."""
    seen = seen_in(comparison, trials)
    state = state_of(comparison, seen)
    done = seen.rounds
    said = f"{done} {'round' if done == 1 else 'rounds'} done: {interim_status(comparison, trials)}"
    if not state.ahead:
        return said
    return f"{said}; {len(state.ahead)} may still win, at most {_minutes(max(left_s, 0.0))} left"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _fits(scenario: Scenario, comparison: Comparison) -> None:
    """Refuse what cannot be decided within its budget.

    Raises:
        InvalidInputError: there is nothing to compare.
        UsageError: not even the rounds that a winner takes would fit.
    """
    arms = len(comparison.arms) - any(arm.role == "aa" for arm in comparison.arms)
    if arms < 2:
        raise InvalidInputError(f"{scenario.name}: a sweep compares two configurations at least; give it a grid.")
    # Two processes of the baseline and of some arm; all arms once. Large differences show in a turn or two of each.
    trial_s = expected_s(comparison, min(comparison.window_s, 2 * TURN_S), warm=True) / len(comparison.arms)
    least_s = (arms + 3) * trial_s + MIN_PROCESSES * IMPORT_S + REPORT_S + _PARITY_S
    if least_s > scenario.budget_s:
        raise UsageError(
            f"--budget {scenario.budget_s:g}: a sweep of {scenario.name!r} with {arms} configurations takes "
            f"{least_s:.0f} s at least, with {trial_s:.1f} s for a trial; give more seconds, fewer configurations, or "
            "a shorter window_s."
        )
