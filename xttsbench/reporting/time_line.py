"""Time line of a page: steps over time by what they went to, and the use of devices meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xttsbench.analysis.steps import FloatArray
from xttsbench.records.readings import GpuReadings
from xttsbench.records.trial import TrialRecord
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, Block, Table, numeric, table
from xttsbench.reporting.scene import Scene, StepSeries, extremes
from xttsbench.reporting.utilization import trace

MOST_STRETCHES: Final = 4_000
"""Twice as many steps are drawn at most: about the points of a wide screen."""
_ROWS: Final = 24
_WINDOWS: Final = 200
_STEPS_PER_WINDOW: Final = 4
_MOST_SAMPLES: Final = 2_000
PARTS: Final = {"input": "waiting for input", "compile": "tracing and compiling", "host": "work between steps"}
"""Part of a step's wall time to what it is; the rest of it is the step itself."""


@dataclass(frozen=True, slots=True)
class Use:
    """A share of time in use: its name, and points of time (seconds) with shares (0..1)."""

    name: str
    t_s: tuple[float, ...]
    share: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TimeLine(Block):
    """Data of the time line that a script draws, and the same in a table.

    Attributes:
        data: ``n`` (number of a step), ``t`` (its end, seconds from the first one's start), ``wall`` and the parts of
            it in seconds, ``waited`` (sum of the waits so far), ``compiled`` (numbers of the steps that traced or
            compiled), ``warm`` (end of the warm-up), ``use`` (shares of time in use) and ``use_of`` (of what).
    """

    caption: str
    parts: tuple[str, ...]
    data: Mapping[str, object]
    table: Table


def samples_of(gpu: GpuReadings, series: StepSeries) -> tuple[FloatArray, FloatArray]:
    """The driver's samples during the steps: seconds since the first step, and shares of the time in use (0..1)."""
    t_s = (np.array(gpu.utilization_t_ns, dtype=np.int64) - series.zero_ns) / 1e9
    during = (t_s >= 0) & (t_s <= series.end_s[-1])
    return t_s[during], np.array(gpu.utilization, dtype=np.float64)[during]


def time_line(scene: Scene | None) -> TimeLine | None:
    """The time line of the process with the most steady steps; ``None`` where there are no steps."""
    if scene is None or scene.main is None or scene.record is None:
        return None
    series = scene.main
    count, parts = series.wall_s.size, _parts(series)
    kept = extremes(series.wall_s, MOST_STRETCHES)
    compiled = np.flatnonzero(series.compiling) + 1
    use_of, uses = _uses(scene.record, series)
    data: dict[str, object] = {
        "n": (kept + 1).tolist(),
        "t": _rounded(series.end_s[kept]),
        "wall": _short(series.wall_s[kept]),
        **{name: _short(seconds[kept]) for name, seconds in parts.items()},
        "waited": _rounded(np.cumsum(parts["input"])[kept]),
        "compiled": compiled[:MOST_STRETCHES].tolist(),
        "warm": round(float(series.end_s[series.steady_from - 1]), 6) if 0 < series.steady_from < count else 0.0,
        "use_of": use_of,
        "use": [{"name": use.name, "t": _rounded(use.t_s), "share": _short(use.share)} for use in uses],
    }
    said = f"{count:,} steps of process {series.label}, one after the other"
    if kept.size < count:
        said += f"; drawn are the fastest and the slowest of every {-(-count // MOST_STRETCHES):,}"
    return TimeLine(f"{said}.", tuple(parts), data, _table(series, parts, compiled, uses))


def _parts(series: StepSeries) -> dict[str, FloatArray]:
    """Seconds of each part of the steps."""
    found: dict[str, FloatArray] = {"input": np.maximum(series.wait_s, 0.0)}
    if series.compiling.any():
        found["compile"] = series.compile_s
    return found | {"host": np.maximum(series.wall_s - series.pause_s - series.wait_s - series.step_s, 0.0)}


def _uses(record: TrialRecord, series: StepSeries) -> tuple[str, tuple[Use, ...]]:
    """Words for what is used while the steps go on, and its share over time."""
    window_s = max(float(series.end_s[-1]) / _WINDOWS, _STEPS_PER_WINDOW * float(series.wall_s.mean()))
    if window_s <= 0:
        return "", ()
    if series.emulated:
        return "EMULATED accelerator in use", (_use("emulated accelerator", series, series.emulated_s, window_s),)
    gpus = []
    for gpu in record.readings.gpus:
        t_s, share = (one[:: max(1, len(gpu.utilization) // _MOST_SAMPLES)] for one in samples_of(gpu, series))
        if t_s.size:
            gpus.append(Use(f"GPU {gpu.index} {gpu.name}", tuple(t_s), tuple(share)))
    if gpus:
        return "GPU in use, as the driver samples it", tuple(gpus)
    if record.devices is None:
        return "", ()
    of = f"{record.devices.cpus} processors" if record.devices.cpus != 1 else "the processor"
    return f"{of} in use by the process", (_use(of, series, series.cpu_s / record.devices.cpus, window_s),)


def _use(name: str, series: StepSeries, busy_s: FloatArray, window_s: float) -> Use:
    t_s, share = trace(series.end_s, busy_s, window_s=window_s)
    return Use(name, tuple(t_s), tuple(share))


def _table(
    series: StepSeries, parts: Mapping[str, FloatArray], compiled: NDArray[np.int64], uses: Sequence[Use]
) -> Table:
    count = series.wall_s.size
    edges = np.unique(np.linspace(0, count, min(_ROWS, count) + 1).astype(int))
    rows = []
    for low, high in pairwise(edges):
        wall = series.wall_s[low:high]
        begin, end = series.end_s[low] - series.wall_s[low], series.end_s[high - 1]
        shares = [units.percent(float(seconds[low:high].sum() / wall.sum())) for seconds in parts.values()]
        rows.append(
            (
                f"{low + 1:,} to {high:,}" if high - low > 1 else f"{high:,}",
                units.duration(float(begin)),
                units.duration(float(wall.mean())),
                units.duration(float(wall.max())),
                *shares,
                f"{int(((compiled > low) & (compiled <= high)).sum()):,}",
                *(_mean_use(use, float(begin), float(end)) for use in uses),
            )
        )
    heads = ("from", "mean step", "slowest", *(PARTS[name] for name in parts), "compilations")
    return table(("steps", *numeric(*heads, *(use.name for use in uses))), rows)


def _mean_use(use: Use, begin_s: float, end_s: float) -> str:
    inside = [share for t_s, share in zip(use.t_s, use.share, strict=True) if begin_s <= t_s <= end_s]
    return units.percent(float(np.mean(inside))) if inside else NOT_MEASURED


def _short(values: Sequence[float] | FloatArray) -> list[float]:
    """Four significant digits."""
    return [float(f"{value:.4g}") for value in values]


def _rounded(values: Sequence[float] | FloatArray) -> list[float]:
    """To the microsecond."""
    return [round(float(value), 6) for value in values]
