"""How a session of training ended: the exit code, and one sentence where it is not 0."""

from __future__ import annotations

from typing import Any

from xttsbench.execution.training import Trained
from xttsbench.records.report import Report
from xttsbench.workflows.outcome import DONE, INTERRUPTED, NOTHING

FAILED = 1
"""Training failed: it does not stay on course, its last checkpoint cannot be written, memory ran out."""


def judge_training(trained: Trained, report: Report) -> tuple[int, str | None]:
    """Exit code and sentence of the session that just ended."""
    record, ended = trained.record, report.training.ended if report.training else None
    if record.status == "ok":
        if ended is not None and ended.reason == "terminated":
            return INTERRUPTED, f"Ended by a signal after step {ended.step}; the same command goes on from there."
        return DONE, None
    if record.status == "interrupted":
        return INTERRUPTED, "Ended at once; the same command goes on from the last checkpoint."
    if record.status == "out_of_memory":
        return FAILED, _out_of_memory(trained, report.target.get("kwargs") or {})
    return trained.exit_code or FAILED, record.cause


def judge_trained(report: Report) -> tuple[int, str | None]:
    """Exit code and sentence of a run whose report is built again."""
    return (DONE, None) if report.verdict.step_time_s is not None else (NOTHING, report.verdict.summary)


def _out_of_memory(trained: Trained, kwargs: dict[str, Any]) -> str:
    """What did not fit, and what makes it fit, the cheapest first."""
    size = next((f"{key} (now {kwargs[key]})" for key in ("tokens_per_batch", "batch_size") if key in kwargs), None)
    where = f" with a batch of {trained.shape}" if trained.shape else " before the first step"
    cause = (trained.record.cause or "no cause is known").rstrip(". ")
    return (
        f"Memory ran out{where}: {cause}. Make the batch smaller: "
        f"--set {size or 'tokens_per_batch'}, with --accumulation in its place; or keep less of a step: "
        "--set training.gradient_checkpointing=true; or let --fit-memory choose. On a GPU that others use, "
        "--device-memory-mb keeps to a share. A run keeps its batches, so begin with others in another directory."
    )
