"""How a sweep ended: the exit code, and one sentence where it is not 0."""

from __future__ import annotations

from collections.abc import Sequence

from xttsbench.records.plan import Comparison
from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.workflows.outcome import DONE, INCONCLUSIVE, INTERRUPTED, INVALID, NOTHING
from xttsbench.workflows.run_outcome import unusable


def judge_sweep(report: Report, trials: Sequence[TrialRecord], comparison: Comparison) -> tuple[int, str | None]:
    """Exit code and sentence of a finished sweep.

    A winner that is proven is a result, and so is a baseline that no arm beats. What could not be decided, for noise or
    for want of time, is undecided. An arm that dies or feeds other data is out, and costs the others nothing.
    """
    if any(trial.status == "interrupted" for trial in trials):
        return INTERRUPTED, "Interrupted; --resume goes on from here."
    own = {arm.id for arm in comparison.arms if arm.role != "candidate"}
    if (trial := unusable([trial for trial in trials if trial.spec.arm in own], comparison)) is not None:
        return INVALID, f"{trial.spec.arm}: {trial.cause}"
    if not any(arm.step_time_s is not None for arm in report.arms):
        return NOTHING, report.verdict.summary
    if report.best is None or not report.best.decided:
        return INCONCLUSIVE, f"Undecided: {' '.join(report.comparison)}"
    return DONE, None
