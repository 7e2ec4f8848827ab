"""Tables with the numbers of each plot, for those who do not see it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Final

import numpy as np

from xttsbench.analysis.rhythm import autocorrelation, periodogram, varies
from xttsbench.analysis.steps import FloatArray
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, Table, numeric, table
from xttsbench.reporting.scene import Scene
from xttsbench.reporting.sections import figures_of, groups
from xttsbench.reporting.side_runs import SideRun, side_runs, utilization

_NAMED: Final = {0.0: "fastest", 0.5: "median", 1.0: "slowest"}
_QUANTILES: Final = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_LAGS: Final = 50
_PERIODS: Final = 12
_STRETCHES: Final = 12


def table_of(name: str, scene: Scene | None) -> Table | None:
    """The data of a plot of that name; ``None`` where a table beside it has them, or there are none."""
    if scene is None:
        return None
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


def _distribution(scene: Scene) -> Table | None:
    rows = []
    for series in scene.series:
        if (wall_s := series.steady_wall_s).size:
            quantiles = (units.duration(float(value)) for value in np.quantile(wall_s, _QUANTILES))
            rows.append((series.label, f"{wall_s.size:,}", *quantiles))
    names = (_NAMED.get(share, f"{100 * share:g} %") for share in _QUANTILES)
    return table(("process", *numeric("steps", *names)), rows) if rows else None


def _autocorrelation(wall_s: FloatArray) -> Table:
    values = autocorrelation(wall_s, min(_LAGS, wall_s.size // 4))
    band = 1.96 / np.sqrt(wall_s.size)
    rows = [(f"{lag}", f"{value:.3f}", "yes" if abs(value) > band else "no") for lag, value in enumerate(values)]
    return table(("lag, steps", *numeric("autocorrelation", "beyond white noise (95 %)")), rows)


def _periodogram(wall_s: FloatArray) -> Table:
    found = periodogram(wall_s)
    rows = []
    for at in np.argsort(-found.power)[:_PERIODS]:
        power, above = found.power[at], "yes" if found.power[at] > found.threshold[at] else "no"
        rows.append((units.number(float(1 / found.frequency[at])), f"{power:.2e}", f"{found.null[at]:.2e}", above))
    columns = numeric("power, s²", "expected of red noise", "above the 1 % line")
    return table(("period, steps", *columns), rows)


def _traces(runs: tuple[SideRun, ...]) -> Table:
    span_s = max(float(run.series.end_s[-1]) for run in runs)
    edges = np.linspace(0.0, span_s, _STRETCHES + 1)
    heads = [f"{run.arm.id}: {what}" for run in runs for what in ("mean step", "utilization")]
    columns = zip(*(_stretches(run, edges) for run in runs), strict=True)
    rows = [
        (f"{low:.1f} to {high:.1f} s", *chain.from_iterable(cells))
        for (low, high), cells in zip(pairwise(edges), columns, strict=True)
    ]
    return table(("since the first step", *numeric(*heads)), rows)


def _stretches(run: SideRun, edges: FloatArray) -> Iterator[tuple[str, str]]:
    end_s, wall_s = run.series.end_s, run.series.wall_s
    t_s, share = utilization(run, float(edges[1] - edges[0]))
    known = bool(run.arm.utilization_of)
    for low, high in pairwise(edges):
        steps = wall_s[(end_s > low) & (end_s <= high)]
        used = share[(t_s > low) & (t_s <= high)]
        mean = units.duration(float(steps.mean())) if steps.size else "no step ended"
        yield mean, units.percent(float(used.mean())) if known and used.size else NOT_MEASURED
