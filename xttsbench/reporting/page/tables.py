"""What the plots of a page show, as tables: for who cannot see them, or wants the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from xttsbench.analysis.rhythm import autocorrelation, periodogram, varies
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, Column, Table, table
from xttsbench.reporting.groups import figures_of, groups
from xttsbench.reporting.scene import FloatArray, Scene
from xttsbench.reporting.side_by_side import SideRun, side_runs, utilization

_NAMED: Final = {0.0: "fastest", 0.5: "median", 1.0: "slowest"}
_QUANTILES: Final = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_LAGS: Final = 50
_PERIODS: Final = 12
_STRETCHES: Final = 12


def table_of(name: str, scene: Scene) -> Table | None:
    """The data of a plot of that name; ``None`` where a table beside it has them, or there are none."""
    if name == "distribution":
        return _distribution(scene)
    wall = np.empty(0) if scene.main is None else scene.main.steady_wall_s
    if name in ("autocorrelation", "periodogram"):
        if wall.size <= _PERIODS or not varies(wall):
            return None
        return _autocorrelation(wall) if name == "autocorrelation" else _periodogram(wall)
    for group in groups(scene.report):
        if name == list(figures_of(group))[1] and (runs := side_runs(group, scene)):
            return _traces(runs)
    return None


def _numbers(first: str, *others: str) -> tuple[Column, ...]:
    return Column(first), *(Column(name, numeric=True) for name in others)


def _distribution(scene: Scene) -> Table | None:
    """Quantiles of the step time, a row for each process."""
    steps = [series for series in scene.series if series.steady_wall_s.size]
    columns = _numbers("process", "steps", *(_NAMED.get(share, f"{100 * share:g} %") for share in _QUANTILES))
    rows = [
        (
            series.label,
            f"{series.steady_wall_s.size:,}",
            *(units.duration(float(value)) for value in np.quantile(series.steady_wall_s, _QUANTILES)),
        )
        for series in steps
    ]
    return table(columns, rows) if rows else None


def _autocorrelation(wall_s: FloatArray) -> Table:
    values = autocorrelation(wall_s, min(_LAGS, wall_s.size // 4))
    band = 1.96 / np.sqrt(wall_s.size)
    rows = [(f"{lag}", f"{value:.3f}", "yes" if abs(value) > band else "no") for lag, value in enumerate(values)]
    return table(_numbers("lag, steps", "autocorrelation", "beyond white noise (95 %)"), rows)


def _periodogram(wall_s: FloatArray) -> Table:
    """The periods with most power."""
    found = periodogram(wall_s)
    strongest = np.argsort(-found.power)[:_PERIODS]
    rows = [
        (
            units.number(float(1 / found.frequency[at])),
            f"{found.power[at]:.2e}",
            f"{found.null[at]:.2e}",
            "yes" if found.power[at] > found.threshold[at] else "no",
        )
        for at in strongest
    ]
    return table(_numbers("period, steps", "power, s²", "expected of red noise", "above the 1 % line"), rows)


def _traces(runs: tuple[SideRun, ...]) -> Table:
    """The step time and the utilization of each configuration over stretches of the longest one's time."""
    span_s = max(float(run.series.end_s[-1]) for run in runs)
    edges = np.linspace(0.0, span_s, _STRETCHES + 1)
    heads = [f"{run.arm.id}: {what}" for run in runs for what in ("mean step", "utilization")]
    columns = [list(_stretches(run, edges)) for run in runs]
    rows = []
    for place, (low, high) in enumerate(pairwise(edges)):
        cells = [cell for column in columns for cell in column[place]]
        rows.append((f"{low:.1f} to {high:.1f} s", *cells))
    return table(_numbers("since the first step", *heads), rows)


def _stretches(run: SideRun, edges: FloatArray) -> Iterator[tuple[str, str]]:
    """Mean step time and utilization in each stretch."""
    end_s, wall_s = run.series.end_s, run.series.wall_s
    t_s, share = utilization(run, float(edges[1] - edges[0]))
    known = bool(run.arm.utilization_of)
    for low, high in pairwise(edges):
        steps = wall_s[(end_s > low) & (end_s <= high)]
        used = share[(t_s > low) & (t_s <= high)]
        mean = units.duration(float(steps.mean())) if steps.size else "no step ended"
        yield mean, units.percent(float(used.mean())) if known and used.size else NOT_MEASURED
