"""``xttsbench report DIR``: the report again from the files of a run, without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xttsbench.execution import journal
from xttsbench.execution.run_directory import read_environment, read_plan
from xttsbench.records.plan import RunPlan
from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.diagnose.report import assemble
from xttsbench.workflows.fixes import read_patch
from xttsbench.workflows.outcome import Outcome, judge, judge_run, judge_sweep
from xttsbench.workflows.run.report import assemble_run
from xttsbench.workflows.sweep.best import write_best
from xttsbench.workflows.sweep.sweep import assemble_sweep
from xttsbench.workflows.train_outcome import judge_trained
from xttsbench.workflows.train_report import assembled_train


def rebuild(directory: Path) -> Outcome:
    """Read plan, environment and journal of a run, and write its report again.

    Raises:
        JournalError: a file is missing, torn in the middle, or of another schema version.
    """
    plan, environment, trials = read_plan(directory), read_environment(directory), journal.read(directory)
    report = assembled(plan, environment, trials, directory)
    from xttsbench.reporting.write import write_run

    warnings = write_run(directory, report, trials)
    if plan.kind == "sweep":
        write_best(directory, report.best)
    code, message = _judged(plan, report, trials)
    return Outcome(report, directory, code, message, tuple(warnings or ()))


def assembled(plan: RunPlan, environment: Mapping[str, Any], trials: Sequence[TrialRecord], directory: Path) -> Report:
    """The report of a run of any kind, from its files."""
    if plan.kind == "train":
        return assembled_train(plan, environment, trials, directory)
    if plan.kind == "sweep":
        return assemble_sweep(plan, environment, trials, directory)
    return (
        assemble_run(plan, environment, trials)
        if plan.kind == "run"
        else assemble(plan, environment, trials, read_patch(directory), directory=directory)
    )


def _judged(plan: RunPlan, report: Report, trials: Sequence[TrialRecord]) -> tuple[int, str | None]:
    if plan.kind == "train":
        return judge_trained(report)
    if plan.comparison is not None and plan.kind == "sweep":
        return judge_sweep(report, trials, plan.comparison)
    if plan.comparison is not None and plan.kind == "run":
        return judge_run(report, trials, plan.comparison)
    return judge(report, trials)
