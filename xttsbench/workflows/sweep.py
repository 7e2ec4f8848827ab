"""``xttsbench sweep``: round after round until an arm is confirmed on fresh blocks, or the baseline is kept.

What to measure next, and what it comes to, is decided from the trials alone (:mod:`xttsbench.rules.rounds`), so that
the same journal gives the same winner again.
"""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.planning.arms import plan_procedure
from xttsbench.planning.trials import IMPORT_S, expected_s
from xttsbench.records.plan import Comparison, Procedure
from xttsbench.records.trial import TrialRecord
from xttsbench.rules.replay import results_of
from xttsbench.rules.rounds import Result, Round, candidates, expected_trials, fitted, next_round
from xttsbench.rules.standing import standing
from xttsbench.scenario.settings import Scenario
from xttsbench.scenario.space import MOST_SWEEP_ARMS
from xttsbench.workflows.assemble_sweep import assemble_sweep
from xttsbench.workflows.begin import REPORT_S, Request, begin, read_scenario
from xttsbench.workflows.best import write_best
from xttsbench.workflows.compare_arms import compare_arms
from xttsbench.workflows.outcome import Outcome
from xttsbench.workflows.progress import Progress, Silent
from xttsbench.workflows.session import Session
from xttsbench.workflows.sweep_outcome import judge_sweep
from xttsbench.workflows.turns import Standing
from xttsbench.xtts.data.progress import Progress as DataProgress

_PARITY_S = 15.0
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
    wanted = plan_procedure(scenario)
    if request.blocks is not None:
        wanted = wanted.model_copy(update={"confirm_blocks": request.blocks})

    def fit(comparison: Comparison, budget_s: float) -> Procedure:
        return _within(scenario, comparison, wanted, budget_s)

    begun = begin(request, scenario, "sweep", fit=fit, data_progress=data_progress)
    plan = begun.plan
    procedure = plan.procedure or wanted
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
        procedure: how they are narrowed down.
        session: runs the trials.
        until_s: no block begins that is not expected to end so many seconds after the run began.
        seed: of the order within the blocks, and of the trials.
        progress: told how the arms stand after each block.
    """
    last: Round | None = None
    while True:
        now = next_round(comparison, procedure, results_of(comparison, procedure, session.trials))
        if now is None or now == last:  # the same again: it could not be brought to its end
            return
        arms = now.comparison
        if last is None:
            compare_arms(arms, session, rounds=0, budget_s=until_s - session.spent_s, window_s=arms.window_s, seed=seed)
            arms = _with_the_baseline_s_data(now, results_of(comparison, procedure, session.trials))
        if _interrupted(session) or not any(arm.role == "candidate" for arm in arms.arms):
            return
        compare_arms(
            arms,
            session,
            first_block=now.first_block,
            budget_s=until_s - session.spent_s,
            window_s=arms.window_s,
            parity=False,
            seed=seed,
            standing=_told(now, comparison, procedure, session, progress),
        )
        if _interrupted(session):
            return
        last = now


def _with_the_baseline_s_data(now: Round, results: Sequence[Result]) -> Comparison:
    """The first round without the arms that cannot win: their data are others, or nobody knows."""
    gone = {name for result in results for name in result.gone}
    arms = now.comparison.arms if now.comparison.baseline.id not in gone else now.comparison.arms[:1]
    left = tuple(arm for arm in arms if arm.role == "baseline" or arm.id not in gone)
    return now.comparison.model_copy(update={"arms": left})


def _interrupted(session: Session) -> bool:
    return bool(session.trials) and session.trials[-1].status == "interrupted"


def _told(now: Round, comparison: Comparison, procedure: Procedure, session: Session, progress: Progress) -> Standing:
    """What tells the progress how the arms stand, and how long it may still take."""
    expected = expected_trials(comparison, procedure)

    def tell(done: int, rounds: int, trials: Sequence[TrialRecord]) -> None:
        measured = [trial for trial in trials if trial.spec.rung == "arm"]
        mean_s = session.spent_s / max(len(measured), 1)
        left = (rounds - done) * len(now.comparison.arms)
        if now.kind != "confirm":
            left = max(left, expected - len(measured))
        progress.standing(
            f"{now.comparison.name}, round {done} of {rounds} is done: {standing(now.comparison, trials)}; "
            f"about {_minutes(left * mean_s)} left"
        )

    return tell


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _within(scenario: Scenario, comparison: Comparison, wanted: Procedure, budget_s: float) -> Procedure:
    """The procedure that is expected to fit into the budget."""
    if not candidates(comparison, ()):
        raise InvalidInputError(f"{scenario.name}: a sweep compares two configurations at least; give it a grid.")
    sharing = min(len(comparison.arms), wanted.finalists + 2)  # trials of a block, which share a helper's start
    trial_s = expected_s(comparison, comparison.window_s, warm=True) / len(comparison.arms) + IMPORT_S / sharing
    found = fitted(comparison, wanted, budget_s - REPORT_S - _PARITY_S, trial_s)
    if found is None:
        raise UsageError(
            f"--budget {budget_s:g}: a sweep of {scenario.name!r} with {len(comparison.arms) - 1} arms takes "
            f"{expected_trials(comparison, wanted)} trials of about {trial_s:.1f} s, and the least that decides does "
            "not fit; give more seconds, fewer arms, or a shorter window_s."
        )
    return found
