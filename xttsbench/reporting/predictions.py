"""The table of what the model predicts, with what was measured beside it where that was tried."""

from __future__ import annotations

from xttsbench.fixes.spec import WORTH
from xttsbench.records.pipeline import Prediction
from xttsbench.records.report import Report
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.rows import Table
from xttsbench.reporting.text import plain

TITLE = "What the model predicts"
NOT_PREDICTED = "not predicted"
_MOST = 4
_HEADER = ("condition", "batches a second", "speed-up", "limited by", "measured", "remark")


def telling(report: Report) -> Table | None:
    """The target as it is, the fixes that give most, and the ceiling, in four columns; ``None`` without any."""
    rows = [found for found in report.predictions if found.batches_per_s is not None]
    fixes = [found for found in rows if found.fixes and (found.speedup or 0.0) >= WORTH]
    best = sorted(fixes, key=lambda found: -(found.speedup or 0.0))[:_MOST]
    chosen = [found for found in rows if not found.fixes or found in best]
    return Table(TITLE, _HEADER[:4], tuple(_row(found)[:4] for found in chosen)) if chosen else None


def predictions_table(report: Report) -> Table:
    """A row for each condition that the model was asked about; without rows where no pipeline was read."""
    return Table(TITLE, _HEADER, tuple(_row(prediction) for prediction in report.predictions))


def _row(prediction: Prediction) -> tuple[str, ...]:
    rate, speedup = prediction.batches_per_s, prediction.speedup
    return (
        plain(prediction.name),
        NOT_PREDICTED if rate is None else units.number(rate),
        "" if speedup is None else units.ratio(speedup),
        plain(prediction.limited_by),
        NOT_MEASURED if prediction.measured_per_s is None else units.rate_interval(prediction.measured_per_s),
        plain(prediction.why_not or ""),
    )
