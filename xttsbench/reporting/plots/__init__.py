"""The plots of a report as PNG and SVG, one file per plot; the only part of the package that imports Matplotlib.

Import this package when the trials are over: Matplotlib costs the parent memory and start-up time. Each plot's title
says what it shows; where there is nothing to draw, the plot holds the reason in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from matplotlib.figure import Figure

from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting.plots import attribution, autocorrelation, distribution, periodogram, timeline
from xttsbench.reporting.plots.figure import Plot, save, style
from xttsbench.reporting.plots.scene import Scene, stage

__all__ = ["DRAWERS", "Plot", "draw", "draw_one", "save", "stage"]

DRAWERS: Final[dict[str, Callable[[Scene], Figure]]] = {
    "attribution": attribution.draw,
    "timeline": timeline.draw,
    "distribution": distribution.draw,
    "autocorrelation": autocorrelation.draw,
    "periodogram": periodogram.draw,
}
"""Plot's name to what draws it, in the order of :data:`xttsbench.reporting.captions.CAPTIONS`."""


def draw(report: Report, trials: Sequence[TrialRecord]) -> dict[str, Plot]:
    """All plots by name."""
    scene = stage(report, trials)
    return {name: draw_one(name, scene) for name in DRAWERS}


def draw_one(name: str, scene: Scene) -> Plot:
    """One plot of :data:`DRAWERS`."""
    with style():
        return save(DRAWERS[name](scene))
