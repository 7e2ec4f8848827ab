"""``xttsbench diagnose`` and ``xttsbench optimize``: isolate what a step waits for, and verify what mends it.

A run is opened, measured and finished; each stage is entered once. The two commands differ in how the time is shared
out: a diagnosis takes what a verdict needs and verifies fixes in the rest, ``optimize`` reads the pipeline once and
keeps the time for its fixes.

``xttsbench optimize``: what the cure is worth, and the same data proved.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from xttsbench import BUDGET_S
from xttsbench.cluster import task_of
from xttsbench.diagnosis import Diagnosis, build_diagnosis
from xttsbench.diagnosis.bottleneck import SURE
from xttsbench.diagnosis.look import look
from xttsbench.diagnosis.next_trial import MODES, PROCESSES, next_trial
from xttsbench.diagnosis.verdict import summary
from xttsbench.errors import UsageError
from xttsbench.execution.accelerator import parse_accelerator
from xttsbench.execution.child import now_utc
from xttsbench.execution.limits import Limits
from xttsbench.execution.run_directory import PROFILE
from xttsbench.planning import IMPORT_S, Job, job_of
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.report import Kind
from xttsbench.records.trial import Look, TrialKind, TrialRecord, TrialSpec, interrupted
from xttsbench.targets.spec import parse_target
from xttsbench.workflows.measure.arms import compare_arms
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.session import Progress, Session, Silent
from xttsbench.workflows.optimize import said_writes, verify_fixes
from xttsbench.workflows.runs import REPORT_S, Outcome, finish, open_run

VERDICT_S: Final = 60.0
STEPS: Final = 400
"""Steps to measure where there is time: 240 certify a steady state, 400 show a period."""
_MODES_S: Final = 36.0
"""For the modes of the step, where the job asks what each costs and the time for the verdict has not sufficed."""
_COMPARE_S: Final = 45.0  # for the configurations that are compared after the verdict
_COMPARE_ROUNDS: Final = 4  # at most: one process of each is compared, and many rounds of it say little more
_SCRIPT_SHARE: Final = 0.3
"""Share of the time for the verdict that the steps of a script get: it also has to start, and to be read afterwards."""
_NO_STEP_SHARE: Final = 0.2
_NO_STEP_S: Final = 20.0
"""Share of the budget, and seconds at least, without a sign of a step after which a script is stopped."""
_READ_S: Final = 45.0  # for reading the target, where the time is for its fixes
_READING: Final[tuple[TrialKind, ...]] = ("ladder", "pipeline", "graph", "xla")
"""Kinds of trials that say which fixes are worth verifying."""
_STRETCH: Final = 0.1  # Of the budget, for one stretch of the target as it is after its rounds
_SHORT_STRETCH: Final = 0.02  # The same where the time is for fixes, or for what is compared afterwards
_FIXES_REPORT_S: Final = 10.0
"""The same after fixes were verified: there are some forty trials more, and one of them may be late."""


@dataclass(frozen=True)
class Request:
    """Options of the user.

    Attributes:
        target: ``module:callable``, ``file.py:callable``, or a script.
        kwargs: keyword arguments of the callable.
        arguments: of the script.
        keep_writes: what the script writes in its first run goes to the disk.
        repeat: the script may run again: a second time, and with fixes.
        accelerator: as on the command line.
        steps: steps to measure in a segment at most; ``None`` for 400 where time allows.
        budget_s: seconds for everything; a verdict is due after 60 of them, and may take all where it stays undecided.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        print_to_stderr: what the target prints goes to standard error.
        show_output: what the target prints goes through, and not to a file of the run.
        command: as it was typed, for the report.
        comparison: configurations to measure after the verdict, or ``None``.
        kind: ``diagnose`` or ``optimize``.
        verify: verify fixes in what is left of the budget.
        assume_pure: functions (``module.function``) that the user says are pure.
        tries: fixes that are verified whatever is expected of them.
    """

    target: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    accelerator: str = "real"
    steps: int | None = None
    budget_s: float = BUDGET_S
    out: Path | None = None
    profile: bool = False
    seed: int = 0
    print_to_stderr: bool = False
    show_output: bool = False
    redact: bool = False
    command: str = "xttsbench diagnose"
    comparison: Comparison | None = None
    arguments: tuple[str, ...] = ()
    keep_writes: bool = False
    repeat: bool = False
    kind: Kind = "diagnose"
    verify: bool = True
    assume_pure: tuple[str, ...] = ()
    tries: tuple[str, ...] = ()


def diagnose(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Diagnose a target and write its run's directory.

    Everything measured is on disk before the next trial starts, and a report is written however the run ended.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    if request.redact and request.profile:
        raise UsageError(
            "--profile has TensorFlow write names and paths of this machine, which --redact leaves out; give one."
        )
    began, target = time.monotonic(), parse_target(request.target, scripts=True)
    script = target.kind == "script"
    if script and (task := task_of(os.environ)) is not None:
        raise UsageError(
            f"{request.target!r} is rank {task.rank} of {task.ranks} by {task.source}: diagnose stops a script once it "
            "has seen enough, and the other ranks would wait for it. On each rank: xttsbench watch --out DIR "
            f"{shlex.quote(request.target)}; then xttsbench report DIR."
        )
    plan = plan_of(request)
    with open_run(plan, request.out, f"{plan.kind}-{target.name}", began=began) as run:
        return finish(replace(run, trials=_measured(run, request, progress or Silent(), script=script)))


def plan_of(request: Request) -> RunPlan:
    """The plan of a diagnosis, or of a search for fixes.

    Raises:
        UsageError, InvalidInputError: the accelerator is none.
    """
    asked = {name: value for name, value in vars(request).items() if name in RunPlan.model_fields}
    return RunPlan(
        **asked
        | {
            "created_utc": now_utc(),
            "accelerator": parse_accelerator(request.accelerator),
            "steps": request.steps or STEPS,
            # Configurations that are compared are the remedy, and a page with two of them serves nobody.
            "verified": request.verify and request.comparison is None,
        }
    )


def _measured(run: Recorded, request: Request, progress: Progress, *, script: bool) -> Sequence[TrialRecord]:
    """All trials of a run: the experiments that isolate causes, then configurations, then fixes."""
    plan, optimizing = run.plan, run.plan.kind == "optimize"
    verdict_s = min(_READ_S if optimizing else VERDICT_S, plan.budget_s) - REPORT_S
    job = job_of(
        plan,
        _SCRIPT_SHARE * verdict_s if script else window_s(verdict_s, request.steps is not None),
        stretch_s=(_SHORT_STRETCH if optimizing or plan.comparison is not None else _STRETCH) * plan.budget_s,
        profile_dir=str(run.directory / PROFILE) if plan.profile else None,
        script=script,
        repeat=request.repeat,
        private=str(run.directory.absolute()) if script and not request.keep_writes else None,
        no_step_s=max(_NO_STEP_SHARE * plan.budget_s, _NO_STEP_S) if script else None,
    )
    isolation = Isolation(job, run.environment, plan.budget_s, verdict_s, _READING if optimizing else None)
    with run.session(
        progress, print_to_stderr=request.print_to_stderr, scripts=script, keeps_output=not request.show_output
    ) as session:
        found = isolate(isolation, session, progress)
        seen = session.trials[0].script if session.trials else None
        if seen is not None and (said := said_writes(seen)) is not None:
            progress.status(said)
        if plan.comparison is not None:
            _compare(plan.comparison, plan, session)
            due_s = min(session.spent_s + _MODES_S, plan.budget_s - REPORT_S)
            found = isolate(replace(isolation, due_s=due_s, only=MODES), session, progress)
        if not optimizing:
            found = isolate(replace(isolation, due_s=plan.budget_s - REPORT_S, undecided=True), session, progress)
        if plan.verified and found is not None and not interrupted(session.trials):
            verify_fixes(run, job, session, found.evidence, until_s=plan.budget_s - _FIXES_REPORT_S)
        return session.trials


@dataclass(frozen=True)
class Isolation:
    """The experiments that tell apart what a step waits for.

    Attributes:
        job: what their trials share.
        environment: of the run.
        budget_s: seconds of the session for everything.
        due_s: seconds of the session at which the verdict is due.
        only: the kinds of trial that may be run, where not all may.
        undecided: go on only as long as no bottleneck is named.
    """

    job: Job
    environment: Mapping[str, Any]
    budget_s: float
    due_s: float
    only: Collection[TrialKind] | None = None
    undecided: bool = False

    def next(
        self, trials: Sequence[TrialRecord], found: Diagnosis | None, spent_s: float
    ) -> tuple[TrialSpec | None, str | None]:
        """The next trial after these and what is found in them, ``None`` where none is left; what may be said. Pure."""
        said = found if found is not None and found.figures else None
        if self.undecided and (said is None or said.bottleneck != "inconclusive"):
            return None, None
        processes = max(PROCESSES, round(PROCESSES * self.budget_s / BUDGET_S)) if self.undecided else PROCESSES
        if self.only is not None:
            processes = 1  # the whole again in a fresh process makes a verdict surer, and no fix
        spec = next_trial(self.job, trials, self.due_s - spent_s, said=said, only=self.only, processes=processes)
        told = said is not None and self.only is None and trials[-1].status == "ok"
        return spec, _provisional(said) if told and said is not None else None

    def after_the_first(self, record: TrialRecord, import_s: float) -> Isolation:
        """The same with the time for the verdict that this target and this machine need."""
        most_s = max(self.due_s, self.budget_s - REPORT_S)
        # Steps of many seconds: no verdict by the usual time, so the whole budget serves to reach one.
        slow = record.duration_s - record.stretch_s > 0.5 * self.due_s
        # TensorFlow read from a cold disk takes half a minute to start: that is not taken from the measuring.
        late_s = max(import_s - IMPORT_S, 0.0) + record.stretch_s
        return replace(self, due_s=most_s if slow else min(self.due_s + late_s, most_s))


def isolate(wanted: Isolation, session: Session, progress: Progress) -> Diagnosis | None:
    """Run trials until none is left or the time is over; what all say, ``None`` where the user ended the run."""
    told: list[str | None] = [None]

    def tell(sentence: str | None) -> None:
        if sentence not in (None, told[-1]):
            progress.status(sentence)
            told.append(sentence)

    def judged(record: TrialRecord) -> Look:
        trials = [*session.trials, record]
        found, seen = look(trials, wanted.environment, budget_s=wanted.budget_s, seed=wanted.job.seed)
        tell(_provisional(found))
        return seen

    while not interrupted(trials := session.trials):
        found = build_diagnosis(trials, wanted.environment, seed=wanted.job.seed) if trials else None
        spec, sentence = wanted.next(trials, found, session.spent_s)
        tell(sentence)
        if spec is None:
            return found
        first, script = not trials, wanted.job.script
        limits = trial_limits(wanted.budget_s, session.spent_s, wanted.due_s, first=first, script=script)
        record = session.run(spec, limits, verdict=judged)
        if first:
            wanted = wanted.after_the_first(record, session.import_s)
    return None


def _provisional(said: Diagnosis) -> str:
    if said.evidence.bottleneck == "inconclusive":
        return f"so far undecided: {said.why_undecided}"
    sure = "" if said.probability >= SURE or said.at_threshold else f", with a probability of {said.probability:.0%}"
    return f"so far: {summary(said).rstrip('.')}{sure}"


def _compare(comparison: Comparison, plan: RunPlan, session: Session) -> None:
    """Measure the configurations that the job names, unless the target itself could not be measured."""
    if interrupted(session.trials) or session.trials[0].status != "ok":
        return
    compare_arms(
        comparison,
        session,
        # The helper at hand, which has run the target before and nothing else.
        first_block=session.trials[-1].spec.block,
        rounds=_COMPARE_ROUNDS,
        budget_s=min(_COMPARE_S, plan.budget_s - REPORT_S - session.spent_s),
        seed=plan.seed,
    )


def window_s(verdict_s: float, more_steps: bool) -> float:
    """Seconds for the main segment: all isolation experiments take about eleven of them."""
    return max(min(verdict_s / 11, 5.0), 0.8) * (2 if more_steps else 1)


def trial_limits(budget_s: float, spent_s: float, verdict_s: float, *, first: bool, script: bool = False) -> Limits:
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


def optimize(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Look for fixes, verify them, and write patch and plan of what was accepted into the run's directory.

    Raises:
        UsageError, InvalidInputError: the request is wrong; nothing has been run.
        HelperError: TensorFlow cannot be started here.
    """
    return diagnose(replace(request, kind="optimize", verify=True), progress=progress)
