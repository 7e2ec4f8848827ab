"""What all plots draw from: the report, the steps of each process, and the process that stands for the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting.series import StepSeries, from_segment
from xttsbench.reporting.text import plain

_LONGEST_LABEL = 40


@dataclass(frozen=True, slots=True)
class Scene:
    """The report and the series of the target as it is, one per process."""

    report: Report
    series: tuple[StepSeries, ...] = ()
    main: StepSeries | None = None
    """The series with the most steady steps: time series statistics are of one process, never of pooled ones."""
    record: TrialRecord | None = None
    """The trial that ``main`` comes from."""

    @property
    def why_empty(self) -> str:
        """Why there is nothing to draw."""
        return self.report.unmeasured.get("verdict.step_time_s", "No step of the target as it is was measured.")


def stage(report: Report, trials: Sequence[TrialRecord]) -> Scene:
    """Collect what the plots need; trials without steps of the target as it is are left out.

    Trials with a fix are left out too: they are not the target as it is.
    """
    found = [
        (series, record)
        for record in trials
        if record.spec.rung != "fix"
        and (segment := record.segment("as_is"))
        and (series := from_segment(segment, label=plain(record.spec.trial_id)[:_LONGEST_LABEL]))
    ]
    if not found:
        return Scene(report)
    main, record = max(found, key=lambda pair: pair[0].steady_wall_s.size)
    return Scene(report, tuple(series for series, _ in found), main, record)
