"""``xttsbench diagnose``: climb the ladder trial by trial, then say what limits the step and what it would give."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import HelperError
from xttsbench.execution import journal
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.execution.helper import Helper
from xttsbench.execution.limits import Limits
from xttsbench.execution.run_directory import ENVIRONMENT, PLAN, PROFILE, make_run_directory, write_json
from xttsbench.execution.trial import run_trial
from xttsbench.probes.environment import environment as read_environment
from xttsbench.probes.monitor import Monitor
from xttsbench.probes.nvml import open_gpus
from xttsbench.records.plan import Accelerator, RunPlan
from xttsbench.records.trial import TrialRecord, TrialSpec, TrialStatus
from xttsbench.rules.next_trial import Job, next_trial
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.assemble import assemble
from xttsbench.workflows.outcome import Outcome, judge
from xttsbench.workflows.progress import Progress, Silent

VERDICT_S: Final = 60.0
STEPS: Final = 400
"""Steps to measure where there is time: 240 certify a steady state, 400 show a period."""
_REPORT_S: Final = 5.0
"""Kept for the report and its plots."""


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        target: ``module:callable`` or ``file.py:callable``.
        kwargs: keyword arguments of the callable.
        accelerator: as on the command line.
        steps: steps to measure in a segment at most; ``None`` for 400 where time allows.
        budget_s: seconds for everything; a verdict is due after 60 of them at most.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        print_to_stderr: what the target prints goes to standard error.
        command: as it was typed, for the report.
    """

    target: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    accelerator: str = "real"
    steps: int | None = None
    budget_s: float = 300.0
    out: Path | None = None
    profile: bool = False
    seed: int = 0
    print_to_stderr: bool = False
    command: str = "xttsbench diagnose"


def diagnose(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Diagnose a target and write its run's directory.

    Everything measured is on disk before the next trial starts, and a report is written however the run ended.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    began = time.monotonic()
    target = parse_target(request.target)
    accelerator = parse_accelerator(request.accelerator)
    now = datetime.now(UTC)
    directory = make_run_directory(request.out, f"diagnose-{target.attribute}", now)
    plan = RunPlan(
        kind="diagnose",
        command=request.command,
        created_utc=now.isoformat(timespec="milliseconds"),
        target=request.target,
        kwargs=dict(request.kwargs),
        accelerator=accelerator,
        steps=request.steps or STEPS,
        budget_s=request.budget_s,
        seed=request.seed,
        profile=request.profile,
    )
    environment = read_environment(directory)
    write_json(directory / PLAN, plan.model_dump(mode="json"))
    write_json(directory / ENVIRONMENT, environment)
    trials = _climb(request, plan, accelerator, directory, began, progress or Silent())
    report = assemble(plan, environment, trials)
    # Here and not above: plots are drawn when no trial runs any more, so that the parent stays small until then.
    from xttsbench.reporting.write import write_run

    warnings = write_run(directory, report, trials)
    code, message = judge(report, trials)
    return Outcome(report, directory, code, message, tuple(warnings or ()))


def _climb(
    request: Request,
    plan: RunPlan,
    accelerator: Accelerator,
    directory: Path,
    began: float,
    progress: Progress,
) -> list[TrialRecord]:
    """Run trials until the ladder is climbed or the time for the verdict is over."""
    verdict_s = min(VERDICT_S, request.budget_s) - _REPORT_S
    job = Job(
        target=plan.target,
        kwargs=plan.kwargs,
        emulated_ms=accelerator.step_times_ms,
        steps=plan.steps,
        window_s=_window_s(verdict_s, request.steps is not None),
        seed=plan.seed,
        profile_dir=str(directory / PROFILE) if request.profile else None,
    )
    gpus = open_gpus()
    trials: list[TrialRecord] = []
    helper: Helper | None = None
    block = -1
    try:
        while (spec := next_trial(job, trials, verdict_s - (time.monotonic() - began))) is not None:
            try:
                if spec.block != block or helper is None or helper.exit_code() is not None:
                    if helper is not None:
                        helper.__exit__(None, None, None)
                    helper = Helper(print_to_stderr=request.print_to_stderr, has_gpu=gpus[0] is not None)
                    block = spec.block
                    helper.__enter__()
                    progress.trial("importing TensorFlow", time.monotonic() - began, verdict_s)
                    helper.wait_ready()
                spent = time.monotonic() - began
                progress.trial(spec.trial_id, spent, verdict_s)
                limits = _limits(request.budget_s, verdict_s - spent, first=not trials)
                record = run_trial(
                    spec,
                    helper,
                    limits,
                    monitor=lambda pid: Monitor(pid, gpus=gpus),
                    progress=progress.step,
                )
            except HelperError as error:
                if not trials or helper is None:
                    raise
                # Killed between two trials: the next one gets another helper, and what was measured is kept.
                helper.__exit__(None, None, None)
                helper, record = None, _never_begun(spec, "killed", str(error))
            trials.append(record)
            journal.append(directory, record)
            if len(trials) == 1 and record.duration_s > 0.5 * verdict_s:
                # Steps of many seconds: no verdict by the usual time, so the whole budget serves to reach one.
                verdict_s = max(verdict_s, request.budget_s - _REPORT_S)
            progress.done(spec.trial_id, record.status, record.duration_s)
            if record.status == "interrupted":
                break
    except KeyboardInterrupt:
        # Between two trials: the report of what there is, and then the exit code of an interruption. The journal has
        # it too, so that the report built again from it is the same.
        spec = job.spec(len(trials), "ladder", block=max(block, 0))
        trials.append(_never_begun(spec, "interrupted", "interrupted before the trial began"))
        journal.append(directory, trials[-1])
    finally:
        if helper is not None:
            helper.__exit__(None, None, None)
        if gpus[0] is not None:
            gpus[0].close()
    return trials


def _window_s(verdict_s: float, more_steps: bool) -> float:
    """Seconds for the main segment: the whole ladder takes about eleven of them."""
    return max(min(verdict_s / 11, 5.0), 0.8) * (2 if more_steps else 1)


def _limits(budget_s: float, left_s: float, *, first: bool) -> Limits:
    """The first trial may use what the budget allows, compilation included; later ones what is left for the verdict."""
    stall_s = min(max(budget_s / 5, 15.0), 60.0)
    return Limits(time_s=max(budget_s * 0.8, 30.0) if first else max(left_s, 10.0) + 5.0, stall_s=stall_s)


def _never_begun(spec: TrialSpec, status: TrialStatus, cause: str) -> TrialRecord:
    return TrialRecord(
        spec=spec,
        status=status,
        cause=cause,
        started_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        duration_s=0.0,
    )
