"""A run as its files have it: what was to be measured, on which machine, and the trials so far.

This is the one value that stages of a run hand on: it is opened, a session adds trials, a report is made of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import JournalError
from xttsbench.execution import journal
from xttsbench.execution.run_directory import (
    ENVIRONMENT,
    PLAN,
    make_run_directory,
    read_environment,
    read_plan,
    write_json,
)
from xttsbench.probes.environment import environment as read_machine
from xttsbench.probes.environment import require_tensorflow
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.measure.session import Progress, Session

REPORT_S: Final = 5.0
"""Of a budget, kept for the report and its plots."""


@dataclass(frozen=True)
class Recorded:
    """A run that has a directory.

    Attributes:
        directory: of the run.
        plan: as it is in ``plan.json``.
        environment: as it is in ``environment.json``.
        trials: those of the journal.
        began: ``time.monotonic()`` at its start; what earlier trials took is counted as if it had just passed.
    """

    directory: Path
    plan: RunPlan
    environment: Mapping[str, Any]
    trials: Sequence[TrialRecord] = ()
    began: float = field(default_factory=time.monotonic)

    @property
    def comparison(self) -> Comparison:
        """What the run compares.

        Raises:
            JournalError: its plan names nothing.
        """
        if self.plan.comparison is None:
            raise JournalError(f"{self.directory}: the plan names no comparison; run the command again.")
        return self.plan.comparison

    def session(self, progress: Progress | None, *, print_to_stderr: bool = False, scripts: bool = False) -> Session:
        """What runs its trials; those that it has had are not run again."""
        return Session(
            self.directory,
            earlier=self.trials,
            print_to_stderr=print_to_stderr,
            progress=progress,
            budget_s=self.plan.budget_s,
            began=self.began,
            scripts=scripts,
        )


def open_run(plan: RunPlan, out: Path | None, name: str, *, began: float | None = None) -> Recorded:
    """Make a run's directory, with its environment and its plan in it.

    Args:
        plan: what is to be measured.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        name: of the directory there.
        began: see :class:`Recorded`; now without it.

    Raises:
        UsageError: the directory cannot be made, or holds something.
        HelperError: TensorFlow is missing, or of an unsupported version.
    """
    require_tensorflow()
    return make_run(plan, out, name, began=began)


def make_run(plan: RunPlan, out: Path | None, name: str, *, began: float | None = None) -> Recorded:
    """Make a run's directory as :func:`open_run` does, in a process that has loaded TensorFlow itself or does without.

    Raises:
        UsageError: the directory cannot be made, or holds something.
    """
    directory = make_run_directory(out, name, datetime.fromisoformat(plan.created_utc))
    machine = read_machine(directory)
    # The plan comes last: with it the directory is a run's.
    write_json(directory / ENVIRONMENT, machine)
    write_json(directory / PLAN, plan.model_dump(mode="json"))
    return Recorded(directory, plan, machine, began=time.monotonic() if began is None else began)


def read_run(directory: Path) -> Recorded:
    """A run from its directory.

    Raises:
        JournalError: a file is missing, torn in the middle, or of another schema version.
    """
    return Recorded(directory, read_plan(directory), read_environment(directory), journal.read(directory))
