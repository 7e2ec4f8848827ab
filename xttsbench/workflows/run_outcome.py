"""How the run of a scenario ended: the exit code, and one sentence where it is not 0."""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.records.base import DECIDED
from xttsbench.records.plan import Comparison
from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.outcome import DONE, INCONCLUSIVE, INTERRUPTED, INVALID, NOTHING


def judge_run(report: Report, trials: Sequence[TrialRecord], comparison: Comparison) -> tuple[int, str | None]:
    """Exit code and sentence of a scenario's run.

    Other data and targets that cannot be used come first, since they are what the user can mend; then nothing measured;
    then what is not decided. An arm that dies while it runs is a result; one that cannot be built, or a baseline that
    raises, is invalid input.
    """
    if any(trial.status == "interrupted" for trial in trials):
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
    """The first trial whose arm cannot be built, or whose baseline raised."""
    return next((trial for trial in trials if _cannot_be_used(trial, comparison)), None)


def _cannot_be_used(trial: TrialRecord, comparison: Comparison) -> bool:
    if trial.status != "raised":
        return False
    role = next((arm.role for arm in comparison.arms if arm.id == trial.spec.arm), "candidate")
    return role != "candidate" or (trial.error is not None and trial.error.type == "TargetError")
