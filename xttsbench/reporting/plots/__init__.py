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
from xttsbench.reporting.captions import TRAINING, captions, names
from xttsbench.reporting.groups import groups
from xttsbench.reporting.plots import arms, attribution, autocorrelation, distribution, periodogram, traces, training
from xttsbench.reporting.plots import target as timeline
from xttsbench.reporting.plots.figure import Plot, save, style
from xttsbench.reporting.plots.scene import Scene, stage

__all__ = ["DRAWERS", "Plot", "draw", "draw_one", "figure_of", "save", "stage"]

DRAWERS: Final[dict[str, Callable[[Scene], Figure]]] = {
    "attribution": attribution.draw,
    "timeline": timeline.draw,
    "distribution": distribution.draw,
    "autocorrelation": autocorrelation.draw,
    "periodogram": periodogram.draw,
}
"""Plot of one target to what draws it, in the order of :data:`xttsbench.reporting.captions.CAPTIONS`."""


def draw(report: Report, trials: Sequence[TrialRecord]) -> dict[str, Plot]:
    """All plots by name."""
    scene = stage(report, trials)
    return {name: draw_one(name, scene) for name in captions(report)}


def draw_one(name: str, scene: Scene) -> Plot:
    """One plot of :func:`~xttsbench.reporting.captions.captions`."""
    with style():
        return save(figure_of(name, scene))


def figure_of(name: str, scene: Scene) -> Figure:
    """The figure of that name.

    Raises:
        KeyError: the report has no plot of that name.
    """
    if name == TRAINING:
        return training.draw(scene)
    if name in DRAWERS:
        return DRAWERS[name](scene)
    drawers = {
        plot: draw
        for group in groups(scene.report)
        for plot, draw in zip(names(group.slug), (partial(arms.draw, group), partial(traces.draw, group)), strict=True)
    }
    return drawers[name](scene)
