"""The distribution of the step time in the steady state: histogram and cumulative share, one curve per process."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from xttsbench.reporting import units
from xttsbench.reporting.palette import SERIES_COLORS
from xttsbench.reporting.plots.figure import INK, drawable, new, seconds_axis, words
from xttsbench.reporting.plots.scene import Scene
from xttsbench.reporting.series import FloatArray

_WIDE = 8.0
"""Largest over smallest step time from which the axis is logarithmic."""
_MOST_BINS = 60
_FEWEST_STEPS = 5


def draw(scene: Scene) -> Figure:
    """Histogram above, cumulative share (ECDF) below; mean, median and 95th percentile are the report's."""
    steps = [(series.label, series.steady_wall_s) for series in scene.series if series.steady_wall_s.size]
    pooled = np.concatenate([wall for _, wall in steps]) if steps else np.empty(0)
    if pooled.size < _FEWEST_STEPS:
        reason = f"{pooled.size} steady steps are too few." if scene.series else scene.why_empty
        return words("No distribution of the step time", reason)
    marks = _marks(scene, pooled)
    figure = new(_title(marks), height_in=5.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    log = bool(pooled.min() > 0 and pooled.max() > _WIDE * pooled.min())
    bins = _bins(pooled, log=log)
    for index, (name, wall) in enumerate(steps):
        color = SERIES_COLORS[index % len(SERIES_COLORS)]
        shares = np.histogram(wall, bins)[0] / wall.size
        text = drawable(f"{name} ({wall.size} steps)") if index < len(SERIES_COLORS) else None
        above.stairs(shares, bins, color=color, fill=len(steps) == 1, alpha=0.9, linewidth=1.6, label=text)
        below.ecdf(wall, color=color, linewidth=1.6)
    for (name, value), line in zip(marks.items(), ("-", "--", ":"), strict=True):
        for axes in (above, below):
            axes.axvline(value, color=INK, linestyle=line, linewidth=1.3)
        above.plot([], [], color=INK, linestyle=line, label=f"{name} {units.duration(value)}")
    if log:
        below.set_xscale("log")
    seconds_axis(below.xaxis, float(pooled.max()), "wall time of a step", log=log)
    for axes, text in ((above, "share of the steps (%)"), (below, "steps at or below (%)")):
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
        axes.set_ylabel(text)
    figure.legend(loc="outside lower left", ncols=3)
    figure.align_ylabels()
    return figure


def _marks(scene: Scene, pooled: FloatArray) -> dict[str, float]:
    verdict = scene.report.verdict
    known = {
        "mean": (verdict.step_time_s, pooled.mean()),
        "median": (verdict.step_time_median_s, np.median(pooled)),
        "95th percentile": (verdict.step_time_p95_s, np.quantile(pooled, 0.95)),
    }
    return {name: float(value if estimate is None else estimate.estimate) for name, (estimate, value) in known.items()}


def _title(marks: dict[str, float]) -> str:
    mean, median, p95 = marks.values()
    if mean > 1.25 * median:
        hides = f"{units.number(mean / median)} times the median: few slow steps make up much of the time"
        return f"The mean step, {units.duration(mean)}, is {hides}"
    return f"Half of the steps take under {units.duration(median)}, one in twenty over {units.duration(p95)}"


def _bins(pooled: FloatArray, *, log: bool) -> FloatArray:
    """Edges from the smallest to the largest value, as many as the Freedman-Diaconis rule asks, 60 at most."""
    values = np.log(pooled) if log else pooled
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-6 * max(abs(high), 1e-9):  # a constant step time: one bar around it
        edges = pooled[0] * np.array([0.9, 0.95, 1.05, 1.1])
        return np.asarray(edges, dtype=np.float64)
    spread = float(np.subtract(*np.quantile(values, (0.75, 0.25))))
    width = 2 * spread / np.cbrt(values.size)
    count = int(np.clip(np.ceil((high - low) / width), 10, _MOST_BINS)) if width > 0 else _MOST_BINS
    edges = np.linspace(low, high, count + 1)
    edges = np.exp(edges) if log else edges
    edges[0], edges[-1] = pooled.min(), pooled.max()  # rounding must not put the slowest step outside
    return np.asarray(edges, dtype=np.float64)
