"""The throughput of each arm of a group as bars with intervals, utilization and speed-up beside them."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from xttsbench.records.base import Estimate
from xttsbench.records.report import Arm
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.groups import Group
from xttsbench.reporting.palette import ARM_COLORS
from xttsbench.reporting.plots.figure import INK, SOFT, drawable, label, logarithmic_ticks, new, words
from xttsbench.reporting.plots.scene import Scene
from xttsbench.reporting.sections.arms import decision, tone

_WIDE = 10.0
"""Largest over smallest throughput from which the axis is logarithmic."""
_LONGEST_NAME = 28
_MEANINGS = {
    "baseline": "baseline",
    "again": "baseline again",
    "faster": "faster",
    "slower": "slower",
    "plain": "neither faster nor slower is proven",
    "ended": "ended early",
}


@dataclass(frozen=True, slots=True)
class _Bar:
    arm: Arm
    rate: Estimate | None


def draw(group: Group, _: Scene) -> Figure:
    """Horizontal bars in the order of the table; samples per second, or valid frames where those alone are known."""
    bars, unit = _bars(group)
    measured = [bar.rate for bar in bars if bar.rate is not None]
    if not measured:
        return words(f"Nothing to compare in {group.title}", "No arm has a throughput; the table says how each ended.")
    figure = new(_title(group), height_in=1.75 + 0.44 * len(bars))
    axes, beside = figure.subplots(1, 2, width_ratios=(5, 1.5))
    log = max(rate.estimate for rate in measured) > _WIDE * min(rate.estimate for rate in measured) > 0
    if log:
        axes.set_xscale("log")
        logarithmic_ticks(axes.xaxis)
        axes.set_xlim(min(rate.low for rate in measured) / 2, 2.2 * max(rate.high for rate in measured))
    else:
        axes.set_xlim(0, 1.14 * max(rate.high for rate in measured))
    for place, bar in enumerate(bars):
        _bar(axes, place, bar)
    axes.set_ylim(len(bars) - 0.45, -0.55)
    axes.set_yticks(range(len(bars)), [_name(bar.arm) for bar in bars], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_xlabel(f"{unit}{' (logarithmic axis)' if log else ''}; whiskers: 95 % intervals")
    _beside(beside, bars, axes.get_ylim())
    label(axes, group.where or group.name, bold=True)
    tones = dict.fromkeys(tone(bar.arm) for bar in bars if bar.rate is not None)
    keys = [Patch(color=ARM_COLORS[name], label=text) for name, text in _MEANINGS.items() if name in tones]
    figure.legend(handles=keys, loc="outside lower left", ncols=len(keys))
    return figure


def _title(group: Group) -> str:
    """What the bars come to; only what was decided to be faster is named."""
    baseline, fastest = group.baseline, group.fastest
    if fastest is None or fastest.effect is None or baseline is None:
        return f"{group.name}: no configuration is proven to be faster than the baseline"
    return f"{group.name}: {fastest.id} gives {units.ratio(fastest.effect.estimate)} the throughput of {baseline.id}"


def _bars(group: Group) -> tuple[list[_Bar], str]:
    if any(arm.throughput_per_s is not None for arm in group.shown):
        return [_Bar(arm, arm.throughput_per_s) for arm in group.shown], "samples/s"
    return [_Bar(arm, arm.valid_frames_per_s) for arm in group.shown], "valid frames/s"


def _name(arm: Arm) -> str:
    name = drawable(arm.id)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _bar(axes: Axes, place: int, bar: _Bar) -> None:
    rate = bar.rate
    ended = "" if bar.arm.status == "ok" else drawable(decision(bar.arm))
    if rate is None:
        text = ended or NOT_MEASURED
        axes.annotate(text, (0, place), (6, 0), ("axes fraction", "data"), "offset points", color=SOFT, va="center")
        return
    left = axes.get_xlim()[0]
    axes.barh(place, rate.estimate - left, 0.62, left=left, color=ARM_COLORS[tone(bar.arm)])
    errors = [[max(0.0, rate.estimate - rate.low)], [max(0.0, rate.high - rate.estimate)]]
    axes.errorbar(rate.estimate, place, xerr=errors, color=INK, capsize=3, linewidth=1.3)
    text = "; ".join(word for word in (units.rate_bounds(rate)[0], ended) if word)
    axes.annotate(text, (rate.high, place), (6, 0), textcoords="offset points", color=INK, va="center")


def _beside(axes: Axes, bars: list[_Bar], limits: tuple[float, float]) -> None:
    """Utilization and speed-up as columns to the right of the bars."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(limits)
    columns = (
        (0.45, "utilization", [_percent(bar.arm.utilization) for bar in bars]),
        (1.0, "speed-up", [_speed_up(bar.arm) for bar in bars]),
    )
    for x, head, texts in columns:
        if not any(texts):
            continue
        axes.annotate(head, (x, 1), (0, 6), "axes fraction", "offset points", ha="right", fontsize=10, color=SOFT)
        for place, text in enumerate(texts):
            axes.text(x, place, text, ha="right", va="center", color=INK)


def _percent(estimate: Estimate | None) -> str:
    return "" if estimate is None else units.percent(estimate.estimate)


def _speed_up(arm: Arm) -> str:
    if arm.effect is None:
        return "1" if arm.role == "baseline" and arm.status == "ok" else ""
    return units.ratio(arm.effect.estimate)
