"""The plots of a report as PNG and SVG, one file per plot; the only part of the package that imports Matplotlib.

Import this package when the trials are over: Matplotlib costs the parent memory and start-up time. Each plot's title
says what it shows; where there is nothing to draw, the plot holds the reason in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from matplotlib.figure import Figure

from xttsbench.records.report import Report
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting.groups import TRAINING, figures, figures_of, groups
from xttsbench.reporting.plots import arms, target
from xttsbench.reporting.plots.figure import Plot, save, style
from xttsbench.reporting.scene import Scene, stage

__all__ = ["DRAWERS", "Plot", "draw", "draw_one", "figure_of", "save", "stage"]

DRAWERS: Final[dict[str, Callable[[Scene], Figure]]] = {
    "attribution": target.draw_attribution,
    "timeline": target.draw_timeline,
    "distribution": target.draw_distribution,
    "autocorrelation": target.draw_autocorrelation,
    "periodogram": target.draw_periodogram,
}
"""Plot of one target to what draws it, in the order of :data:`xttsbench.reporting.groups.CAPTIONS`."""


def draw(report: Report, trials: Sequence[TrialRecord]) -> dict[str, Plot]:
    """All plots by name."""
    scene = stage(report, trials)
    return {name: draw_one(name, scene) for name in figures(report)}


def draw_one(name: str, scene: Scene) -> Plot:
    """One plot of :func:`~xttsbench.reporting.groups.figures`."""
    with style():
        return save(figure_of(name, scene))


def figure_of(name: str, scene: Scene) -> Figure:
    """The figure of that name.

    Raises:
        KeyError: the report has no plot of that name.
    """
    if name == TRAINING:
        return target.draw_training(scene)
    if name in DRAWERS:
        return DRAWERS[name](scene)
    kinds = (arms.draw_throughput, arms.draw_traces)
    drawers = {
        plot: partial(kind, group)
        for group in groups(scene.report)
        for plot, kind in zip(figures_of(group), kinds, strict=True)
    }
    return drawers[name](scene)
