"""The periodogram of the step time against red noise: is there a period, and which one."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from xttsbench.analysis.rhythm import periodogram, varies
from xttsbench.reporting import units
from xttsbench.reporting.palette import PART_COLORS, SERIES_COLORS
from xttsbench.reporting.plots.autocorrelation import FEWEST_STEPS, why_not
from xttsbench.reporting.plots.figure import INK, SOFT, new, words
from xttsbench.reporting.plots.scene import Scene
from xttsbench.reporting.rhythm import period

_PERIOD_TICKS = (2, 3, 4, 5, 8, 16, 32)
_FLOOR = 1e-4
"""Power below this share of the largest is not drawn: it is rounding."""


def draw(scene: Scene) -> Figure:
    """Power by frequency with the red-noise null and its 1 % line; the report's period is marked."""
    wall = np.empty(0) if scene.main is None else scene.main.steady_wall_s
    if wall.size < FEWEST_STEPS or not varies(wall):
        return words("No periodogram of the step time", why_not(scene, wall.size))
    spectrum = periodogram(wall)
    frequency, power, threshold = spectrum.frequency, spectrum.power, spectrum.threshold
    found = scene.report.oscillation
    figure = new(f"Step time: {period(scene.report)}", height_in=4.0)
    axes = figure.add_subplot()
    axes.plot(frequency, power, color=SERIES_COLORS[0], linewidth=1.2, label="step time")
    axes.plot(frequency, spectrum.null, color=SOFT, linewidth=1.4, label="red noise (AR(1))")
    axes.plot(frequency, threshold, color=INK, linewidth=1.2, linestyle="--", label="1 % line")
    if found.period_steps:
        mark = f"{found.period_steps:.3g} steps"
        mark += "" if found.period_s is None else f" = {units.duration(found.period_s)}"
        axes.axvline(1 / found.period_steps, color=PART_COLORS["dispatch"], linewidth=6, alpha=0.35, label=mark)
    largest = max(float(power.max()), float(threshold.max()))
    axes.set_yscale("log")
    axes.set_ylim(max(float(power.min()), _FLOOR * largest) / 1.5, 3 * largest)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
    axes.set_xlim(0, 0.5)
    axes.set_xlabel("frequency (cycles per step)")
    axes.set_ylabel("power (s²)")
    above = axes.secondary_xaxis("top")
    above.set_xticks([1 / steps for steps in _PERIOD_TICKS], [str(steps) for steps in _PERIOD_TICKS])
    above.xaxis.set_minor_locator(FixedLocator([]))
    above.set_xlabel("period (steps)")
    figure.legend(loc="outside lower left", ncols=4)
    return figure
