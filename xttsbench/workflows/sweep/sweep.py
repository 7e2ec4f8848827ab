"""``xttsbench sweep``: round after round until an arm has won, or none can.

What to measure next, and what it comes to, is decided from the trials alone (:mod:`xttsbench.comparison.sweep`), so
that the same journal gives the same winner again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from xttsbench import __version__
from xttsbench.comparison.arms import compare
from xttsbench.comparison.effects import standing
from xttsbench.comparison.sweep import (
    LEAST_PROCESSES,
    ROUNDS,
    again,
    baseline_gone,
    enough,
    next_round,
    seen_in,
    state_of,
)
from xttsbench.comparison.winner import Choice, choose
from xttsbench.errors import InvalidInputError, JournalError, UsageError
from xttsbench.planning.arms import plan_procedure
from xttsbench.planning.trials import IMPORT_S, expected_s
from xttsbench.records.best import Best
from xttsbench.records.plan import Comparison, PlannedArm, Procedure, RunPlan
from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.scenario.settings import MOST_SWEEP_ARMS, Scenario
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.measure.session import Progress, Session, Silent
from xttsbench.workflows.outcome import Outcome, judge_sweep
from xttsbench.workflows.run.begin import REPORT_S, Request, begin, read_scenario
from xttsbench.workflows.run.report import assemble_compared
from xttsbench.workflows.sweep.best import fingerprint_of, write_best
from xttsbench.xtts.data.progress import Progress as DataProgress

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
    begun = begin(request, scenario, "sweep", procedure=procedure, check=_fits, data_progress=data_progress)
    plan = begun.plan
    with begun.session(request, progress) as session:
        search(
            begun.comparison,
            procedure,
            session,
            until_s=plan.budget_s - REPORT_S,
            seed=plan.seed,
            progress=progress or Silent(),
        )
    trials = session.trials
    report = assemble_sweep(plan, begun.environment, trials, begun.directory)
    # Here and not above: plots are drawn when no trial runs any more, so that the parent stays small until then.
    from xttsbench.reporting.write import write_run

    warnings = write_run(begun.directory, report, trials)
    write_best(begun.directory, report.best)
    code, message = judge_sweep(report, trials, begun.comparison)
    return Outcome(report, begun.directory, code, message, tuple(warnings or ()))


def search(
    comparison: Comparison, procedure: Procedure, session: Session, *, until_s: float, seed: int, progress: Progress
) -> None:
    """Measure round after round; all that is found is in ``session.trials``.

    Args:
        comparison: all arms.
        procedure: how far it goes.
        session: runs the trials.
        until_s: no block begins that is not expected to end so many seconds after the run began.
        seed: of the order within the blocks, and of the trials.
        progress: told how the arms stand after each block.
    """
    compare_arms(  # their data alone
        comparison,
        session,
        rounds=0,
        budget_s=until_s - session.spent_s,
        window_s=comparison.window_s,
        seed=seed,
    )
    while not _interrupted(session):
        now = next_round(comparison, procedure, seen_in(comparison, session.trials))
        if now is None:
            return
        ran = compare_arms(
            now.comparison,
            session,
            first_block=now.first_block,
            rounds=ROUNDS,
            budget_s=until_s - session.spent_s,
            window_s=comparison.window_s,
            parity=False,
            seed=seed,
            enough=lambda trials: enough(comparison, procedure, seen_in(comparison, trials)),
            standing=lambda _, __, trials: progress.standing(_told(comparison, trials, until_s - session.spent_s)),
        )
        if not ran:
            return


def _told(comparison: Comparison, trials: Sequence[TrialRecord], left_s: float) -> str:
    """How the arms stand, and how long it may still take."""
    seen = seen_in(comparison, trials)
    state = state_of(comparison, seen)
    done = seen.rounds
    said = f"{done} {'round' if done == 1 else 'rounds'} done: {standing(comparison, trials)}"
    if not state.ahead:
        return said
    return f"{said}; {len(state.ahead)} may still win, at most {_minutes(max(left_s, 0.0))} left"


def _interrupted(session: Session) -> bool:
    return bool(session.trials) and session.trials[-1].status == "interrupted"


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
    # Two processes of the baseline and of some arm; all arms once.
    trial_s = expected_s(comparison, comparison.window_s, warm=True) / len(comparison.arms)
    least_s = (arms + 3) * trial_s + LEAST_PROCESSES * IMPORT_S + REPORT_S + _PARITY_S
    if least_s > scenario.budget_s:
        raise UsageError(
            f"--budget {scenario.budget_s:g}: a sweep of {scenario.name!r} with {arms} arms takes {least_s:.0f} s at "
            f"least, with {trial_s:.1f} s for a trial; give more seconds, fewer arms, or a shorter window_s."
        )


def assemble_sweep(
    plan: RunPlan, environment: Mapping[str, Any], trials: Sequence[TrialRecord], directory: Path
) -> Report:
    """Everything that the run's files say, as the report record.

    All arms are one group, whatever they were measured in; the verdict is on the baseline.

    Raises:
        JournalError: the plan holds no comparison or no procedure, so it is not that of a sweep.
    """
    comparison, procedure = plan.comparison, plan.procedure
    if comparison is None or procedure is None:
        raise JournalError("plan.json is of a sweep, and names no arms or no procedure; run the sweep again.")
    comparison = comparison.model_copy(
        update={"arms": _with_again(comparison), "accelerators": comparison.accelerators[:1]}
    )
    seen = seen_in(comparison, trials)
    choice = choose(comparison, procedure, seen)
    compared = replace(compare(comparison, trials), sentences=(choice.why,))
    report = assemble_compared(plan, environment, trials, comparison=comparison, compared=compared)
    waiting = any(arm.role == "candidate" and arm.id not in seen.gone for arm in comparison.arms)
    begun = any(trial.spec.rung == "arm" for trial in trials)
    if (not any(seen.processes.values()) and (waiting or not begun)) or baseline_gone(comparison, seen) is not None:
        why = "the sweep ended before anything could be chosen"
        return report.model_copy(update={"unmeasured": report.unmeasured | {"best": why}})
    return report.model_copy(update={"best": _best(plan, comparison, choice, environment, directory)})


def _with_again(comparison: Comparison) -> tuple[PlannedArm, ...]:
    arms = comparison.arms
    return arms if any(arm.role == "aa" for arm in arms) else (*arms, again(comparison))


def _best(
    plan: RunPlan,
    comparison: Comparison,
    choice: Choice,
    environment: Mapping[str, Any],
    directory: Path,
) -> Best:
    """The content of ``best.yaml``: the winner, or the baseline where none is proven."""
    arm = next(arm for arm in comparison.arms if arm.id == choice.winner)
    used = comparison.accelerators[0]
    return Best(
        run=directory.name,
        target=None if comparison.bundled else comparison.target,
        workload="xtts" if comparison.bundled else None,
        arm=arm.id,
        config=arm.kwargs,
        proven=choice.proven,
        decided=choice.decided,
        why=choice.why,
        effect=choice.effect,
        baseline={"arm": comparison.baseline.id, "config": comparison.baseline.kwargs},
        blocks=choice.blocks,
        rounds=choice.rounds,
        evidence=choice.evidence,
        accelerator={"kind": used.kind, "label": used.label, "source": used.source},
        steps_per_trial=comparison.steps,
        tied_with=choice.tied_with,
        smallest_visible_effect=choice.smallest_visible_effect,
        fingerprint=fingerprint_of(environment, code=plan.code, data=plan.data),
        xttsbench_version=__version__,
    )
