"""A run from its directory to its end: opened, measured by a session, reported, and judged by an exit code.

All of the end follows from the run's files, so that ``xttsbench report DIR`` does it again, without TensorFlow.
"""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from xttsbench.errors import JournalError
from xttsbench.execution.ending import finishes
from xttsbench.execution.journal import read_trials
from xttsbench.execution.run_directory import (
    ENVIRONMENT,
    OUTPUT,
    PLAN,
    lock_run,
    make_run_directory,
    read_environment,
    read_plan,
    write_first,
)
from xttsbench.execution.training import Trained
from xttsbench.files import atomic_write
from xttsbench.probes.environment import environment as read_machine
from xttsbench.probes.environment import require_tensorflow
from xttsbench.records.base import DECIDED
from xttsbench.records.plan import Comparison, RunPlan
from xttsbench.records.report import Report
from xttsbench.records.trial import MAIN_KINDS, TrialRecord, changed_file, interrupted
from xttsbench.workflows.measure.recorded import Recorded
from xttsbench.workflows.measure.sources import said as said_changed
from xttsbench.workflows.optimize import read_patch
from xttsbench.workflows.reports.diagnose import assemble
from xttsbench.workflows.reports.plan import assembled_plan
from xttsbench.workflows.reports.prove import assembled_proof
from xttsbench.workflows.reports.scenario import assemble_run, assemble_sweep
from xttsbench.workflows.reports.train import assembled_train
from xttsbench.workflows.saved import write_best, write_plan

REPORT_S: Final = 5.0
"""Seconds of a budget that are kept for the report and its plots."""


@contextmanager
def open_run(
    plan: RunPlan,
    out: Path | None,
    name: str,
    *,
    began: float | None = None,
    clear: bool = False,
    machine: Mapping[str, Any] | None = None,
    needs_tensorflow: bool = True,
) -> Iterator[Recorded]:
    """Make a run's directory, with its environment and its plan in it, and hold it until the run has its report.

    Args:
        plan: what is to be measured.
        out: the run's own directory, or ``None`` for one under ``reports/``.
        name: of the directory there.
        began: see :class:`Recorded`; now without it.
        clear: see :func:`xttsbench.execution.run_directory.make_run_directory`.
        machine: its environment, where another machine measures; this one's without it.
        needs_tensorflow: other processes load it; not where this one has, or does without.

    Raises:
        UsageError: the directory cannot be made or written to, or holds something.
        HelperError: TensorFlow is missing, or of an unsupported version.
    """
    if needs_tensorflow:
        require_tensorflow()
    plan, now = plan.sealed(secrets.token_hex(8)), datetime.fromisoformat(plan.created_utc)
    with make_run_directory(out, name, now, clear=clear) as directory, finishes():
        machine = machine or read_machine(directory)
        run = Recorded(directory, plan, machine, began=time.monotonic() if began is None else began)
        # The plan comes last: with it the directory is a run's.
        kept = run.kept
        write_first(directory, {ENVIRONMENT: kept.environment, PLAN: kept.plan.model_dump(mode="json")})
        yield run


def read_run(directory: Path) -> Recorded:
    """A run from its directory.

    Raises:
        JournalError: a file is missing, torn in the middle, or of another schema version.
    """
    return Recorded(directory, read_plan(directory), read_environment(directory), read_trials(directory))


DONE, USAGE, INCONCLUSIVE, NOTHING, INVALID, INTERRUPTED = 0, 2, 3, 4, 5, 130
GATE = FAILED = 1
"""A gate failed; or training did: it does not stay on course, its last checkpoint cannot be written, memory ran out."""


@dataclass(frozen=True)
class Outcome:
    """``message`` is one sentence for standard error, where the exit code is not 0."""

    report: Report
    directory: Path
    exit_code: int
    message: str | None = None
    warnings: tuple[str, ...] = ()


def judge(report: Report, trials: Sequence[TrialRecord]) -> tuple[int, str | None]:
    """Exit code and sentence of a finished run, by what its trials and its verdict say.

    Invalid input comes first, since it is what the user can mend; then nothing measured, then inconclusive.
    """
    if interrupted(trials):
        return INTERRUPTED, "Interrupted; what was measured before is in the report."
    first = next((trial for trial in trials if trial.spec.kind in MAIN_KINDS), None)
    # What another kind of trial raises is its own.
    raised = next((trial for trial in trials if trial.status == "raised" and trial.spec.kind in MAIN_KINDS), None)
    if raised is not None:
        return INVALID, raised.cause
    measured = report.verdict.step_time_s is not None
    if first is None or not measured:
        cause = (first.cause if first else None) or report.unmeasured.get("verdict.step_time_s", "no step ended")
        return NOTHING, f"Nothing was measured: {cause.rstrip('. ')}.{_what_would_help(first)}"
    bad = next((finding for finding in report.findings if finding.rule == "nan-batch"), None)
    if bad is not None:
        return (
            INVALID,
            f"{bad.title[0].upper()}{bad.title[1:]}: the timings stand, but this is not valid training data.",
        )
    if report.verdict.bottleneck == "inconclusive":
        return INCONCLUSIVE, report.verdict.summary
    return DONE, None


def _what_would_help(first: TrialRecord | None) -> str:
    """Remedy where nothing was measured, as a sentence; empty where the cause has said it."""
    if first is not None and first.spec.kind == "script" and first.status == "empty":
        return ""
    walls = first.segment("warm_up") if first is not None else None
    if walls is None or not walls.steps:
        return " Check that the dataset yields batches and the step returns."
    slowest_s = max(walls.columns["wall_ns"]) / 1e9
    return (
        f" The {walls.steps} step{'s' * (walls.steps > 1)} that ended are warm-up, and took up to {slowest_s:.1f} s "
        "each: give it more seconds (--budget), or smaller batches."
    )


def judge_fixes(report: Report) -> tuple[int, str | None]:
    """Exit code and sentence of a run that looked for fixes: what could not be decided is inconclusive."""
    chosen = next((one for one in report.fixes if one.chosen), None)
    if chosen is not None:
        return DONE, None
    tried = [one for one in report.fixes if one.decision is not None or one.semantics is not None]
    open_ones = [one for one in tried if one.outcome == "not verified"]
    if open_ones:
        timed = any(one.outcome == "rejected" or one.verified_speedup is not None for one in report.fixes)
        what = "accepted" if timed else "tried"
        return INCONCLUSIVE, f"No fix was {what}: {open_ones[0].words}: {open_ones[0].why.rstrip('.')}."
    if tried:
        why = tried[0].why.rstrip(".")
        return DONE, f"No fix was accepted, so the target stays as it is: {tried[0].words}: {why}."
    if report.verdict.bottleneck == "inconclusive":
        return INCONCLUSIVE, report.verdict.summary
    limiting = next((one for one in report.findings if one.limiting), None)
    if limiting is not None and limiting.rule == "no-dataset":
        return DONE, f"Nothing was tried, since fixes are of datasets, and here is none: {limiting.title}."
    if not report.fixes and report.pipeline is None and report.verdict.bottleneck == "input":
        why = report.unmeasured.get("pipeline", "there was no time for it; --budget gives it more")
        return INCONCLUSIVE, f"It waits for its input, of which no fix could be looked for: it was not read ({why})."
    held_back = next((one for one in report.fixes if "--repeat" in one.why or "there was no time" in one.why), None)
    if held_back is not None:
        return INCONCLUSIVE, f"No fix was tried: {held_back.words}: {held_back.why.rstrip('.')}."
    if limiting is not None and report.verdict.bottleneck not in ("input", "compute"):
        of_step = [f" ({one.words}: {one.why})" for one in report.fixes if one.name.startswith("step:")]
        why = f"{limiting.title}{next(iter(of_step), '')}"
        return DONE, f"Nothing was tried, since no fix mends what limits the step: {why}. {limiting.remedy}"
    first = next(iter(report.fixes), None)
    why = f": {first.words}: {first.why.rstrip('.')}" if first is not None else ""
    if limiting is not None and limiting.remedy:
        return DONE, f"No fix was tried{why}. {limiting.remedy}"
    return DONE, f"There is nothing here that a fix would make faster{why}."


def judge_run(report: Report, trials: Sequence[TrialRecord], comparison: Comparison) -> tuple[int, str | None]:
    """Exit code and sentence of a scenario's run.

    Other data and targets that cannot be used come first, since they are what the user can mend; then nothing measured;
    then what is not decided. A configuration that dies while it runs is a result; one that cannot be built, or a
    baseline that raises, is invalid input.
    """
    if interrupted(trials):
        return INTERRUPTED, "Interrupted; what was measured before is in the report."
    differences = (report.parity or {}).get("differences") or {}
    if differences:
        places = "; ".join(f"{arm}: {where}" for arm, where in differences.items())
        return INVALID, f"Refused, since the data are not those of {comparison.baseline.id}: {places}."
    if (trial := unusable(trials, comparison)) is not None:
        return INVALID, f"{trial.spec.arm}: {trial.cause}"
    if not any(arm.step_time_s is not None for arm in report.arms):
        return NOTHING, report.verdict.summary
    undecided = [arm for arm in report.arms if arm.role == "candidate" and arm.decision not in (*DECIDED, "ended")]
    if undecided:
        return INCONCLUSIVE, f"Undecided: {' '.join(report.comparison)}"
    return DONE, None


def unusable(trials: Sequence[TrialRecord], comparison: Comparison) -> TrialRecord | None:
    """The first trial whose configuration cannot be built, or whose baseline raised."""
    return next((trial for trial in trials if _cannot_be_used(trial, comparison)), None)


def _cannot_be_used(trial: TrialRecord, comparison: Comparison) -> bool:
    if trial.status != "raised":
        return False
    role = next((arm.role for arm in comparison.arms if arm.id == trial.spec.arm), "candidate")
    return role != "candidate" or (trial.error is not None and trial.error.type == "TargetError")


def judge_sweep(report: Report, trials: Sequence[TrialRecord], comparison: Comparison) -> tuple[int, str | None]:
    """Exit code and sentence of a finished sweep.

    A winner that is proven is a result, and so is a baseline that no configuration beats. What could not be decided,
    for noise or for want of time, is undecided; without a baseline nothing is measured that could be compared. A
    configuration that dies or feeds other data is out, and costs the others nothing.
    """
    if interrupted(trials):
        return INTERRUPTED, "Interrupted; --resume goes on from here."
    own = {arm.id for arm in comparison.arms if arm.role != "candidate"}
    if (trial := unusable([trial for trial in trials if trial.spec.arm in own], comparison)) is not None:
        return INVALID, f"{trial.spec.arm}: {trial.cause}"
    if report.best is None or not any(arm.step_time_s is not None for arm in report.arms):
        return NOTHING, report.verdict.summary
    if not report.best.decided:
        return INCONCLUSIVE, f"Undecided: {' '.join(report.comparison)}"
    return DONE, None


def judge_proof(report: Report, trials: Sequence[TrialRecord]) -> tuple[int, str | None]:
    """Exit code and sentence of an edit or a plan: other data, another order, or a speed beyond the margin fail."""
    if interrupted(trials):
        return INTERRUPTED, "Interrupted; what was measured before is in the report."
    if report.scale is not None:
        return DONE, None
    if report.proof is None:
        return NOTHING, report.verdict.summary
    if report.proof.outcome == "not proved":
        return INCONCLUSIVE, report.verdict.summary
    failed = report.proof.outcome != "same" or report.proof.speed == "failed"
    return (GATE, report.verdict.summary) if failed else (DONE, None)


def judge_training(trained: Trained, report: Report) -> tuple[int, str | None]:
    """Exit code and sentence of the session that just ended."""
    record, ended = trained.record, report.training.ended if report.training else None
    if record.status == "ok":
        if ended is not None and ended.reason == "terminated":
            return INTERRUPTED, f"Ended by a signal after step {ended.step}; the same command resumes from there."
        return DONE, None
    if record.status == "interrupted":
        return INTERRUPTED, "Ended at once; the same command resumes from the last checkpoint."
    if record.status == "out_of_memory":
        return FAILED, _out_of_memory(trained, report.target.get("kwargs") or {})
    return trained.exit_code or FAILED, record.cause


def judge_trained(report: Report) -> tuple[int, str | None]:
    """Exit code and sentence of a run whose report is built again."""
    return (DONE, None) if report.verdict.step_time_s is not None else (NOTHING, report.verdict.summary)


def _out_of_memory(trained: Trained, kwargs: dict[str, Any]) -> str:
    size = next((f"{key} (now {kwargs[key]})" for key in ("tokens_per_batch", "batch_size") if key in kwargs), None)
    where = f" with a batch of {trained.shape}" if trained.shape else " before the first step"
    cause = (trained.record.cause or "no cause is known").rstrip(". ")
    return (
        f"Memory ran out{where}: {cause}. Make the batch smaller: "
        f"--set {size or 'tokens_per_batch'}, with --accumulation in its place; or keep less of a step: "
        "--set training.gradient_checkpointing=true. On a GPU that others use, "
        "--device-memory-mb keeps to a share. A run keeps its batches, so begin with others in another directory."
    )


def rebuild(directory: Path, *, redact: bool = False) -> Outcome:
    """Read plan, environment and journal of a run, and write its report again; of one that goes on it is only given.

    With ``redact`` it is without what tells who measured where.

    Raises:
        JournalError: a file is missing, torn in the middle, or of another schema version.
    """
    if not directory.is_dir():
        return finish(read_run(directory))  # which says so
    with lock_run(directory, shared=True) as ours:
        run = redacted(read_run(directory)) if redact else read_run(directory)
        if ours:
            return finish(run)
        return Outcome(report_of(run), directory, DONE, "The run goes on, so nothing was written: this is it so far.")


def redacted(run: Recorded) -> Recorded:
    """The run as if it had been asked to leave out who measured where."""
    return replace(run, plan=run.plan.model_copy(update={"redact": True}))


def finish(run: Recorded) -> Outcome:
    """Write the report of a run of any kind, with what else it leaves, and say how it ended."""
    assembled, judged = _KINDS[run.plan.kind]
    run = run.kept
    report = assembled(run)
    code, message = judged(report, run)
    if (file := changed_file(run.trials)) is not None:
        code = INCONCLUSIVE if any(trial.status == "ok" for trial in run.trials) else NOTHING
        message = said_changed(file)
    return written(run, report, (code, message))


def written(run: Recorded, report: Report, judged: tuple[int, str | None]) -> Outcome:
    """Write a report into its run's directory, with what else it leaves.

    Raises:
        JournalError: it cannot be written; what was measured is kept.
    """
    # Here and not above: plots are drawn when no trial runs any more, so that the parent stays small until then.
    from xttsbench.reporting.page import write_run
    from xttsbench.reporting.sections.naming import with_calls

    with report_is_written(run.directory):
        report = report.model_copy(update={"target": report.target | _output(run)})
        report, judged = run.redaction.kept(report), (judged[0], run.redaction.kept(judged[1]))
        warnings = write_run(run.directory, report, run.trials)
        if run.plan.kind == "sweep":
            write_best(run.directory, report.best)
        if report.optimized is not None:
            write_plan(run.directory, report.optimized)
    message = with_calls(judged[1], report) if judged[1] else None
    return Outcome(report, run.directory, judged[0], message, tuple(warnings or ()))


def _output(run: Recorded) -> dict[str, str]:
    """Name of the file with what the run's targets printed, by now without secrets; empty where that is nothing."""
    file = run.directory / OUTPUT
    if not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8", errors="replace")
    if (kept := run.redaction.kept(text)) != text:
        atomic_write(file, kept.encode(errors="replace"))
    if not text:
        file.unlink()
    return {"output": OUTPUT} if text else {}


@contextmanager
def report_is_written(directory: Path) -> Iterator[None]:
    """Within, a report is written into that directory; raises :class:`JournalError` where it cannot be."""
    try:
        yield
    except OSError as error:
        again = shlex.join(["xttsbench", "report", str(directory)])
        raise JournalError(
            f"The report in {directory} cannot be written: {error.strerror or error}. What was measured is kept; "
            f"once files can be written there: {again}"
        ) from error


def report_of(run: Recorded) -> Report:
    """The report of a run of any kind, from its files."""
    return _KINDS[run.plan.kind][0](run.kept)


def _diagnosed(run: Recorded) -> Report:
    return assemble(run, read_patch(run.directory))


def _judge_optimized(report: Report, run: Recorded) -> tuple[int, str | None]:
    code, message = judge(report, run.trials)
    accepted = code == NOTHING and any(one.chosen for one in report.fixes)  # by runs of its own
    return judge_fixes(report) if accepted or code in (DONE, INCONCLUSIVE) else (code, message)


_Judged = Callable[[Report, Recorded], tuple[int, str | None]]
_KINDS: Final[Mapping[str, tuple[Callable[[Recorded], Report], _Judged]]] = {
    **dict.fromkeys(("diagnose", "watch"), (_diagnosed, lambda report, run: judge(report, run.trials))),
    "optimize": (_diagnosed, _judge_optimized),
    "run": (assemble_run, lambda report, run: judge_run(report, run.trials, run.comparison)),
    "sweep": (assemble_sweep, lambda report, run: judge_sweep(report, run.trials, run.comparison)),
    "train": (assembled_train, lambda report, _: judge_trained(report)),
    "plan": (assembled_plan, lambda report, run: judge_proof(report, run.trials)),
    "prove": (assembled_proof, lambda report, run: judge_proof(report, run.trials)),
}
"""Kind of a run -> what its report is made by, and its exit code."""
