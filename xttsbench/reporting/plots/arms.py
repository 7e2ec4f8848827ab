"""The plots of compared configurations: what each gives; the baseline and the best candidate over the same time.

The traces are of one process of each, of the same repeat: the starved loader oscillates, the cured one is flat. Of many
steps the fastest and the slowest of each stretch are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from xttsbench.analysis.steps import FloatArray
from xttsbench.records.base import DECIDED, Estimate
from xttsbench.records.report import Variant
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED
from xttsbench.reporting.plots import drawable, label, logarithmic_ticks, new, step_time_axis, words
from xttsbench.reporting.scene import Scene, extremes
from xttsbench.reporting.sections import Group
from xttsbench.reporting.sections.compare import result, tone
from xttsbench.reporting.side_runs import SideRun, has_samples, side_runs, utilization
from xttsbench.reporting.words import ARM_COLORS, INK, SOFT, configuration

_WIDE = 10.0  # Largest over smallest value from which an axis is logarithmic
_LONGEST_NAME = 28
_MEANINGS = {
    "baseline": "baseline",
    "again": "baseline again",
    "faster": "faster",
    "slower": "slower",
    "plain": "no difference",
    "ended": "ended early",
}
PASS_MARK: Final = 0.90
"""Utilization of an emulated accelerator that MLPerf Storage asks for."""
_LONGEST_OVER_SHORTEST = 4.0
"""The time axis ends at this many times the shortest trace, so that a quick configuration is no sliver."""
_WINDOWS = 100
_STRETCHES: Final = 400
"""Stretches of a trace: at most twice as many steps are drawn, each of which is an element of the page."""
_STEPS_PER_WINDOW = 4
_OF: Final = {
    "emulated": "use of the EMULATED accelerator",
    "GPU": "use of the GPU",
    "processor": "share of the time inside the step",
}


_Bar = tuple[Variant, Estimate | None]
"""A configuration and its rate."""


def draw_throughput(group: Group, _: Scene) -> Figure:
    """Horizontal bars in the order of the table; samples per second, or valid frames where those alone are known."""
    bars, unit = _bars(group)
    measured = [rate for _, rate in bars if rate is not None]
    if not measured:
        return words(f"Nothing to compare in {group.title}", "None has a throughput; the table says how each ended.")
    figure = new(_throughput_title(group), height_in=1.75 + 0.44 * len(bars))
    axes, beside = figure.subplots(1, 2, width_ratios=(5, 1.5))
    log = max(rate.estimate for rate in measured) > _WIDE * min(rate.estimate for rate in measured) > 0
    if log:
        axes.set_xscale("log")
        logarithmic_ticks(axes.xaxis)
        axes.set_xlim(min(rate.low for rate in measured) / 2, 2.2 * max(rate.high for rate in measured))
    else:
        axes.set_xlim(0, 1.14 * max(rate.high for rate in measured))
    for place, (arm, rate) in enumerate(bars):
        _bar(axes, place, arm, rate)
    axes.set_ylim(len(bars) - 0.45, -0.55)
    axes.set_yticks(range(len(bars)), [_name(arm) for arm, _ in bars], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_xlabel(f"{unit}{' (logarithmic axis)' if log else ''}; whiskers: 95 % intervals")
    _beside(beside, bars, axes.get_ylim())
    label(axes, group.where or group.name, bold=True)
    drawn = [arm for arm, rate in bars if rate is not None]
    tones = dict.fromkeys(tone(arm) for arm in drawn if not _look(arm)[1])
    keys = [Patch(color=ARM_COLORS[name], label=text) for name, text in _MEANINGS.items() if name in tones]
    if any(_look(arm)[1] for arm in drawn):
        keys.append(Patch(facecolor="white", edgecolor=SOFT, hatch="///", label="hatched: not decided"))
    figure.legend(handles=keys, loc="outside lower left", ncols=len(keys))
    return figure


def _throughput_title(group: Group) -> str:
    baseline, fastest = group.baseline, group.fastest
    if fastest is None or fastest.effect is None or baseline is None:
        return f"{group.name}: no configuration is proven to be faster than the baseline"
    return f"{group.name}: {fastest.id} gives {units.ratio(fastest.effect.estimate)} the throughput of {baseline.id}"


def _bars(group: Group) -> tuple[list[_Bar], str]:
    if any(arm.throughput_per_s is not None for arm in group.shown):
        return [(arm, arm.throughput_per_s) for arm in group.shown], "samples/s"
    return [(arm, arm.valid_frames_per_s) for arm in group.shown], "valid frames/s"


def _name(arm: Variant) -> str:
    name = drawable(configuration(arm.id))
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _bar(axes: Axes, place: int, arm: Variant, rate: Estimate | None) -> None:
    ended = "" if arm.status == "ok" else drawable(result(arm))
    if rate is None:
        text = ended or NOT_MEASURED
        axes.annotate(text, (0, place), (6, 0), ("axes fraction", "data"), "offset points", color=SOFT, va="center")
        return
    left = axes.get_xlim()[0]
    color, unsure = _look(arm)
    fill, hatch = ("white", "///") if unsure else (color, None)
    axes.barh(place, rate.estimate - left, 0.62, left=left, facecolor=fill, edgecolor=color, hatch=hatch)
    errors = [[max(0.0, rate.estimate - rate.low)], [max(0.0, rate.high - rate.estimate)]]
    axes.errorbar(rate.estimate, place, xerr=errors, color=INK, capsize=3, linewidth=1.3)
    text = "; ".join(filter(None, (units.rate_bounds(rate)[0], ended)))
    axes.annotate(text, (rate.high, place), (6, 0), textcoords="offset points", color=INK, va="center")


def _look(arm: Variant) -> tuple[str, bool]:
    """The colour of the effect, and whether it is still open: then the bar is hatched."""
    if tone(arm) != "plain" or arm.effect is None or arm.decision in DECIDED:
        return ARM_COLORS[tone(arm)], False
    return ARM_COLORS["faster" if arm.effect.estimate >= 1 else "slower"], True


def _beside(axes: Axes, bars: list[_Bar], limits: tuple[float, float]) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(limits)
    used = [units.percent(arm.utilization.estimate) if arm.utilization else "" for arm, _ in bars]
    for x, head, texts in ((0.45, "utilization", used), (1.0, "speed-up", [_speed_up(arm) for arm, _ in bars])):
        if any(texts):
            axes.annotate(head, (x, 1), (0, 6), "axes fraction", "offset points", ha="right", fontsize=10, color=SOFT)
            for place, text in enumerate(texts):
                axes.text(x, place, text, ha="right", va="center", color=INK)


def _speed_up(arm: Variant) -> str:
    if arm.effect is not None:
        return units.ratio(arm.effect.estimate)
    return "1" if arm.role == "baseline" and arm.status == "ok" else ""


def draw_traces(group: Group, scene: Scene) -> Figure:
    """Utilization in percent above, the time of each step below; the time begins at the first step of each."""
    runs = side_runs(group, scene)
    if not runs:
        return words(f"No traces of {group.title}", "No configuration of the group has recorded steps.")
    known = any(run.arm.utilization_of for run in runs)
    figure = new(_traces_title(group, runs), height_in=6.2 if known else 4.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)) if known else (None, figure.add_subplot())
    spans_s = [float(run.series.end_s[-1]) for run in runs]
    shown_s = min(max(spans_s), _LONGEST_OVER_SHORTEST * min(spans_s))
    slowest_s = max(float(np.median(run.series.wall_s)) for run in runs)
    window_s = max(shown_s / _WINDOWS, _STEPS_PER_WINDOW * slowest_s)
    if above is None:
        label(below, f"{group.where or group.name}; utilization was not measured", bold=True)
    else:
        _utilization_panel(above, group, runs, window_s)
    for run in runs:
        text = None if known else _legend(run)
        drawn = extremes(run.series.wall_s, _STRETCHES)
        below.plot(run.series.end_s[drawn], run.series.wall_s[drawn], ".", color=run.color, markersize=4.5, label=text)
    _time_axis(below, np.concatenate([run.series.wall_s for run in runs]))
    below.set_xlim(0, shown_s)
    blocks = ", ".join(str(block) for block in dict.fromkeys(run.block for run in runs))
    below.set_xlabel(f"time since the first step (s); one process of each, repeat {blocks}")
    figure.legend(loc="outside lower left", ncols=2, markerscale=2)
    figure.align_ylabels()
    return figure


def _utilization_panel(axes: Axes, group: Group, runs: Sequence[SideRun], window_s: float) -> None:
    for run in runs:
        t_s, share = utilization(run, window_s)
        axes.plot(t_s, share, color=run.color, linewidth=1.7, label=_legend(run))
        axes.plot(t_s[-1:], share[-1:], "o", color=run.color, markersize=5)
        if run.arm.role == "baseline":
            axes.fill_between(t_s, share, color=run.color, alpha=0.15, linewidth=0)
    if group.emulated:
        text = f"pass mark of MLPerf Storage, {100 * PASS_MARK:.0f} %"
        axes.axhline(PASS_MARK, color=SOFT, linewidth=1.2, linestyle=":", label=text)
    axes.set_ylim(0, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    axes.set_ylabel("utilization (%)")
    of = "" if group.emulated else next(run.arm.utilization_of for run in runs if run.arm.utilization_of)
    kind = "windows" if any(map(has_samples, runs)) else "rolling, triangular window"
    window = f"{kind} of {units.duration(window_s)}"
    label(axes, "; ".join(filter(None, (group.where, of, window))), bold=True)


def _traces_title(group: Group, runs: Sequence[SideRun]) -> str:
    known = [(run.arm, run.arm.utilization.estimate) for run in runs if run.arm.utilization is not None]
    shares = [f"{arm.id} {units.percent(share)}" for arm, share in known[:2]]
    if not shares:
        return f"{group.name}: step by step"
    of = next((text for start, text in _OF.items() if known[0][0].utilization_of.startswith(start)), "utilization")
    return f"{group.name}, {of}: {', '.join(shares)}"


def _legend(run: SideRun) -> str:
    """Name, mean over all processes, and how far the trace goes, which may be beyond the picture."""
    name = f"{_name(run.arm)}{' (baseline)' if run.arm.role == 'baseline' else ''}"
    mean = "" if run.arm.step_time_s is None else f"{units.duration(run.arm.step_time_s.estimate)} a step; "
    series = run.series
    return f"{name}: {mean}{series.wall_s.size} steps in {units.duration(float(series.end_s[-1]))}"


def _time_axis(axes: Axes, wall_s: FloatArray) -> None:
    largest = float(wall_s.max())
    log = bool(wall_s.min() > 0 and largest > _WIDE * wall_s.min())
    step_time_axis(axes, float(np.median(wall_s)), "time of a step", log=log, top=1.05 * largest)
