"""How a run ended: its report, where it lies, and the exit code that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xttsbench.records.report import Report
from xttsbench.records.trial import MAIN_RUNGS, TrialRecord

DONE, GATE, USAGE, INCONCLUSIVE, NOTHING, INVALID, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


_AS_GIVEN = ("ladder", "input", "script")
"""Rungs that run the target's own code and nothing else; what an experiment with it raises is the experiment's."""


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
    if any(trial.status == "interrupted" for trial in trials):
        return INTERRUPTED, "Interrupted; what was measured before is in the report."
    first = next((trial for trial in trials if trial.spec.rung in MAIN_RUNGS), None)
    raised = next((trial for trial in trials if trial.status == "raised" and trial.spec.rung in _AS_GIVEN), None)
    if raised is not None:
        return INVALID, raised.cause
    measured = report.verdict.step_time_s is not None
    if first is None or not measured:
        cause = (first.cause if first else None) or "no step ended"
        return (
            NOTHING,
            f"Nothing was measured: {cause.rstrip('. ')}. Check that the dataset yields batches and the step returns.",
        )
    bad = next((finding for finding in report.findings if finding.rule == "nan-batch"), None)
    if bad is not None:
        return (
            INVALID,
            f"{bad.title[0].upper()}{bad.title[1:]}: the timings stand, but this is not valid training data.",
        )
    if report.verdict.bottleneck == "inconclusive":
        return INCONCLUSIVE, report.verdict.summary
    return DONE, None
