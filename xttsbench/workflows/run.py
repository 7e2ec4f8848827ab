"""``xttsbench run SCENARIO``: its arms measured against their baseline, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.records.trial import TrialRecord
from xttsbench.rules.standing import standing
from xttsbench.workflows.assemble_run import assemble_run
from xttsbench.workflows.begin import REPORT_S, Request, begin, read_scenario
from xttsbench.workflows.compare_arms import compare_arms
from xttsbench.workflows.outcome import Outcome
from xttsbench.workflows.progress import Progress, Silent
from xttsbench.workflows.run_outcome import judge_run
from xttsbench.xtts.data.progress import Progress as DataProgress


def run(request: Request, *, progress: Progress | None = None, data_progress: DataProgress | None = None) -> Outcome:
    """Run a scenario and write its run's directory.

    Everything measured is on disk before the next trial starts, and a report is written however the run ended.

    Raises:
        UsageError, InvalidInputError: the request or the scenario is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    begun = begin(request, read_scenario(request), "run", data_progress=data_progress)
    plan, comparison = begun.plan, begun.comparison
    with begun.session(request, progress) as session:
        budget_s = max(plan.budget_s - REPORT_S - session.spent_s, 1.0)
        told = progress or Silent()

        def tell(done: int, rounds: int, trials: Sequence[TrialRecord]) -> None:
            told.standing(f"round {done} of {rounds} at most is done: {standing(comparison, trials)}")

        trials = compare_arms(comparison, session, budget_s=budget_s, seed=plan.seed, standing=tell)
    report = assemble_run(plan, begun.environment, trials)
    # Here and not above: plots are drawn when no trial runs any more, so that the parent stays small until then.
    from xttsbench.reporting.write import write_run

    warnings = write_run(begun.directory, report, trials)
    code, message = judge_run(report, trials, comparison)
    return Outcome(report, begun.directory, code, message, tuple(warnings or ()))
