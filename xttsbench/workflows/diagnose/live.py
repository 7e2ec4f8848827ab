"""A diagnosis in the calling process: of a dataset that no fresh process could build again.

One process is one replicate, and whatever else lives in it is in the times. So a report of this kind says less than
one of an importable target, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from xttsbench.diagnosis.next_trial import Job, next_trial
from xttsbench.execution import journal
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.execution.child import Collected
from xttsbench.records.plan import RunPlan
from xttsbench.records.readings import Readings
from xttsbench.records.report import Kind
from xttsbench.records.rows import RowMemory
from xttsbench.records.trial import Rung, TrialRecord, TrialSpec
from xttsbench.workflows.diagnose.diagnose import STEPS, VERDICT_S, window_s
from xttsbench.workflows.outcome import Outcome
from xttsbench.workflows.recorded import Recorded, open_run
from xttsbench.workflows.report import finish

Measure = Callable[[TrialSpec, Callable[[dict[str, Any]], None], RowMemory], None]
"""Runs one rung and hands over its messages and its rows."""

READING_RUNGS: Final[tuple[Rung, ...]] = ("ladder", "pipeline")
"""Those that change nothing in the process for good: a mode of the step might, and a fix needs processes of its own."""
_LABEL: Final = (
    "measured in the calling process only: one process is one replicate, and what else it does is in the times; "
    "name an importable callable for fresh processes, modes and fixes"
)


@dataclass(frozen=True)
class LiveRequest:
    """As :class:`xttsbench.workflows.diagnose.diagnose.Request`; ``name`` says what was given."""

    name: str
    accelerator: str = "real"
    steps: int | None = None
    budget_s: float = 300.0
    out: Path | None = None


def begin_live(request: LiveRequest, kind: Kind, *, reading_s: float, any_order: bool = False) -> tuple[Recorded, Job]:
    """Make the run's directory with plan and environment in it, and the job of the trials that read the target.

    Args:
        request: what was asked for.
        kind: ``diagnose`` or ``optimize``, as the run's name and command have it too.
        reading_s: seconds for those trials.
        any_order: fixes may give up the order of the elements.

    Raises:
        UsageError, InvalidInputError: the request is wrong.
    """
    accelerator = parse_accelerator(request.accelerator)
    plan = RunPlan(
        kind=kind,
        command=f"xttsbench.{kind}({request.name})",
        created_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        target=request.name,
        accelerator=accelerator,
        steps=request.steps or STEPS,
        budget_s=request.budget_s,
        any_order=any_order,
    )
    job = Job(
        target=plan.target,
        kwargs={},
        emulated_ms=accelerator.step_times_ms,
        steps=plan.steps,
        window_s=window_s(reading_s, request.steps is not None),
        seed=plan.seed,
    )
    return open_run(plan, request.out, f"{kind}-live"), job


def diagnose_live(request: LiveRequest, measure: Measure) -> Outcome:
    """Diagnose what ``measure`` measures, and write the run's directory.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
    """
    began = time.monotonic()
    verdict_s = min(VERDICT_S, request.budget_s)
    run, job = begin_live(request, "diagnose", reading_s=verdict_s)
    trials: list[TrialRecord] = []
    while True:
        spec = next_trial(job, trials, verdict_s - (time.monotonic() - began), only=READING_RUNGS)
        if spec is None or spec.block:  # another block is another process, which there is not
            break
        trials.append(_run(spec, measure))
        journal.append(run.directory, trials[-1])
    return finish(replace(run, trials=trials))


def _run(spec: TrialSpec, measure: Measure) -> TrialRecord:
    collected = Collected(spec)
    started_utc, began = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
    collected.take({"note": _LABEL})
    measure(spec, collected.take, collected.rows)
    unread = Readings(unmeasured={"host": "no process of its own to read beside the steps"})
    return collected.record(started_utc=started_utc, duration_s=time.monotonic() - began, readings=unread)
