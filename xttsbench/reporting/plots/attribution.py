"""The attribution as one horizontal stacked bar."""

from __future__ import annotations

from matplotlib.figure import Figure

from xttsbench.reporting import units
from xttsbench.reporting.bar import visible
from xttsbench.reporting.palette import PART_COLORS
from xttsbench.reporting.plots.figure import INK, new, seconds_axis, words
from xttsbench.reporting.plots.scene import Scene
from xttsbench.reporting.sections.report import describe

_ROOM_FOR_A_NAME = 0.12
"""Share of the bar from which a part's name fits inside it."""


def draw(scene: Scene) -> Figure:
    """Mean seconds of a step by what they go to; the residual is drawn, or only listed where it is negative."""
    attribution = scene.report.verdict.attribution_s
    said = describe(scene.report)
    if attribution is None:
        return words("Where the time of a step goes was not measured", said.parts_note)
    parts = visible(said.parts)
    largest = max(parts, key=lambda part: part.share)
    figure = new(f"{largest.percent} of the mean step time goes into {largest.name}", height_in=2.6)
    axes = figure.add_subplot()
    left = 0.0
    for part in parts:
        seconds = max(0.0, float(getattr(attribution, part.name)))
        legend = f"{part.name}  {part.time}  ({part.percent})"
        axes.barh(0, seconds, left=left, color=PART_COLORS[part.name], edgecolor="white", label=legend)
        if part.share >= _ROOM_FOR_A_NAME:
            axes.text(left + seconds / 2, 0, part.name, ha="center", va="center", color=INK)
        left += seconds
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    axes.set_xlim(0, left or 1.0)
    seconds_axis(axes.xaxis, left, "mean time of a step")
    if mean := scene.report.verdict.step_time_s:
        axes.axvline(mean.estimate, color=INK, linewidth=1.2, linestyle="--")
        axes.set_xlim(0, 1.01 * max(left, mean.estimate))
        axes.set_xlabel(f"{axes.get_xlabel()}; dashed: the mean as measured, {units.duration(mean.estimate)}")
    figure.legend(loc="outside lower left", ncols=3)
    return figure
