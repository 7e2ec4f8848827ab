"""Runs of what lives in the calling process: diagnosed, and its fixes verified, all of it here.

No fresh process could build the dataset, so it is measured, and each fix tried beside the original, in this one, by
the same code as elsewhere: :class:`LiveSession` stands where :class:`xttsbench.workflows.measure.session.Session` does
for fresh processes. What differs is that nothing begins anew: what a dataset keeps from one pass to the next (a
counter, a file that is read on) is there in the next trial, the original's or a fix's. So nothing is told of a fix
where the original differs between two passes of its own without being random. One process is one replicate: blocks in
it cancel what drifts, and not what this process has of its own, so a report from here says less than one over fresh
processes, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from xttsbench.diagnosis import build_diagnosis
from xttsbench.diagnosis.next_trial import next_trial
from xttsbench.execution.child import Collected, now_utc
from xttsbench.execution.journal import append_trial
from xttsbench.execution.limits import Limits
from xttsbench.fixes.proposals import proposals
from xttsbench.planning import Job, job_of
from xttsbench.records.fix import FixSet
from xttsbench.records.pipeline import Elements
from xttsbench.records.readings import Readings
from xttsbench.records.redaction import Redaction
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import TrialKind, TrialRecord, TrialSpec
from xttsbench.workflows.diagnose import VERDICT_S, Request, plan_of, window_s
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.optimize.trials import verify
from xttsbench.workflows.optimize.verification import Verification
from xttsbench.workflows.runs import REPORT_S, Outcome, finish, open_run

Measure = Callable[[TrialSpec, Callable[[dict[str, Any]], None], RowMemory], None]
"""Runs one trial and hands over its messages and its rows."""

READING_KINDS: Final[tuple[TrialKind, ...]] = ("ladder", "pipeline")
"""Kinds without lasting change in the process: a mode of the step might make one, and fixes need their own processes.
"""
_READING: Final = 0.35  # share of the budget in which the target is read
_STEP: Final = "a step that lives in the calling process is left as it is; name an importable callable"
_HERE: Final = (
    "measured in the calling process only: one process is one replicate, and what else it does is in the times; "
    "name an importable callable for fresh processes, "
)
_DIAGNOSED: Final = f"{_HERE}modes and fixes"
_OPTIMIZED: Final = f"{_HERE}modes of the step, and a patch"
_WINDOWS: Final = {"elements": (0.05, 1.5), "arm": (0.01, 0.6)}
"""TrialKind -> the share of the budget that the window of one trial may be, and the least seconds that show something.

Fingerprints are taken four times at least; the turns of a comparison are three dozen, and need no process to begin."""
_SAID: Final = (
    "it changes between two passes of its own although nothing in its graph is random, so it keeps something from pass "
    "to pass, and what a fix changes cannot be distinguished from that"
)


def diagnose_live(request: Request, measure: Measure) -> Outcome:
    """Diagnose what ``measure`` measures, and write the run's directory; the request's target says what it is.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
    """
    return _run(request, measure, min(VERDICT_S, request.budget_s), _DIAGNOSED)


def optimize_live(request: Request, measure: Measure) -> Outcome:
    """Diagnose a target of this process, verify the fixes that promise most, and write the run's directory.

    Returns:
        The outcome; its report has ``fixes`` and ``optimized``, the latter without a fix where none was accepted.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
    """
    reading_s = min(VERDICT_S, request.budget_s * _READING)
    return _run(replace(request, kind="optimize"), measure, reading_s, _OPTIMIZED)


def _run(request: Request, measure: Measure, reading_s: float, label: str) -> Outcome:
    began, plan = time.monotonic(), plan_of(request)
    with open_run(plan, request.out, f"{plan.kind}-live", began=began) as run:
        return finish(replace(run, trials=_measured(run, request, measure, reading_s, label)))


def _measured(run: Recorded, request: Request, measure: Measure, reading_s: float, label: str) -> Sequence[TrialRecord]:
    plan = run.plan
    job = job_of(plan, window_s(reading_s, request.steps is not None))
    session = LiveSession(
        run.directory, measure, run.began, budget_s=plan.budget_s, label=label, redaction=run.redaction
    )
    _read(job, session, reading_s)
    if plan.kind == "optimize" and session.trials[0].status == "ok":
        _verify(job, session, run)
    return session.trials


class LiveSession:
    """Runs trials in this process and keeps them.

    Limits of time are those that a trial keeps by itself: nothing could end one that hangs without ending the caller.

    It began at ``began`` (``time.monotonic()``); ``label`` is what every trial notes of being here.
    """

    def __init__(
        self,
        directory: Path,
        measure: Measure,
        began: float,
        *,
        budget_s: float,
        label: str = _OPTIMIZED,
        redaction: Redaction | None = None,
    ) -> None:
        self.trials: list[TrialRecord] = []
        self.earlier: dict[str, TrialRecord] = {}
        self.import_s = 0.0
        """No process begins."""
        self.fills_anew = False
        """The guard's trial leaves the cache of a fix full for those that measure it."""
        self.side_by_side = ""
        """No process begins."""
        self._directory, self._redaction = directory, redaction or Redaction()
        self._measure = measure
        self._label = label
        self._began = began
        self._most_s = {kind: max(budget_s * share, least_s) for kind, (share, least_s) in _WINDOWS.items()}

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
        if spec.kind in self._most_s:
            spec = spec.model_copy(update={"window_s": min(spec.window_s, self._most_s[spec.kind])})
        collected = Collected(spec)
        collected.take({"note": self._label})
        started_utc, began = now_utc(), time.monotonic()
        why = self._why_not(spec)
        if why is None:
            self._measure(spec, collected.take, collected.rows)
        else:
            collected.take({"status": "skipped", "cause": why})
        unread = Readings(unmeasured={"host": "no process of its own to read beside the steps"})
        record = collected.record(started_utc=started_utc, duration_s=time.monotonic() - began, readings=unread)
        self.trials.append(record)
        append_trial(self._directory, self._redaction.kept(record))
        return record

    def run_all(self, specs: Sequence[TrialSpec], limits: Limits, *, most: int = 1) -> list[TrialRecord]:
        """Run trials one after another: one process has no two at a time."""
        return [self.run(spec, limits) for spec in specs]

    def _why_not(self, spec: TrialSpec) -> str | None:
        if FixSet.parse(spec.fix).of_step:
            return _STEP
        if spec.kind != "elements":
            return None
        passes = [
            trial.elements
            for trial in self.trials
            if trial.spec.kind == "elements" and trial.spec.fix is None and trial.elements is not None
        ]
        return changes_by_itself(*passes[:2]) if len(passes) >= 2 else None


def changes_by_itself(first: Elements, second: Elements) -> str | None:
    """Unexpected difference of two runs of the original; ``None`` where they are the same, or may differ.

    They may where the graph shuffles, draws random numbers, or promises no order: what that does to the elements is
    known, and the comparison considers it. Two passes are compared as far as both were seen.
    """
    if first.random_ops or not first.ordered:
        return None
    if first.spec != second.spec:
        return _SAID
    for before, after in zip(first.epochs, second.epochs, strict=False):
        if any(one != other for one, other in zip(before.elements, after.elements, strict=False)):
            return _SAID
        longer = len(after.elements) - len(before.elements)
        # A pass that ended must not go on in the other run; one that was cut off may have gone on.
        if (before.ended and longer > 0) or (after.ended and longer < 0) or (before.ended and after.ended and longer):
            return _SAID
    return None


def _read(job: Job, session: LiveSession, until_s: float) -> None:
    while True:
        spec = next_trial(job, session.trials, until_s - session.spent_s, only=READING_KINDS)
        if spec is None or spec.block:  # another block is another process, which there is not
            return
        session.run(spec, Limits(until_s, until_s))


def _verify(job: Job, session: LiveSession, run: Recorded) -> None:
    plan = run.plan
    evidence = build_diagnosis(session.trials, run.environment, seed=plan.seed).evidence
    verify(
        Verification(
            job=job,
            accelerator=plan.accelerator,
            evidence=evidence,
            proposed=proposals(evidence),
            directory=run.directory,
            session=session,
            until_s=plan.budget_s - REPORT_S,
            patch=lambda _: None,  # where its source lies is not known of an object
        )
    )
