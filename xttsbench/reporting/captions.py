"""The plots of a report, in order, and what each shows; Markdown and HTML refer to them by these names."""

from __future__ import annotations

from typing import Final

from xttsbench.records.report import Report
from xttsbench.reporting.groups import groups
from xttsbench.reporting.sections.headline import compares

CAPTIONS: Final = {
    "attribution": "Where the mean time of a step goes",
    "timeline": "Steps, waits and utilization over time",
    "distribution": "Distribution of the step time",
    "autocorrelation": "Autocorrelation of the step time",
    "periodogram": "Periodogram of the step time",
}
"""Plots of one target: name (``plots/<name>.png`` and ``.svg``) to caption."""


TRAINING: Final = "training"
"""Plot of a training run."""


def captions(report: Report) -> dict[str, str]:
    """All plots of a report: two for each group of compared arms, and those of the target, or of the baseline."""
    if report.training is not None:
        return {TRAINING: "Losses and waiting over the steps"} | CAPTIONS
    found = {
        name: f"{what}, {group.title}"
        for group in groups(report)
        for name, what in zip(names(group.slug), ("Throughput of each arm", "Utilization and step time"), strict=True)
    }
    if not compares(report):
        return found | CAPTIONS
    known = {"attribution": report.verdict.attribution_s}
    drawn = [name for name in CAPTIONS if known.get(name, report.verdict.step_time_s) is not None]
    return found | {name: f"{CAPTIONS[name]}, of the baseline" for name in drawn}


def names(slug: str) -> tuple[str, str]:
    """The plots of a group: its arms side by side, and its traces over time."""
    return f"arms-{slug}", f"traces-{slug}"
