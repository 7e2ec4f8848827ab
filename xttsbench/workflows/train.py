"""``xttsbench train``: the bundled model learns in a process of its own, which reports to the disk and to the user."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from xttsbench.cluster import TF_CONFIG, Cluster, read_cluster
from xttsbench.errors import JournalError, UsageError
from xttsbench.execution.child import now_utc
from xttsbench.execution.ending import finishes
from xttsbench.execution.journal import TRIALS, append_history, append_trial, read_history, read_trials
from xttsbench.execution.run_directory import ENVIRONMENT, PLAN, lock_run, make_run_directory, read_plan, write_first
from xttsbench.execution.training import run_training, training_environment
from xttsbench.findings.starvation import Starvation, explain
from xttsbench.probes.environment import environment, require_tensorflow
from xttsbench.probes.monitor import Monitor
from xttsbench.probes.nvml import open_gpus
from xttsbench.records import training as records
from xttsbench.records.plan import Comparison, PlannedVariant, RunPlan
from xttsbench.records.redaction import Redaction
from xttsbench.records.report import Finding
from xttsbench.records.trial import TrialSpec
from xttsbench.scenario.settings import BUNDLED
from xttsbench.workflows.bundled import Prepared, TrainRequest, prepare_training, refuse_another, refuse_other_data
from xttsbench.workflows.code_identity import code_identity, data_identity
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.session import Silent
from xttsbench.workflows.reports.history import wait_fraction
from xttsbench.workflows.reports.train import ARM, GROUP, SETUP, assemble_train, read_setup
from xttsbench.workflows.runs import Outcome, judge_training, written
from xttsbench.xtts.data.pool import Progress as DataProgress


class TrainProgress(Protocol):
    """Reports a training run to the user; the command line draws it."""

    def phase(self, name: str) -> None:
        """The process begins something else: ``setup``, ``warm_up``, ``as_is``."""

    def begun(self, begun: records.Begun) -> None:
        """Everything is ready."""

    def interval(self, interval: records.Interval, watched: records.Watched, steps: int, left_s: float) -> None:
        """An interval ended, of a run of so many steps that has so many seconds left."""

    def evaluated(self, evaluated: records.Evaluated) -> None:
        """The held-out loss is known."""

    def spoken(self, spoken: records.Spoken) -> None:
        """The model's speech was heard."""

    def say(self, sentence: str) -> None:
        """Something that deserves a line."""


class SessionProgress:
    """Hears a session of training (see :class:`xttsbench.execution.training.TrainingListener`).

    A function, ``explain``, gives the finding behind a share of the time that is waiting for data.
    """

    def __init__(
        self,
        directory: Path,
        session: int,
        progress: TrainProgress,
        explain: Callable[[float], Finding],
        *,
        clock: Callable[[], float] = time.monotonic,
        redaction: Redaction | None = None,
    ) -> None:
        self.lines: list[records.HistoryLine] = []
        self._redaction = redaction or Redaction()
        self._directory, self._session, self._progress = directory, session, progress
        self._explain, self._clock = explain, clock
        self._starvation = Starvation()
        self._begun: tuple[records.Begun, float] | None = None
        self._is_first = True  # the next interval, of this session
        self._writes = True

    def phase(self, name: str) -> None:
        """Pass it on."""
        self._progress.phase(name)

    def stopping(self) -> None:
        """Say what will happen."""
        self._progress.say("Ending at the next step, with a checkpoint; a second signal ends it at once.")

    def told(self, line: records.HistoryLine) -> None:
        """Keep it, and report what a user wants to know."""
        line = self._redaction.kept(line.model_copy(update={"session": self._session}))
        self.lines.append(line)
        if self._writes:
            try:
                append_history(self._directory, line)
            except JournalError as error:
                # The checkpoints are what counts; the process that writes them tells of its own troubles.
                self._writes = False
                self._progress.say(f"Warning: {error}")
        if line.begun is not None:
            self._begun = line.begun, self._clock()
            self._progress.begun(line.begun)
        if line.interval is not None and line.watched is not None:
            self._interval(line.interval, line.watched)
        if line.evaluated is not None:
            self._progress.evaluated(line.evaluated)
        if line.spoken is not None:
            self._progress.spoken(line.spoken)
        if line.warned is not None:
            self._progress.say(f"Warning: {line.warned}.")

    def _interval(self, interval: records.Interval, watched: records.Watched) -> None:
        is_first, self._is_first = self._is_first, False
        last = interval.first_step + interval.steps - 1
        if self._begun is None:
            return
        begun, since_s = self._begun
        now_s = self._clock()
        left_s = (now_s - since_s) / max(last - begun.step, 1) * max(begun.steps - last, 0)
        self._progress.interval(interval, watched, begun.steps, left_s)
        share = wait_fraction(watched)
        if share is None or is_first:  # the input fills
            return
        self._starvation, sentence = self._starvation.after(self._explain(share), share, now_s)
        if sentence is not None:
            self._progress.say(sentence)


_READINGS_S: Final = 1.0  # between two readings beside the process; a run may take days
_UNLIMITED_S: Final = 1e9  # where a plan asks for a limit in seconds, and training has none


def train(
    request: TrainRequest, *, progress: TrainProgress | None = None, data_progress: DataProgress | None = None
) -> Outcome:
    """Train, or resume the run in ``request.out``, and write its report however that ends.

    Raises:
        UsageError, InvalidInputError: the request, the recipe, the winner or the data cannot be used, or the directory
            holds something else; nothing has been run.
        HelperError: TensorFlow is missing or of an unsupported version, or the process that trains did not start.
    """
    require_tensorflow()
    progress = progress or Silent()
    cluster = read_cluster(os.environ) if request.strategy == "multi_worker" else None
    request, leader = follower(request, cluster.number) if cluster and cluster.number else (request, None)
    if cluster is not None:
        progress.say(_place(request, cluster))
    with ExitStack() as stack:
        resumed = _resumes(request)
        if resumed and request.out is not None:
            stack.enter_context(lock_run(request.out))
        return _train(request, leader, cluster, stack, progress, data_progress, resumed=resumed)


def _train(
    request: TrainRequest,
    leader: Path | None,
    cluster: Cluster | None,
    stack: ExitStack,
    progress: TrainProgress,
    data_progress: DataProgress | None,
    *,
    resumed: bool,
) -> Outcome:
    machine = environment()
    prepared = prepare_training(request, machine, Path.cwd() / "reports", data_progress)
    for sentence in prepared.said:
        progress.say(sentence)
    plan = _plan(request, prepared)
    if resumed and request.out is not None:
        directory = request.out
        before = read_plan(directory)
        plan = plan.model_copy(
            update={"created_utc": before.created_utc, "redact": plan.redact or before.redact, "hidden": before.hidden}
        )
    else:
        now = datetime.fromisoformat(plan.created_utc)
        made = make_run_directory(request.out, f"train-{prepared.recipe.name}", now, clear=request.resume)
        directory = stack.enter_context(made)
    checkpoints = None if leader is None else leader / records.CHECKPOINTS
    job = prepared.job(request, directory, checkpoints).model_copy(update={"tensorboard": not plan.redact})
    setup = records.TrainSetup(job=job, taken_over=prepared.taken, said=prepared.said)
    if resumed and (directory / records.CHECKPOINTS / records.MANIFEST).exists():
        refuse_another(read_setup(directory).job, job)
        refuse_other_data(read_plan(directory), plan, directory)
    run = Recorded(directory, plan, machine)
    kept, said = run.kept, run.redaction.kept(setup)
    with finishes():
        first = {PLAN: kept.plan.model_dump(mode="json"), SETUP: said.model_dump(mode="json")}
        write_first(directory, {ENVIRONMENT: kept.environment, **first})
        return _session(request, run, setup, cluster, progress)


def _resumes(request: TrainRequest) -> bool:
    if request.out is None or not request.resume:
        return False  # a directory that holds something is refused when it is to be made
    if not (request.out / PLAN).exists():
        return False
    kind = read_plan(request.out).kind
    if kind != "train":
        raise UsageError(
            f"--out {str(request.out)!r} holds a run of 'xttsbench {kind}', not of training; name another directory."
        )
    return True


def _plan(request: TrainRequest, prepared: Prepared) -> RunPlan:
    recipe, accelerator = prepared.recipe, request.accelerator
    kwargs: dict[str, Any] = {
        **prepared.config,
        "recipe": recipe.name,
        "data": str(prepared.data),
        "strategy": request.strategy,
        "accumulation": recipe.training.accumulation,
        "input_workers": request.input_workers,
    }
    comparison = Comparison(
        name=GROUP,
        description=recipe.description,
        target=recipe.name,
        bundled=True,
        arms=(PlannedVariant(id=ARM, role="baseline", config=prepared.config, kwargs=kwargs),),
        accelerators=(accelerator,),
        blocks=1,
        steps=recipe.training.steps,
        window_s=_UNLIMITED_S,
        trial_s=_UNLIMITED_S,
        stall_s=_UNLIMITED_S,
    )
    return RunPlan(
        kind="train",
        command=request.command,
        created_utc=now_utc(),
        target=recipe.name,
        kwargs=kwargs,
        accelerator=accelerator,
        steps=recipe.training.steps,
        budget_s=_UNLIMITED_S,
        seed=request.seed,
        redact=request.redact,
        comparison=comparison,
        code=code_identity(BUNDLED, bundled=True),
        data=data_identity([str(prepared.data)]),
    )


def _session(
    request: TrainRequest,
    run: Recorded,
    setup: records.TrainSetup,
    cluster: Cluster | None,
    progress: TrainProgress,
) -> Outcome:
    directory, plan = run.directory, run.plan
    earlier = read_trials(directory) if (directory / TRIALS).exists() else []
    before = read_history(directory)
    number = 1 + max([*(trial.spec.block for trial in earlier), *(line.session for line in before)], default=-1)
    job = setup.job
    why = partial(explain, job.config, overlap=job.overlap, input_workers=job.input_workers)
    session = SessionProgress(directory, number, progress, lambda share: why(share=share), redaction=run.redaction)
    gpus = open_gpus()
    has_gpu = gpus[0] is not None
    variables = training_environment(job, has_gpu=has_gpu)
    named = {} if cluster is None else {TF_CONFIG: cluster.tf_config()}
    try:
        trained = run_training(
            job,
            _spec(job, plan, number),
            session,
            variables={name: value for name, value in variables.items() if name not in os.environ} | named,
            monitor=lambda pid: Monitor(pid, gpus=gpus, interval_s=_READINGS_S),
            print_to_stderr=request.print_to_stderr,
            has_gpu=has_gpu,
        )
    finally:
        if gpus[0] is not None:
            gpus[0].close()
    run = replace(run, trials=[*earlier, trained.record]).kept
    append_trial(directory, run.trials[-1])
    report = assemble_train(run, [*before, *session.lines], run.redaction.kept(setup))
    return written(run, report, judge_training(trained, report))


def _spec(job: records.TrainJob, plan: RunPlan, number: int) -> TrialSpec:
    return TrialSpec(
        trial_id=f"{number:03d}-{ARM}",
        block=number,
        kind="arm",
        target=plan.target,
        kwargs=plan.kwargs,
        emulated_ms=plan.accelerator.step_times_ms,
        steps=plan.steps,
        window_s=_UNLIMITED_S,
        seed=job.seed,
        arm=ARM,
        group=GROUP,
    )


def _place(request: TrainRequest, cluster: Cluster) -> str:
    writes = f"its own journal and report are in {request.out}" if cluster.number else "it writes the checkpoints"
    return (
        f"worker {cluster.number} of {len(cluster.addresses)}, at {cluster.addresses[cluster.number]}: {writes}; "
        "training begins when all of them have started"
    )


def follower(request: TrainRequest, number: int) -> tuple[TrainRequest, Path]:
    """Return the request of a worker that does not write checkpoints, and the run that does.

    Its own journal and report lie beside that run, in a directory of their own: two processes never write one file.

    Raises:
        UsageError: the run is not named.
    """
    if request.out is None:
        raise UsageError(
            f"worker {number} needs --out, the same directory for all processes and on storage that they share: it "
            "holds the checkpoints."
        )
    return replace(request, out=request.out.with_name(f"{request.out.name}.worker-{number}")), request.out
