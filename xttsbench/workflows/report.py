"""What a run leaves when its trials are over: its report, ``best.yaml`` or ``optimized.yaml``, and an exit code.

All of it follows from the run's files, so that ``xttsbench report DIR`` does it again, without TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from xttsbench.records.report import Report
from xttsbench.workflows.best import write_best
from xttsbench.workflows.optimize.fixes import read_patch
from xttsbench.workflows.optimize.plan import write_plan
from xttsbench.workflows.outcome import DONE, INCONCLUSIVE, Outcome, judge, judge_fixes, judge_run, judge_sweep
from xttsbench.workflows.recorded import Recorded, read_run
from xttsbench.workflows.reports.diagnose import assemble
from xttsbench.workflows.reports.scenario import assemble_run
from xttsbench.workflows.reports.sweep import assemble_sweep
from xttsbench.workflows.reports.train import assembled_train, judge_trained


def rebuild(directory: Path) -> Outcome:
    """Read plan, environment and journal of a run, and write its report again.

    Raises:
        JournalError: a file is missing, torn in the middle, or of another schema version.
    """
    return finish(read_run(directory))


def finish(run: Recorded) -> Outcome:
    """Write the report of a run of any kind, with what else it leaves, and say how it ended."""
    report = report_of(run)
    # Here and not above: plots are drawn when no trial runs any more, so that the parent stays small until then.
    from xttsbench.reporting.write import write_run

    warnings = write_run(run.directory, report, run.trials)
    if run.plan.kind == "sweep":
        write_best(run.directory, report.best)
    if report.optimized is not None:
        write_plan(run.directory, report.optimized)
    return Outcome(report, run.directory, *_judged(run, report), tuple(warnings or ()))


def report_of(run: Recorded) -> Report:
    """The report of a run of any kind, from its files."""
    files = run.plan, run.environment, run.trials
    match run.plan.kind:
        case "train":
            return assembled_train(*files, run.directory)
        case "sweep":
            return assemble_sweep(*files, run.directory)
        case "run":
            return assemble_run(*files)
    return assemble(*files, read_patch(run.directory), directory=run.directory)


def _judged(run: Recorded, report: Report) -> tuple[int, str | None]:
    match run.plan.kind:
        case "train":
            return judge_trained(report)
        case "sweep":
            return judge_sweep(report, run.trials, run.comparison)
        case "run":
            return judge_run(report, run.trials, run.comparison)
    code, message = judge(report, run.trials)
    if run.plan.kind == "optimize" and code in (DONE, INCONCLUSIVE):
        return judge_fixes(report)
    return code, message
