"""A run on disk: what was asked for, where, and its trials; the one value that the stages of a workflow hand on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from xttsbench.errors import JournalError
from xttsbench.execution.run_directory import OUTPUT
from xttsbench.probes.environment import guard
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.redaction import Redaction
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.measure.session import Progress, Session


@dataclass(frozen=True)
class Recorded:
    """A run that has a directory: the one value that its stages hand on.

    It is opened, a session adds trials, a report is made of it.

    Attributes:
        directory: of the run.
        plan: what was asked for; ``plan.json`` is without the secrets in it.
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
        """Comparison of the run's plan.

        Raises:
            JournalError: its plan names nothing.
        """
        if self.plan.comparison is None:
            raise JournalError(f"{self.directory}: the plan names no comparison; run the command again.")
        return self.plan.comparison

    @cached_property
    def redaction(self) -> Redaction:
        """Redaction of secrets in the run's files."""
        return guard(self.directory, self.plan)

    @property
    def kept(self) -> Recorded:
        """The run as its files have it, from which reports are made."""
        plan, environment, trials = map(self.redaction.kept, (self.plan, self.environment, tuple(self.trials)))
        return Recorded(self.directory, plan, environment, trials, self.began)

    def session(
        self,
        progress: Progress | None,
        *,
        print_to_stderr: bool = False,
        scripts: bool = False,
        keeps_output: bool = False,
    ) -> Session:
        """Session that goes on with the run's trials; finished ones are not run again.

        What targets print is kept in the run's directory where asked for; nowhere in a run without names and paths.
        """
        log = Path(os.devnull) if self.plan.redact else self.directory / OUTPUT
        return Session(
            self.directory,
            earlier=self.trials,
            print_to_stderr=print_to_stderr,
            log=log if keeps_output else None,
            progress=progress,
            budget_s=self.plan.budget_s,
            began=self.began,
            scripts=scripts,
            redaction=self.redaction,
        )
