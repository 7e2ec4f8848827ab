"""The plot of a plan: throughput by the number of input workers for each network, utilization for each accelerator."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xttsbench.records.scale import Scale, ScaleCell, ScaleKnee
from xttsbench.reporting.plots import label, new, words
from xttsbench.reporting.plots.arms import PASS_MARK
from xttsbench.reporting.scene import Scene
from xttsbench.reporting.words import SERIES_COLORS, SOFT

_CHECKED: Final = 4  # workers, beyond which lines are dashed


def draw_scale(scene: Scene) -> Figure:
    """Lines with their ranges as bands, dashed where they are extrapolated; a mark where more workers give no more."""
    scale = scene.report.scale
    if scale is None:
        return words("Nothing was planned", scene.report.unmeasured.get("scale", "The report has no plan."))
    knee = scale.usual
    count = f"{knee.workers.estimate:,.0f} worker{'s' * (knee.workers.estimate != 1)}"
    which = f"{count} of {knee.cores:g} cores at {knee.gbit_s:g} Gbit/s"
    title = f"From {which} on, the pace is set by the {knee.limited_by}"
    figure = new(title, height_in=4.4)
    left, right = figure.subplots(1, 2)
    late = knee.latency_s
    networks = [one for one in scale.knees if (one.accelerator, one.replicas) == (1, 1)]
    _panel(left, scale, [one for one in networks if one.latency_s == late], "throughput_per_s")
    label(left, "batches a second, by the speed of the network")
    faster = [one for one in scale.knees if one.replicas == 1 and (one.gbit_s, one.latency_s) == (knee.gbit_s, late)]
    _panel(right, scale, faster, "utilization")
    right.axhline(PASS_MARK, color=SOFT, linewidth=1.2, linestyle=":")
    right.set_ylim(0, 1.03)
    right.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    label(right, "utilization in %, by the speed of the accelerator")
    return figure


def _panel(axes: Axes, scale: Scale, knees: list[ScaleKnee], name: str) -> None:
    axes.set_xscale("log", base=2)
    for color, knee in zip(SERIES_COLORS, knees, strict=False):
        cells = [one for one in scale.cells if one.workers and _key(one) == _key(knee)]
        at = np.array([one.workers for one in cells])
        mean, low, high = (
            np.array([getattr(getattr(one, name), of) for one in cells]) for of in ("estimate", "low", "high")
        )
        axes.fill_between(at, low, high, color=color, alpha=0.2, linewidth=0)
        seen = at <= _CHECKED
        text = f"{knee.gbit_s:g} Gbit/s" if name == "throughput_per_s" else f"{knee.accelerator:g}x"
        axes.plot(at[seen], mean[seen], color=color, label=f"{text}: {knee.limited_by}")
        axes.plot(at[at >= _CHECKED], mean[at >= _CHECKED], color=color, linestyle="--")
        axes.plot(knee.workers.estimate, np.interp(knee.workers.estimate, at, mean), "o", color=color)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("input workers; dashed: extrapolated")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend(loc="lower right")


def _key(one: ScaleCell | ScaleKnee) -> tuple[object, ...]:
    return one.gbit_s, one.latency_s, one.accelerator, one.replicas
