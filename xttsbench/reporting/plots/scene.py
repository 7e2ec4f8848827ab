"""What all plots draw from: the report, the steps of each process, and the process that stands for the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting.groups import groups, of_verdict, trials_of
from xttsbench.reporting.sections.headline import compares
from xttsbench.reporting.series import StepSeries, from_segment
from xttsbench.reporting.text import plain

_LONGEST_LABEL = 40
_OTHER_TARGETS = frozenset({"fix", "arm", "parity"})


@dataclass(frozen=True, slots=True)
class Scene:
    """The report and the series of the target as it is (or of the baseline), one per process."""

    report: Report
    series: tuple[StepSeries, ...] = ()
    main: StepSeries | None = None
    """The series with the most steady steps: time series statistics are of one process, never of pooled ones."""
    record: TrialRecord | None = None
    """The trial that ``main`` comes from."""
    trials: tuple[TrialRecord, ...] = ()
    """All trials, for the plots of compared arms."""

    @property
    def why_empty(self) -> str:
        """Why there is nothing to draw."""
        return self.report.unmeasured.get("verdict.step_time_s", "No step of the target as it is was measured.")


def stage(report: Report, trials: Sequence[TrialRecord]) -> Scene:
    """Collect what the plots need: the target as it is, or the baseline where arms were compared.

    Trials without such steps are left out, and those with a fix or of another arm: they are not the target as given.
    """
    found = [
        (series, record)
        for record in _as_given(report, trials)
        if (segment := record.segment("as_is"))
        and (series := from_segment(segment, label=plain(record.spec.trial_id)[:_LONGEST_LABEL]))
    ]
    if not found:
        return Scene(report, trials=tuple(trials))
    main, record = max(found, key=lambda pair: pair[0].steady_wall_s.size)
    return Scene(report, tuple(series for series, _ in found), main, record, tuple(trials))


def _as_given(report: Report, trials: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
    group = of_verdict(report) if compares(report) or report.training is not None else None
    if group is not None and group.baseline is not None:
        return trials_of(group, group.baseline, groups(report), trials)
    return [record for record in trials if record.spec.rung not in _OTHER_TARGETS]
