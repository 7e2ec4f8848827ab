"""The plots of a report as PNG and SVG, one file per plot; the only part of the package that imports Matplotlib.

Import this package when the trials are over: Matplotlib costs the parent memory and start-up time. Each plot's title
says what it shows; where there is nothing to draw, the plot holds the reason in words. Here are the look of all plots,
the axes in seconds, the way to bytes without pyplot and its global state, and the plots of a monitor's log.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from xttsbench.analysis.steps import FloatArray
from xttsbench.records.machine import Event
from xttsbench.reporting.scene import Scene
from xttsbench.reporting.sections import SCALE, figures_of, groups
from xttsbench.reporting.sections.brief import Panel, stretches
from xttsbench.reporting.words import GRID, INK, SERIES_COLORS, SEVERITY_COLORS, SOFT, plain

_WIDTH_IN, _DOTS_PER_INCH = 9.0, 150
_TITLE_COLUMNS: Final = 82
_WORDS: Final = "words"  # Label of a figure that has nothing to show


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot in both formats; ``says`` is whether it shows something, and not why there is nothing to show."""

    png: bytes
    svg: bytes
    says: bool = True


def style() -> AbstractContextManager[None]:
    """The settings under which a plot is built and saved; undone on leaving."""
    settings = {
        "font.family": "DejaVu Sans",  # comes with Matplotlib, so plots are the same on every machine
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": SOFT,
        "axes.labelcolor": INK,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "legend.frameon": False,
        "legend.fontsize": 10,
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
        "svg.hashsalt": "xttsbench",
        "svg.fonttype": "path",
    }
    # Matplotlib types the settings' names as literals, one by one.
    return mpl.rc_context(settings)  # type: ignore[arg-type]


def new(title: str, *, height_in: float) -> Figure:
    """An empty figure of the common width, with a title that says the finding."""
    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    lines = "\n".join(textwrap.wrap(drawable(title), _TITLE_COLUMNS))
    figure.suptitle(lines, x=0.01, ha="left", fontsize=12.5, fontweight="bold", color=INK)
    return figure


def words(title: str, text: str) -> Figure:
    """A figure for what cannot be drawn: the reason in words."""
    figure = new(title, height_in=1.0)
    figure.set_label(_WORDS)
    figure.text(0.01, 0.4, "\n".join(textwrap.wrap(drawable(text), 95)), color=SOFT, va="center")
    return figure


def drawable(text: str) -> str:
    """``text`` in characters that the font surely has; others become question marks rather than warnings."""
    return plain(text).encode("latin-1", "replace").decode("latin-1")


def save(figure: Figure) -> Plot:
    """Both formats, without a date, so that the same figure gives the same bytes."""
    png, svg = BytesIO(), BytesIO()
    figure.savefig(png, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    figure.set_layout_engine(None)  # its axes keep their places, which take as long to find as they take to draw
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Plot(png.getvalue(), svg.getvalue(), says=figure.get_label() != _WORDS)


def label(axes: Axes, text: str, *, bold: bool = False) -> None:
    """A small note at the upper left, above the axes, where it hides nothing."""
    axes.set_title(drawable(text), loc="left", fontsize=10, color=INK, fontweight="bold" if bold else "normal")


def seconds_axis(axis: Axis, largest_s: float, text: str, *, log: bool = False) -> None:
    """Ticks of an axis that holds seconds, in the unit that fits ``largest_s``, which the axis label names."""
    scale, unit = next(
        (pair for pair in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if largest_s >= pair[0]), (1e-9, "ns")
    )
    if log:
        logarithmic_ticks(axis)
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:,g}"))
    axis.set_label_text(f"{text} ({unit})")


def step_time_axis(axes: Axes, largest_s: float, text: str, *, log: bool, top: float | None = None) -> None:
    """The vertical axis of step times: logarithmic, or from zero to ``top``."""
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0, top=top)
    seconds_axis(axes.yaxis, largest_s, text, log=log)


def logarithmic_ticks(axis: Axis) -> None:
    """Ticks at 1, 2 and 5 of every decade, and no others."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


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


def draw_one(name: str, scene: Scene) -> Plot:
    """One plot of :func:`~xttsbench.reporting.sections.figures`."""
    with style():
        return save(figure_of(name, scene))


def figure_of(name: str, scene: Scene) -> Figure:
    """The figure of that name.

    Raises:
        KeyError: the report has no plot of that name.
    """
    from xttsbench.reporting.plots import arms, scale, target  # they draw with what stands above

    grouped = {
        plot: partial(kind, group)
        for group in groups(scene.report)
        for plot, kind in zip(figures_of(group), (arms.draw_throughput, arms.draw_traces), strict=True)
    }
    return (target.DRAWERS | grouped | {SCALE: scale.draw_scale})[name](scene)
