"""The look of all plots, the axes in seconds, and the way to bytes, without pyplot and its global state."""

from __future__ import annotations

import textwrap
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from xttsbench.reporting.palette import GRID, INK, SOFT
from xttsbench.reporting.words import plain

_WIDTH_IN, _DOTS_PER_INCH = 9.0, 150
_TITLE_COLUMNS: Final = 82
_WORDS: Final = "words"
"""Label of a figure that has nothing to show."""


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


def logarithmic_ticks(axis: Axis) -> None:
    """Ticks at 1, 2 and 5 of every decade, and no others."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
