"""The table of what the model predicts, with what was measured beside it where that was tried."""

from __future__ import annotations

from xttsbench.records.prediction import Prediction
from xttsbench.records.report import Report
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.rows import Table
from xttsbench.reporting.text import plain

TITLE = "What the model predicts"
NOT_PREDICTED = "not predicted"
_HEADER = ("condition", "batches a second", "speed-up", "limited by", "measured", "remark")


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
