"""The colours of the report, shared by console, HTML and plots: Okabe and Ito's set, told apart by the colour-blind.

Source: M. Okabe and K. Ito, "Color Universal Design" (2008). Each part of a step also has a glyph, so that the bar on a
console without colour (``NO_COLOR``, a log file) can be read.
"""

from __future__ import annotations

from typing import Final

INK: Final = "#1b1f24"
SOFT: Final = "#59636e"
GRID: Final = "#e3e6ea"
"""Text, lesser text and lines of a plot on white."""

PART_COLORS: Final = {
    "input": "#E69F00",
    "dispatch": "#D55E00",
    "compute": "#56B4E9",
    "compile": "#CC79A7",
    "host": "#F0E442",
    "transfer": "#009E73",
    "contention": "#0072B2",
    "residual": "#999999",
}
"""Part of the attribution to its colour, in the order in which parts are drawn."""

PART_GLYPHS: Final = {
    "input": "█",
    "dispatch": "▓",
    "compute": "▒",
    "compile": "#",
    "host": "=",
    "transfer": ">",
    "contention": "%",
    "residual": "░",
}

SERIES_COLORS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
"""For overlaid trials, in order."""

ARM_COLORS: Final = {
    "baseline": "#E69F00",
    "again": "#F3CF80",
    "faster": "#0072B2",
    "slower": "#D55E00",
    "plain": "#999999",
    "ended": "#D0D4D9",
}
"""Tone of a compared arm (see :class:`~xttsbench.reporting.sections.arms.Row`) to its colour; ``again`` is a lighter
baseline."""

SEVERITY_COLORS: Final = {"critical": "#D55E00", "warning": "#E69F00", "info": "#56B4E9"}
