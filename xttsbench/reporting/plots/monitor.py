"""The plots of a monitor's log: columns over time, a panel for each unit, what happened as lines across them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from xttsbench.records.monitoring import Event
from xttsbench.reporting.monitoring import FloatArray, Panel, stretches
from xttsbench.reporting.palette import SERIES_COLORS, SEVERITY_COLORS
from xttsbench.reporting.plots.figure import Plot, drawable, label, new, save, seconds_axis, style

_POINTS = 400
_MOST_LINES = 6


def draw_panels(
    title: str, panels: Sequence[Panel], columns: Mapping[str, FloatArray], events: Sequence[Event]
) -> Plot:
    """One figure of panels above one another, over seconds since the first reading.

    Args:
        title: of the figure.
        panels: what is drawn, from the top.
        columns: values of each column, and ``t_s``; shape ``(rows,)``, NaN where it was not read.
        events: drawn as lines.
    """
    t_s = columns["t_s"]
    with style():
        figure = new(title, height_in=0.7 + 1.3 * len(panels))
        all_axes = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True))
        for axes, panel in zip(all_axes, panels, strict=True):
            _draw(axes, panel, columns)
            for event in events:
                axes.axvline(event.t_s, color=SEVERITY_COLORS["warning"], linewidth=0.8, linestyle=":")
        seconds_axis(all_axes[-1].xaxis, 1.0, "since the first reading")
        all_axes[-1].set_xlim(0, max(float(t_s[-1]), 1e-3))
        return save(figure)


def _draw(axes: Axes, panel: Panel, columns: Mapping[str, FloatArray]) -> None:
    """A line of means for each column, its extremes as a band; many processors as the band of all of them alone."""
    t_s, drawn = columns["t_s"], dict(panel.series)
    if len(drawn) > _MOST_LINES:
        first, *rest = drawn
        others = np.array([columns[name] for name in rest])
        low, high = np.nanmin(others, axis=0), np.nanmax(others, axis=0)
        axes.fill_between(t_s, panel.scale * low, panel.scale * high, color=SERIES_COLORS[5], alpha=0.3, linewidth=0)
        drawn = {first: f"{drawn[first]}; shaded: each alone"}
    for color, (name, text) in zip(SERIES_COLORS, drawn.items(), strict=False):
        at_s, mean, low, high = stretches(t_s, panel.scale * columns[name], _POINTS)
        axes.plot(at_s, mean, color=color, linewidth=1.2, label=drawable(text))
        if len(drawn) == 1 or len(panel.series) == 1:
            axes.fill_between(at_s, low, high, color=color, alpha=0.25, linewidth=0)
    axes.set_ylim(bottom=0, top=panel.top)
    label(axes, f"{panel.title}, {panel.unit}")
    if len(drawn) > 1:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.95), ncols=len(drawn), borderpad=0)
