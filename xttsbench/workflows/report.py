"""``xttsbench report DIR``: the report again from the files of a run, without TensorFlow."""

from __future__ import annotations

from pathlib import Path

from xttsbench.execution import journal
from xttsbench.execution.run_directory import read_environment, read_plan
from xttsbench.workflows.assemble import assemble
from xttsbench.workflows.outcome import Outcome, judge


def rebuild(directory: Path) -> Outcome:
    """Read plan, environment and journal of a run, and write its report again.

    Raises:
        JournalError: a file is missing, torn in the middle, or of another schema version.
    """
    plan, environment, trials = read_plan(directory), read_environment(directory), journal.read(directory)
    report = assemble(plan, environment, trials)
    from xttsbench.reporting.write import write_run

    warnings = write_run(directory, report, trials)
    code, message = judge(report, trials)
    return Outcome(report, directory, code, message, tuple(warnings or ()))
