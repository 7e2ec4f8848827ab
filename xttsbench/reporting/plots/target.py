"""Steps, waits and utilization over time, on aligned axes, of the process that stands for the run."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from xttsbench.analysis.readings import trace
from xttsbench.analysis.variance import stragglers
from xttsbench.records.base import Estimate
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting import units
from xttsbench.reporting.palette import PART_COLORS, SERIES_COLORS
from xttsbench.reporting.plots.figure import SOFT, drawable, label, new, seconds_axis, words
from xttsbench.reporting.plots.scene import Scene
from xttsbench.reporting.series import FloatArray, StepSeries

_WIDE = 20.0
"""Largest over median step time from which the axis is logarithmic."""
_WINDOWS = 80
_STEPS_PER_WINDOW = 4


def draw(scene: Scene) -> Figure:
    """Wall time per step with warm-up and stalls marked, time inside ``next()``, and a utilization trace."""
    series, record = scene.main, scene.record
    if series is None or record is None:
        return words("No steps to draw over time", scene.why_empty)
    steady = series.steady_wall_s
    stalls = series.steady_from + (stragglers(steady).indices if steady.size else np.empty(0, dtype=np.int64))
    figure = new(_title(series, stalls.size), height_in=6.8)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
    _steps(top, series, stalls)
    if np.isfinite(series.wait_s).any():
        middle.vlines(series.end_s, 0, series.wait_s, color=PART_COLORS["input"], linewidth=1.4)
        seconds_axis(middle.yaxis, float(np.nanmax(series.wait_s)), "inside next()")
    else:
        label(middle, "time inside next(): not measured")
    middle.set_ylim(bottom=0)
    _utilization(bottom, series, record, scene.report.verdict.accelerator_utilization)
    if series.steady_from:
        for axes in (top, middle, bottom):
            axes.axvspan(0, series.end_s[series.steady_from - 1], color="#000000", alpha=0.08, linewidth=0)
    bottom.set_xlim(0, float(series.end_s[-1]) * 1.005)
    count = f", one of {len(scene.series)}" if len(scene.series) > 1 else ""
    bottom.set_xlabel(drawable(f"time since the first step (s); process {series.label}{count}"))
    figure.align_ylabels()
    return figure


def _title(series: StepSeries, stalls: int) -> str:
    wall, wait = series.steady_wall_s, series.wait_s[series.steady_from :]
    if not wall.size:
        return f"{series.wall_s.size} steps, all of them warm-up"
    many = f"{stalls} of {wall.size} steps {'is a stall' if stalls == 1 else 'are stalls'}" if stalls else "no stalls"
    if not np.isfinite(wait).all():
        return many
    return f"{units.percent(float(wait.sum() / wall.sum()))} of the time is waiting for data; {many}"


def _steps(axes: Axes, series: StepSeries, stalls: NDArray[np.int64]) -> None:
    end, wall = series.end_s, series.wall_s
    axes.plot(end, wall, ".", color=SERIES_COLORS[0], markersize=4, label="step")
    if stalls.size:
        axes.plot(end[stalls], wall[stalls], "v", color=PART_COLORS["dispatch"], markersize=6, label="stall")
    log = bool(wall.min() > 0 and wall.max() > _WIDE * np.median(wall))
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    seconds_axis(axes.yaxis, float(wall.max()), "wall time of a step", log=log)
    if series.steady_from:
        axes.fill_between([], [], color="#000000", alpha=0.08, label="warm-up")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.1)


def _utilization(axes: Axes, series: StepSeries, record: TrialRecord, mean: Estimate | None) -> None:
    """The best trace there is: emulated accelerator, else GPU, else the process's use of the processors."""
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    axes.set_ylabel("utilization (%)")
    average = "" if mean is None else f", {units.percent(mean.estimate)} on average"
    span_s = float(series.end_s[-1])
    window_s = max(span_s / _WINDOWS, _STEPS_PER_WINDOW * float(series.wall_s.mean()))
    if series.accelerator_s is not None:
        _windows(axes, series, series.accelerator_s, window_s, PART_COLORS["transfer"])
        label(axes, f"EMULATED accelerator: compute over wall time{average}; windows of {units.duration(window_s)}")
        return
    drawn = _gpus(axes, series, record)
    if drawn:
        label(axes, f"GPU, the driver's samples{average}: {', '.join(drawn)}")
        return
    if not np.isfinite(series.cpu_s).all():
        label(axes, "utilization: not measured")
        return
    cores = record.devices.cpus if record.devices else 1
    _windows(axes, series, series.cpu_s / cores, window_s, SOFT)
    axes.set_ylim(bottom=0, top=1.02 if record.devices else None)
    axes.set_ylabel("processor use (%)")
    label(axes, f"no accelerator: the process's use of {f'{cores} cores' if cores != 1 else 'one core'} (not a GPU)")


def _gpus(axes: Axes, series: StepSeries, record: TrialRecord) -> list[str]:
    """Draw each GPU's utilization during the steps; names of those that have samples."""
    names = []
    for color, gpu in zip(SERIES_COLORS, record.readings.gpus, strict=False):
        t_s = (np.array(gpu.utilization_t_ns, dtype=np.int64) - series.zero_ns) / 1e9
        during = (t_s >= 0) & (t_s <= series.end_s[-1])
        if during.any():
            axes.plot(t_s[during], np.array(gpu.utilization)[during], color=color, linewidth=1.2)
            names.append(f"{gpu.index} {gpu.name}")
    return names


def _windows(axes: Axes, series: StepSeries, busy_s: FloatArray, window_s: float, color: str) -> None:
    t_s, utilization = trace(series.end_s, busy_s, window_s=window_s)
    axes.fill_between(t_s, utilization, step="mid", color=color, alpha=0.35, linewidth=0)
    axes.step(t_s, utilization, where="mid", color=color, linewidth=1.4)
