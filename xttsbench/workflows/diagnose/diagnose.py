"""``xttsbench diagnose`` and ``xttsbench optimize``: climb the ladder, say what limits the step, verify what mends it.

The two differ in how the time is shared out: a diagnosis takes what a verdict needs and verifies fixes in the rest,
``optimize`` reads the pipeline once and keeps the time for its fixes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from xttsbench.diagnosis.classify import SURE
from xttsbench.diagnosis.diagnosis import Diagnosis, build_diagnosis, interim
from xttsbench.diagnosis.next_trial import IMPORT_S, MODES, Interim, Job, next_trial
from xttsbench.diagnosis.verdict import summary
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.execution.limits import Limits
from xttsbench.execution.run_directory import ENVIRONMENT, PLAN, PROFILE, make_run_directory, write_json
from xttsbench.probes.environment import environment as read_environment
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.report import Kind
from xttsbench.records.trial import Rung, TrialRecord
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.diagnose.report import assemble
from xttsbench.workflows.fixes import verify_fixes
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.measure.session import Progress, Session, Silent
from xttsbench.workflows.outcome import Outcome, judge
from xttsbench.workflows.saved_plan import write_plan

VERDICT_S: Final = 60.0
STEPS: Final = 400
"""Steps to measure where there is time: 240 certify a steady state, 400 show a period."""
_MODES_S: Final = 36.0
"""For the modes of the step, where the job asks what each costs and the time for the verdict has not sufficed."""
_COMPARE_S: Final = 60.0
"""For the arms that are compared after the verdict."""
_COMPARE_ROUNDS: Final = 4
_SCRIPT_SHARE: Final = 0.3
"""Share of the time for the verdict that the steps of a script get: it also has to start, and to be read afterwards."""
_READ_S: Final = 45.0
"""For reading the target, where the time is for its fixes."""
_READING: Final[tuple[Rung, ...]] = ("ladder", "pipeline", "graph", "xla")
"""Rungs that say which fixes are worth verifying."""
_REPORT_S: Final = 5.0
"""Kept for the report and its plots."""
_FIXES_REPORT_S: Final = 10.0
"""The same after fixes were verified: there are some forty trials more, and one of them may be late."""


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        target: ``module:callable``, ``file.py:callable``, or a script.
        kwargs: keyword arguments of the callable.
        arguments: of the script.
        repeat: the script may be run a second time.
        accelerator: as on the command line.
        steps: steps to measure in a segment at most; ``None`` for 400 where time allows.
        budget_s: seconds for everything; a verdict is due after 60 of them at most.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        print_to_stderr: what the target prints goes to standard error.
        command: as it was typed, for the report.
        comparison: arms to measure after the verdict, or ``None``.
        kind: ``diagnose`` or ``optimize``.
        verify: verify fixes in what is left of the budget.
        any_order: verify fixes that give up the order of the elements too.
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
    comparison: Comparison | None = None
    arguments: tuple[str, ...] = ()
    repeat: bool = False
    kind: Kind = "diagnose"
    verify: bool = True
    any_order: bool = False


def diagnose(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Diagnose a target and write its run's directory.

    Everything measured is on disk before the next trial starts, and a report is written however the run ended.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    began = time.monotonic()
    target = parse_target(request.target, scripts=True)
    script = target.kind == "script"
    accelerator = parse_accelerator(request.accelerator)
    now = datetime.now(UTC)
    directory = make_run_directory(request.out, f"{request.kind}-{target.name}", now)
    plan = RunPlan(
        kind=request.kind,
        command=request.command,
        created_utc=now.isoformat(timespec="milliseconds"),
        target=request.target,
        kwargs=dict(request.kwargs),
        arguments=request.arguments,
        accelerator=accelerator,
        steps=request.steps or STEPS,
        budget_s=request.budget_s,
        seed=request.seed,
        profile=request.profile,
        comparison=request.comparison,
        any_order=request.any_order,
        verified=request.verify and not script,
    )
    environment = read_environment(directory)
    write_json(directory / PLAN, plan.model_dump(mode="json"))
    write_json(directory / ENVIRONMENT, environment)
    optimizing = request.kind == "optimize"
    verdict_s = min(_READ_S if optimizing else VERDICT_S, request.budget_s) - _REPORT_S
    ladder = Job(
        target=plan.target,
        kwargs=plan.kwargs,
        emulated_ms=accelerator.step_times_ms,
        steps=plan.steps,
        window_s=_SCRIPT_SHARE * verdict_s if script else window_s(verdict_s, request.steps is not None),
        seed=plan.seed,
        profile_dir=str(directory / PROFILE) if request.profile else None,
        script=script,
        arguments=request.arguments,
        repeat=request.repeat,
    )
    told = progress or Silent()
    with Session(
        directory,
        print_to_stderr=request.print_to_stderr,
        progress=progress,
        budget_s=request.budget_s,
        began=began,
        scripts=script,
    ) as session:
        _climb(ladder, request, session, environment, verdict_s, told, only=_READING if optimizing else None)
        if request.comparison is not None:
            until_s = min(session.spent_s + _MODES_S, request.budget_s - _REPORT_S)
            for mode in MODES:
                _climb(ladder, request, session, environment, until_s, told, only=(mode,))
            _compare(request.comparison, request, session)
        patch = None
        if plan.verified and not _interrupted(session):
            until_s = request.budget_s - _FIXES_REPORT_S
            patch = verify_fixes(plan, environment, ladder, session, directory, until_s=until_s)
        trials = session.trials
    report = assemble(plan, environment, trials, patch, directory=directory)
    # Here and not above: plots are drawn when no trial runs any more, so that the parent stays small until then.
    from xttsbench.reporting.write import write_run

    warnings = write_run(directory, report, trials)
    if report.optimized is not None:
        write_plan(directory, report.optimized)
    code, message = judge(report, trials)
    return Outcome(report, directory, code, message, tuple(warnings or ()))


def _climb(
    job: Job,
    request: Request,
    session: Session,
    environment: Mapping[str, Any],
    verdict_s: float,
    progress: Progress,
    *,
    only: Collection[Rung] | None = None,
) -> None:
    """Run trials, of these rungs alone where some are named, until none is left or the time is over."""
    before = None
    while not _interrupted(session):
        said = _so_far(session.trials, environment, request.seed)
        if only is None and said is not None and session.trials[-1].status == "ok":
            sentence = _provisional(said)
            if sentence != before:
                progress.standing(f"[{session.spent_s:3.0f} s of {request.budget_s:.0f}] {sentence}")
            before = sentence
        spec = next_trial(
            job, session.trials, verdict_s - session.spent_s, said=interim(said) if said else Interim(), only=only
        )
        if spec is None or (only is not None and spec.rung == "ladder" and spec.block):
            break  # the whole again in a fresh process makes a verdict surer, and no fix
        limits = _limits(request.budget_s, session.spent_s, verdict_s, first=not session.trials, script=job.script)
        record = session.run(spec, limits)
        if len(session.trials) == 1:
            most_s = max(verdict_s, request.budget_s - _REPORT_S)
            # Steps of many seconds: no verdict by the usual time, so the whole budget serves to reach one.
            slow = record.duration_s > 0.5 * verdict_s
            # TensorFlow read from a cold disk takes half a minute to start: that is not taken from the measuring.
            late_s = max(session.import_s - IMPORT_S, 0.0)
            verdict_s = most_s if slow else min(verdict_s + late_s, most_s)


def _so_far(trials: Sequence[TrialRecord], environment: Mapping[str, Any], seed: int) -> Diagnosis | None:
    """The diagnosis of the trials so far; ``None`` before a step was measured."""
    if not trials:
        return None
    found = build_diagnosis(trials, environment, seed=seed)
    return found if found.figures else None


def _provisional(said: Diagnosis) -> str:
    """What is said before everything has been measured."""
    if said.evidence.bottleneck == "inconclusive":
        return f"so far undecided: {said.why_undecided}"
    sure = "" if said.probability >= SURE else f", with a probability of {said.probability:.0%}"
    return f"so far: {summary(said).rstrip('.')}{sure}"


def _compare(comparison: Comparison, request: Request, session: Session) -> None:
    """Measure the arms that the job names, in what is left of the budget, unless the ladder has failed."""
    if _interrupted(session) or session.trials[0].status != "ok":
        return
    left_s = request.budget_s - _REPORT_S - session.spent_s
    compare_arms(
        comparison,
        session,
        # The helper at hand, which has run the target before and nothing else.
        first_block=session.trials[-1].spec.block,
        rounds=_COMPARE_ROUNDS,
        budget_s=min(_COMPARE_S, left_s),
        seed=request.seed,
    )


def _interrupted(session: Session) -> bool:
    return any(trial.status == "interrupted" for trial in session.trials)


def window_s(verdict_s: float, more_steps: bool) -> float:
    """Seconds for the main segment: the whole ladder takes about eleven of them."""
    return max(min(verdict_s / 11, 5.0), 0.8) * (2 if more_steps else 1)


def _limits(budget_s: float, spent_s: float, verdict_s: float, *, first: bool, script: bool = False) -> Limits:
    """The first trial may use what the budget allows, compilation included; later ones what is left for the verdict.

    On a machine that is slow now they may go on to the end of the budget. A script may say nothing for long before its
    first step: it makes its data then.
    """
    if script:
        return Limits(time_s=budget_s, stall_s=budget_s, most_s=budget_s)
    # The first trial may wait for long before its first batch: what it builds is built once.
    stall_s = min(max(budget_s / (2 if first else 5), 15.0), 60.0)
    time_s = max(budget_s * 0.8, 30.0) if first else max(verdict_s - spent_s, 10.0) + 5.0
    return Limits(time_s, stall_s, most_s=max(time_s, budget_s - spent_s))
