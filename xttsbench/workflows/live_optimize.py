"""``xttsbench.optimize`` of what lives in the calling process: diagnosed, its fixes verified, all of it here.

No fresh process could build the dataset, so each fix is tried beside the original in this one, by the same code as
elsewhere. One process is one replicate: blocks in it cancel what drifts, and not what this process has of its own (its
memory, what else runs in it), so an interval from here says less than one over fresh processes. The report says so.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from xttsbench.diagnosis.diagnosis import build_diagnosis
from xttsbench.diagnosis.next_trial import Job, next_trial
from xttsbench.execution.limits import Limits
from xttsbench.fixes.proposals import proposals
from xttsbench.workflows.diagnose.diagnose import VERDICT_S
from xttsbench.workflows.live import READING_RUNGS, LiveRequest, begin_live
from xttsbench.workflows.live_session import LiveSession, Measurable
from xttsbench.workflows.outcome import Outcome
from xttsbench.workflows.recorded import Recorded
from xttsbench.workflows.report import finish
from xttsbench.workflows.verification import Verification
from xttsbench.workflows.verify import verify

_READING: Final = 0.35
"""Share of the budget in which the target is read."""
_REPORT_S: Final = 5.0
"""Kept for the report and its plots."""


def optimize_live(request: LiveRequest, target: Measurable, *, any_order: bool = False) -> Outcome:
    """Diagnose a target of this process, verify the fixes that promise most, and write the run's directory.

    Args:
        request: as for a diagnosis.
        target: runs the trials.
        any_order: a fix may give up the order of the elements.

    Returns:
        The outcome; its report has ``fixes`` and ``optimized``, the latter without a fix where none was accepted.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
    """
    began = time.monotonic()
    reading_s = min(VERDICT_S, request.budget_s * _READING)
    run, job = begin_live(request, "optimize", reading_s=reading_s, any_order=any_order)
    session = LiveSession(run.directory, target, began, budget_s=request.budget_s)
    _read(job, session, reading_s)
    if session.trials[0].status == "ok":
        _verify(job, session, run)
    return finish(replace(run, trials=session.trials))


def _read(job: Job, session: LiveSession, until_s: float) -> None:
    """Measure the target as it is, and what its pipeline is made of."""
    while True:
        spec = next_trial(job, session.trials, until_s - session.spent_s, only=READING_RUNGS)
        if spec is None or spec.block:  # another block is another process, which there is not
            return
        session.run(spec, Limits(until_s, until_s))


def _verify(job: Job, session: LiveSession, run: Recorded) -> None:
    plan = run.plan
    evidence = build_diagnosis(session.trials, run.environment, seed=plan.seed).evidence
    wanted = Verification(
        job=job,
        accelerator=plan.accelerator,
        evidence=evidence,
        proposed=proposals(evidence, any_order=plan.any_order),
        directory=run.directory,
        until_s=plan.budget_s - _REPORT_S,
        patch=lambda _: None,  # where its source lies is not known of an object
    )
    verify(wanted, session)
