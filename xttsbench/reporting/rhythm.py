"""What is said of variation in time: the period, the rule of thumb, and the whole oscillation vector."""

from __future__ import annotations

from typing import Final

from xttsbench.records.report import Oscillation, Report
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED, missing
from xttsbench.reporting.rows import Line

OSCILLATES: Final = 0.5
STABLE: Final = 0.2
"""The rule of thumb for std / mean: above the first it oscillates, below the second it is stable."""


def period(report: Report) -> str:
    """The period in words; that none was found is a result, that none was looked for is not."""
    found = report.oscillation
    if found.period_steps is None:
        reason = missing(report, "oscillation.period_steps")
        searched = found.p_value is not None or reason.startswith(f"{NOT_MEASURED}: no period")
        return "no period at 1 %" if searched else f"period {reason}"
    seconds = "" if found.period_s is None else f" ({units.duration(found.period_s)})"
    share = "" if found.variance_share is None else f", {units.percent(found.variance_share)} of the variance"
    return f"repeats every {found.period_steps:.3g} steps{seconds}{share}"


def measured(report: Report) -> bool:
    """Whether anything is known of the variation in time."""
    return report.oscillation != Oscillation()


def sentence(report: Report) -> str:
    """The period, the rule of thumb and the tail in one line."""
    return "; ".join([period(report), *_spread(report)])


def _spread(report: Report) -> list[str]:
    found, words = report.oscillation, []
    if found.std_over_mean is not None:
        words.append(f"std/mean {units.number(float(found.std_over_mean))}, {_thumb(found.std_over_mean)}")
    if found.p99_over_p50 is not None:
        words.append(f"99th percentile {units.ratio(found.p99_over_p50)} the median")
    return words


def _thumb(std_over_mean: float) -> str:
    if std_over_mean > OSCILLATES:
        return "oscillates"
    return "stable" if std_over_mean < STABLE else "between stable and oscillating"


def measures(report: Report) -> tuple[Line, ...]:
    """Every measure of the oscillation vector, or why it is missing."""
    names = {
        "period_steps": "period, steps",
        "period_s": "period",
        "variance_share": "share of the variance in the period",
        "p_value": "p of the period against red noise",
        "cv": "robust coefficient of variation",
        "std_over_mean": "std / mean (above 0.5 oscillates, below 0.2 is stable)",
        "p99_over_p50": "99th percentile over median",
        "autocorrelation": "autocorrelation at lag 1",
        "ljung_box_p": "Ljung-Box p",
        "effective_steps": "effective number of independent steps",
        "burstiness": "burstiness of the stalls",
    }
    rows = []
    for name, label in names.items():
        value = getattr(report.oscillation, name)
        text = missing(report, f"oscillation.{name}") if value is None else units.named(name, value)[1]
        rows.append(Line(label, text))
    return tuple(rows)
