"""A training run over its steps: the losses of training and of held-out clips, and the waiting for data."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xttsbench.diagnosis.training import STARVING
from xttsbench.records.training import Training
from xttsbench.reporting.palette import PART_COLORS, SERIES_COLORS
from xttsbench.reporting.plots.figure import SOFT, label, logarithmic_ticks, new, words
from xttsbench.reporting.plots.scene import Scene

_WIDE: Final = 5.0
"""Largest over smallest loss from which the axis is logarithmic."""


def draw(scene: Scene) -> Figure:
    """Losses above, the share of each interval that was waiting below, over the number of the step."""
    training = scene.report.training
    if training is None or not training.intervals:
        return words("No losses to draw", "No interval of training ended.")
    figure = new(_title(training), height_in=5.4)
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
    if values.size and values.min() > 0 and values.max() > _WIDE * values.min():
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


def _title(training: Training) -> str:
    losses = [interval.loss for interval in training.intervals if interval.loss is not None]
    steps = training.intervals[-1].first_step + training.intervals[-1].steps - 1
    fall = f": loss {losses[0]:.3g} to {losses[-1]:.3g}" if losses else ""
    held_out = f", held out {training.evaluations[-1].loss:.3g}" if training.evaluations else ""
    return f"{training.recipe}, {steps:,} steps{fall}{held_out}"
