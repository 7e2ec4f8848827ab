"""The trials of a run in the calling process: one after another here, each in the journal before the next one begins.

It stands where :class:`xttsbench.workflows.measure.session.Session` stands for fresh processes, so that what is
measured, and what it comes to, is the same. What differs is that nothing begins anew: what a dataset keeps from one
pass to the next (a counter, a file that is read on) is there in the next trial, the original's or a fix's. So nothing
is told of a fix where the original differs between two passes of its own without being random.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from xttsbench.execution import journal
from xttsbench.execution.collected import Collected
from xttsbench.execution.limits import Limits
from xttsbench.records.fix_set import FixSet
from xttsbench.records.readings import Readings
from xttsbench.records.row_memory import RowMemory
from xttsbench.records.trial import TrialRecord, TrialSpec
from xttsbench.workflows.live_changes import changes_by_itself

_STEP: Final = "a step that lives in the calling process is left as it is; name an importable callable"

_LABEL: Final = (
    "measured in the calling process only: one process is one replicate, and what else it does is in the times; "
    "name an importable callable for fresh processes, modes of the step, and a patch"
)
_WINDOWS: Final = {"elements": (0.05, 1.5), "arm": (0.01, 0.6)}
"""Rung -> the share of the budget that the window of one trial may be, and the least seconds that show something.

Fingerprints are taken four times at least; the turns of a comparison are three dozen, and need no process to begin."""


class Measurable(Protocol):
    """A target of this process; see :class:`xttsbench.worker.live_optimize.LiveTarget`."""

    def measure(self, spec: TrialSpec, take: Callable[[dict[str, Any]], None], rows: RowMemory) -> None:
        """Run one trial and hand over its messages and its rows."""


class LiveSession:
    """Runs trials in this process and keeps them.

    Limits of time are those that a trial keeps by itself: nothing could end one that hangs without ending the caller.

    Args:
        directory: of the run.
        target: what is measured.
        began: ``time.monotonic()`` at the start of the run.
        budget_s: seconds for the whole run.
    """

    def __init__(self, directory: Path, target: Measurable, began: float, *, budget_s: float) -> None:
        self.trials: list[TrialRecord] = []
        self.earlier: dict[str, TrialRecord] = {}
        self.import_s = 0.0
        """No process begins."""
        self.fills_anew = False
        """The guard's trial leaves the cache of a fix full for those that measure it."""
        self.side_by_side = ""
        """No process begins."""
        self._directory = directory
        self._target = target
        self._began = began
        self._most_s = {rung: max(budget_s * share, least_s) for rung, (share, least_s) in _WINDOWS.items()}

    @property
    def spent_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def block(self) -> int | None:
        """The next block, since none needs a helper."""
        return max((trial.spec.block for trial in self.trials), default=-1) + 1

    def run(self, spec: TrialSpec, limits: Limits, label: str | None = None, *, note: str | None = None) -> TrialRecord:
        """Run one trial to its end, or say why it is left out, and write it to the journal.

        Raises:
            JournalError: the journal cannot be written.
        """
        if spec.rung in self._most_s:
            spec = spec.model_copy(update={"window_s": min(spec.window_s, self._most_s[spec.rung])})
        collected = Collected(spec)
        collected.take({"note": _LABEL})
        started_utc, began = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
        why = self._why_not(spec)
        if why is None:
            self._target.measure(spec, collected.take, collected.rows)
        else:
            collected.take({"status": "skipped", "cause": why})
        unread = Readings(unmeasured={"host": "no process of its own to read beside the steps"})
        record = collected.record(started_utc=started_utc, duration_s=time.monotonic() - began, readings=unread)
        self.trials.append(record)
        journal.append(self._directory, record)
        return record

    def _why_not(self, spec: TrialSpec) -> str | None:
        """Why a trial can tell nothing here, or must not be run."""
        if FixSet.parse(spec.fix).of_step:
            return _STEP
        if spec.rung != "elements":
            return None
        passes = [
            trial.elements
            for trial in self.trials
            if trial.spec.rung == "elements" and trial.spec.fix is None and trial.elements is not None
        ]
        return changes_by_itself(*passes[:2]) if len(passes) >= 2 else None
