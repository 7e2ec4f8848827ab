"""The autocorrelation of the step time, with the band of white noise: what the steps are worth as a sample."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from xttsbench.analysis.rhythm import autocorrelation, effective_size, varies
from xttsbench.reporting.palette import PART_COLORS, SERIES_COLORS
from xttsbench.reporting.plots.figure import SOFT, new, words
from xttsbench.reporting.plots.scene import Scene

FEWEST_STEPS = 20
"""Below this the band covers nearly everything."""
_LONGEST_LAG = 100


def draw(scene: Scene) -> Figure:
    """Bars by lag in steps, the 95 % band of white noise (1.96 / sqrt(n), Bartlett 1946), and the period if any."""
    wall = np.empty(0) if scene.main is None else scene.main.steady_wall_s
    if wall.size < FEWEST_STEPS or not varies(wall):
        return words("No autocorrelation of the step time", why_not(scene, wall.size))
    found = scene.report.oscillation
    effective = effective_size(wall) if found.effective_steps is None else found.effective_steps
    period = found.period_steps
    furthest = max(_LONGEST_LAG // 2, round(3.5 * period) if period else 0)
    longest = max(2, min(wall.size // 4, _LONGEST_LAG, furthest))
    values = autocorrelation(wall, longest)
    figure = new(
        f"{wall.size} steps are worth {round(effective):,} independent ones"
        + (f"; they repeat every {period:.3g}" if period else ""),
        height_in=3.7,
    )
    axes = figure.add_subplot()
    lags = np.arange(values.size)
    band = 1.96 / np.sqrt(wall.size)
    axes.axhspan(-band, band, color=SOFT, alpha=0.2, linewidth=0, label="white noise, 95 %")
    axes.axhline(0, color=SOFT, linewidth=0.8)
    outside = np.abs(values) > band
    for chosen, color in ((outside, SERIES_COLORS[0]), (~outside, SOFT)):
        axes.vlines(lags[chosen], 0, values[chosen], color=color, linewidth=1.6)
        axes.plot(lags[chosen], values[chosen], "o", color=color, markersize=3.5)
    for multiple in range(1, int(longest / period) + 1 if period else 1):
        axes.axvline(
            multiple * (period or 0),
            color=PART_COLORS["dispatch"],
            linestyle="--",
            linewidth=1.1,
            zorder=0,
            label="period and multiples" if multiple == 1 else None,
        )
    axes.set_xlabel("lag (steps)")
    axes.set_ylabel("autocorrelation")
    axes.set_ylim(min(-0.25, float(values.min()) - 0.05), 1.05)
    figure.legend(loc="outside lower left", ncols=2)
    return figure


def why_not(scene: Scene, steps: int) -> str:
    """Why the steps cannot be analysed as a time series."""
    if scene.main is None:
        return scene.why_empty
    if steps < FEWEST_STEPS:
        return f"{steps} steady steps are too few; {FEWEST_STEPS} are needed."
    return "Every step took the same time."
