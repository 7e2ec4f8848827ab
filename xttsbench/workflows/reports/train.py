"""The report of a training run from its files: plan, environment, sessions and history in, record and exit code out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from xttsbench.comparison.arms import compare
from xttsbench.diagnosis.training import train_verdict
from xttsbench.diagnosis.verdict import RunVerdict
from xttsbench.execution.journal import read_history
from xttsbench.execution.run_directory import read_record
from xttsbench.findings.starvation import STARVING, explain
from xttsbench.records.missing import nulls
from xttsbench.records.report import Finding, Report, WarmUp
from xttsbench.records.training import HistoryLine, TrainSetup
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows import reports
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.reports.history import training_of

ARM: Final = "train"
"""The one configuration of a run, by which two runs are compared."""
GROUP: Final = "train"
SETUP: Final = "train.json"
_DIAGNOSED: Final = "training measures itself alone; 'xttsbench diagnose' takes it apart"


def assemble_train(run: Recorded, lines: Sequence[HistoryLine], setup: TrainSetup) -> Report:
    """Everything that the run's files say, as the report record.

    Raises:
        JournalError: the plan is not that of training.
    """
    plan, trials = run.plan, run.trials
    # A session that failed and was resumed says nothing of the run.
    counted = [trial for trial in trials[:-1] if trial.status == "ok"] + list(trials[-1:])
    compared = compare(run.comparison, counted)
    arm, job = compared.arms[0], setup.job
    result = train_verdict(trials, arm, mode=str(job.config.get("mode")))
    training, time_s = training_of(lines, plan.target, setup.taken_over), result.verdict.step_time_s
    record = Report(
        **reports.shared(run),
        target=reports.target(plan, trials),
        verdict=result.verdict.model_copy(update={"verdict_final_s": reports.verdict_final_s(trials)}),
        findings=_findings(result, setup),
        oscillation=result.oscillation,
        arms=compared.arms if result.steps is not None else (),
        accelerator=reports.accelerator(plan.accelerator, result.verdict.accelerator_utilization),
        warm_up=_warm_up(result, lines),
        overhead=reports.overhead(trials[::-1], time_s.estimate if time_s is not None else None),
        readings=reports.readings_beside(result.trial),
        warnings=_warnings(trials, lines),
        training=training,
    )
    return record.model_copy(update={"unmeasured": _unmeasured(record, result, compared.unmeasured)})


def read_setup(directory: Path) -> TrainSetup:
    """Setup of the training process in the last session.

    Raises:
        JournalError: the file is missing or malformed.
    """
    return read_record(directory / SETUP, TrainSetup, "that of a training run", name="a training run")


def assembled_train(run: Recorded) -> Report:
    """The report of a run, with its history and setup read from its directory."""
    return assemble_train(run, read_history(run.directory), read_setup(run.directory))


def _findings(result: RunVerdict, setup: TrainSetup) -> tuple[Finding, ...]:
    """Findings that explain the waiting, where there is much of it; and an eager step."""
    found = []
    job, wait = setup.job, result.verdict.input_wait_fraction
    if wait is not None and wait.estimate >= STARVING:
        finding = explain(job.config, overlap=job.overlap, input_workers=job.input_workers, share=wait.estimate)
        found.append(finding.model_copy(update={"limiting": result.verdict.bottleneck == "input"}))
    if job.config.get("mode") == "eager":
        found.append(
            Finding(
                rule="eager-step",
                severity="warning",
                limiting=False,
                title="the step is launched op by op from Python",
                remedy="Leave out --no-graph: an eager step is for debugging.",
            )
        )
    return tuple(found)


def _warm_up(result: RunVerdict, lines: Sequence[HistoryLine]) -> WarmUp:
    """Steps before the steady state of the session with the most steps."""
    if result.steps is None or result.steady is None or result.trial is None:
        return WarmUp(reason=result.verdict.summary)
    session = result.trial.spec.block
    begun = next((line.begun for line in lines if line.session == session and line.begun is not None), None)
    first_s = begun.warm_up_s if begun is not None else None
    return reports.cut(result.steps, result.steady).model_copy(update={"first_step_s": first_s})


def _warnings(trials: Sequence[TrialRecord], lines: Sequence[HistoryLine]) -> tuple[str, ...]:
    found = [f"{line.warned}." for line in lines if line.warned is not None]
    for trial in trials:
        if trial.status != "ok":
            found.append(f"session {trial.spec.block} ended as {trial.status}: {trial.cause}")
        found += list(trial.notes)
    return tuple(dict.fromkeys(found))


def _unmeasured(record: Report, result: RunVerdict, of_arms: Mapping[str, str]) -> dict[str, str]:
    found = dict(result.unmeasured)
    if record.arms:
        found |= {path: why for path, why in of_arms.items() if path.startswith("arms.")}
    else:
        found["arms"] = record.verdict.summary
    found |= dict.fromkeys(("aa.effect", "aa.noisy", "aa.smallest_visible_effect"), "a training run is measured once")
    before = "tracing and compilation of all shapes come before the steps, and are reported as one time"
    why = record.verdict.summary if result.steps is None else before
    found |= nulls("warm_up", record.warm_up, why, but=("reason",))
    if record.verdict.verdict_final_s is None:
        found["verdict.verdict_final_s"] = "no session ended"
    if not record.overhead:
        found["overhead"] = "it is measured when a session ends by itself"
    return found | {"pipeline": _DIAGNOSED, "profile": _DIAGNOSED, "parity": "there is nothing to compare"}
