"""The plots of one target: what its step goes into, its steps over time, their distribution and rhythm; a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from numpy.typing import NDArray

from xttsbench.analysis.rhythm import autocorrelation, effective_size, periodogram, varies
from xttsbench.analysis.steps import FloatArray
from xttsbench.analysis.variation import stragglers
from xttsbench.findings.starvation import STARVING
from xttsbench.records.base import Estimate
from xttsbench.records.training import Training
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting import units
from xttsbench.reporting.plots import drawable, label, logarithmic_ticks, new, seconds_axis, step_time_axis, words
from xttsbench.reporting.scene import Scene, StepSeries
from xttsbench.reporting.sections import TRAINING
from xttsbench.reporting.sections.step import period
from xttsbench.reporting.time_line import samples_of
from xttsbench.reporting.utilization import trace
from xttsbench.reporting.words import INK, PART_COLORS, SERIES_COLORS, SOFT

_WIDE_TIMELINE = 20.0  # Largest over median step time from which the axis is logarithmic
_WINDOWS = 80
_STEPS_PER_WINDOW = 4
_WIDE_DISTRIBUTION = 8.0  # Largest over smallest step time from which the axis is logarithmic
_MOST_BINS = 60
_FEWEST_STEPS = 5
_FEWEST_FOR_BINS = 60  # Below this a histogram shows its bins rather than the steps
_FEWEST_FOR_A_SERIES = 20  # Below this the band covers nearly everything
_LONGEST_LAG = 100
_PERIOD_TICKS = (2, 3, 4, 5, 8, 16, 32)
_FLOOR = 1e-4  # Power below this share of the largest is not drawn: it is rounding
_WIDE_LOSSES = 5.0  # Largest over smallest loss from which the axis is logarithmic


def draw_timeline(scene: Scene) -> Figure:
    """Wall time per step with warm-up and stalls marked, time inside ``next()``, and a utilization trace."""
    series, record = scene.main, scene.record
    if series is None or record is None:
        return words("No steps to draw over time", scene.why_empty)
    steady = series.steady_wall_s
    stalls = series.steady_from + (stragglers(steady).indices if steady.size else np.empty(0, dtype=np.int64))
    figure = new(_timeline_title(series, stalls.size), height_in=6.8)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
    _steps(top, series, stalls)
    middle.vlines(series.end_s, 0, series.wait_s, color=PART_COLORS["input"], linewidth=1.4)
    seconds_axis(middle.yaxis, float(series.wait_s.max()), "inside next()")
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


def _timeline_title(series: StepSeries, stalls: int) -> str:
    wall, wait = series.steady_wall_s, series.wait_s[series.steady_from :]
    if not wall.size:
        return f"{series.wall_s.size} steps, all of them warm-up"
    many = f"{stalls} of {wall.size} steps {'is a stall' if stalls == 1 else 'are stalls'}" if stalls else "no stalls"
    return f"{units.percent(float(wait.sum() / wall.sum()))} of the time is waiting for data; {many}"


def _steps(axes: Axes, series: StepSeries, stalls: NDArray[np.int64]) -> None:
    end, wall = series.end_s, series.wall_s
    axes.plot(end, wall, ".", color=SERIES_COLORS[0], markersize=4, label="step")
    if stalls.size:
        axes.plot(end[stalls], wall[stalls], "v", color=PART_COLORS["dispatch"], markersize=6, label="stall")
    log = bool(wall.min() > 0 and wall.max() > _WIDE_TIMELINE * np.median(wall))
    step_time_axis(axes, float(wall.max()), "wall time of a step", log=log)
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
    if series.emulated:
        _windows(axes, series, series.emulated_s, window_s, PART_COLORS["transfer"])
        label(axes, f"EMULATED accelerator: compute over wall time{average}; windows of {units.duration(window_s)}")
        return
    drawn = _gpus(axes, series, record)
    if drawn:
        label(axes, f"GPU, the driver's samples{average}: {', '.join(drawn)}")
        return
    cores = record.devices.cpus if record.devices else 1
    _windows(axes, series, series.cpu_s / cores, window_s, SOFT)
    axes.set_ylim(bottom=0, top=1.02 if record.devices else None)
    axes.set_ylabel("processor use (%)")
    label(axes, f"no accelerator: the process's use of {f'{cores} cores' if cores != 1 else 'one core'} (not a GPU)")


def _gpus(axes: Axes, series: StepSeries, record: TrialRecord) -> list[str]:
    names = []
    for color, gpu in zip(SERIES_COLORS, record.readings.gpus, strict=False):
        t_s, share = samples_of(gpu, series)
        if t_s.size:
            axes.plot(t_s, share, color=color, linewidth=1.2)
            names.append(f"{gpu.index} {gpu.name}")
    return names


def _windows(axes: Axes, series: StepSeries, busy_s: FloatArray, window_s: float, color: str) -> None:
    t_s, utilization = trace(series.end_s, busy_s, window_s=window_s)
    axes.fill_between(t_s, utilization, step="mid", color=color, alpha=0.35, linewidth=0)
    axes.step(t_s, utilization, where="mid", color=color, linewidth=1.4)


def draw_distribution(scene: Scene) -> Figure:
    """Histogram (of few steps a dot each) above, cumulative share (ECDF) below, with the report's own numbers."""
    steps = [(series.label, series.steady_wall_s) for series in scene.series if series.steady_wall_s.size]
    pooled = np.concatenate([wall for _, wall in steps]) if steps else np.empty(0)
    if pooled.size < _FEWEST_STEPS:
        reason = f"{pooled.size} steady steps are too few." if scene.series else scene.why_empty
        return words("No distribution of the step time", reason)
    marks = _marks(scene, pooled)
    figure = new(_distribution_title(marks), height_in=5.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    log = bool(pooled.min() > 0 and pooled.max() > _WIDE_DISTRIBUTION * pooled.min())
    bins = _bins(pooled, log=log)
    for index, (name, wall) in enumerate(steps):
        color = SERIES_COLORS[index % len(SERIES_COLORS)]
        shares = np.histogram(wall, bins)[0] / wall.size
        text = drawable(f"{name} ({wall.size} steps)") if index < len(SERIES_COLORS) else None
        if pooled.size < _FEWEST_FOR_BINS:
            above.plot(wall, np.full(wall.size, index), "o", color=color, alpha=0.7, markersize=6, label=text)
        else:
            above.stairs(shares, bins, color=color, fill=len(steps) == 1, alpha=0.9, linewidth=1.6, label=text)
        below.ecdf(wall, color=color, linewidth=1.6)
    for (name, value), line in zip(marks.items(), ("-", "--", ":"), strict=True):
        for axes in (above, below):
            axes.axvline(value, color=INK, linestyle=line, linewidth=1.3)
        above.plot([], [], color=INK, linestyle=line, label=f"{name} {units.duration(value)}")
    if log:
        below.set_xscale("log")
    seconds_axis(below.xaxis, float(pooled.max()), "wall time of a step", log=log)
    if pooled.size < _FEWEST_FOR_BINS:
        above.set_ylim(-1, len(steps))
        above.set_yticks([])
    shares_of = ((above, "share of the steps (%)"),) if pooled.size >= _FEWEST_FOR_BINS else ()
    for axes, text in (*shares_of, (below, "steps at or below (%)")):
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


def _distribution_title(marks: dict[str, float]) -> str:
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
        return np.array([0.9, 0.95, 1.05, 1.1]) * float(pooled[0])
    spread = float(np.subtract(*np.quantile(values, (0.75, 0.25))))
    width = 2 * spread / np.cbrt(values.size)
    count = int(np.clip(np.ceil((high - low) / width), 10, _MOST_BINS)) if width > 0 else _MOST_BINS
    edges = np.linspace(low, high, count + 1)
    edges = np.exp(edges) if log else edges
    edges[0], edges[-1] = pooled.min(), pooled.max()  # rounding must not put the slowest step outside
    return np.asarray(edges, dtype=np.float64)


def draw_autocorrelation(scene: Scene) -> Figure:
    """Bars by lag in steps, the 95 % band of white noise (1.96 / sqrt(n), Bartlett 1946), and the period if any."""
    wall, why_not = _series(scene)
    if why_not:
        return words("No autocorrelation of the step time", why_not)
    found = scene.report.oscillation
    effective = effective_size(wall) if found.effective_steps is None else found.effective_steps
    period = found.period_steps
    furthest = max(_LONGEST_LAG // 2, round(3.5 * period) if period else 0)
    longest = max(2, min(wall.size // 4, _LONGEST_LAG, furthest))
    values = autocorrelation(wall, longest)
    worth = f"are worth {round(effective):,} independent ones" if effective <= wall.size else "even each other out"
    repeats = f"; they repeat every {period:.3g}" if period else ""
    figure = new(f"{wall.size} steps {worth}{repeats}", height_in=3.7)
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


def _series(scene: Scene) -> tuple[FloatArray, str]:
    """Steady step times of one process, and why they are no series to analyse; empty where they are."""
    if scene.main is None:
        return np.empty(0), scene.why_empty
    wall = scene.main.steady_wall_s
    if wall.size < _FEWEST_FOR_A_SERIES:
        return wall, f"{wall.size} steady steps are too few; {_FEWEST_FOR_A_SERIES} are needed."
    return wall, "" if varies(wall) else "Every step took the same time."


def draw_periodogram(scene: Scene) -> Figure:
    """Power by frequency with the red-noise null and its 1 % line; the report's period is marked."""
    wall, why_not = _series(scene)
    if why_not:
        return words("No periodogram of the step time", why_not)
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


def draw_training(scene: Scene) -> Figure:
    """Losses above, the share of each interval that was waiting below, over the number of the step."""
    training = scene.report.training
    if training is None or not training.intervals:
        return words("No losses to draw", "No interval of training ended.")
    figure = new(_training_title(training), height_in=5.4)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.4))
    _losses(top, training)
    _waiting(bottom, training)
    bottom.set_xlim(left=0)
    bottom.set_xlabel("step")
    figure.align_ylabels()
    return figure


def _losses(axes: Axes, training: Training) -> None:
    last = [interval.first_step + interval.steps - 1 for interval in training.intervals]
    loss = np.array([np.nan if interval.loss is None else interval.loss for interval in training.intervals])
    axes.plot(last, loss, color=SERIES_COLORS[0], linewidth=1.6, marker=".", label="training, mean of an interval")
    values = loss[np.isfinite(loss)]
    if training.evaluations:
        steps = [found.step for found in training.evaluations]
        held_out = np.array([found.loss for found in training.evaluations])
        axes.plot(steps, held_out, "o-", color=SERIES_COLORS[1], linewidth=1.2, markersize=5, label="held-out clips")
        values = np.concatenate([values, held_out])
    for begun in training.sessions[1:]:
        axes.axvline(begun.step, color=SOFT, linewidth=1, linestyle=":")
    if values.size and values.min() > 0 and values.max() > _WIDE_LOSSES * values.min():
        axes.set_yscale("log")
        logarithmic_ticks(axes.yaxis)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    elif values.size and values.max() > 0:
        axes.set_ylim(0, 1.05 * float(values.max()))
    axes.set_ylabel("loss")
    axes.legend(loc="upper right")


def _waiting(axes: Axes, training: Training) -> None:
    steps = [interval.first_step + interval.steps - 1 for interval in training.intervals]
    shares = np.array([np.nan if one.wait_fraction is None else one.wait_fraction for one in training.intervals])
    axes.plot(steps, shares, color=PART_COLORS["input"], linewidth=1.6, marker=".")
    axes.axhline(STARVING, color=SOFT, linewidth=1, linestyle=":")
    axes.set_ylim(0, max(1.5 * STARVING, 1.1 * float(np.nan_to_num(shares).max())))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    axes.set_ylabel("waiting (%)")
    label(axes, f"waiting for data, share of each interval; above {STARVING:.0%} training starves")


def _training_title(training: Training) -> str:
    losses = [interval.loss for interval in training.intervals if interval.loss is not None]
    steps = training.intervals[-1].first_step + training.intervals[-1].steps - 1
    fall = f": loss {losses[0]:.3g} to {losses[-1]:.3g}" if losses else ""
    held_out = f", held out {training.evaluations[-1].loss:.3g}" if training.evaluations else ""
    return f"{training.recipe}, {steps:,} steps{fall}{held_out}"


DRAWERS: Final[dict[str, Callable[[Scene], Figure]]] = {
    "timeline": draw_timeline,
    "distribution": draw_distribution,
    "autocorrelation": draw_autocorrelation,
    "periodogram": draw_periodogram,
    TRAINING: draw_training,
}
"""Plot of one target to what draws it, in the order of :data:`xttsbench.reporting.sections.CAPTIONS`."""
