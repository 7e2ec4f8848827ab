"""What is drawn of a monitor's log: which columns stand in which figure, and a long column as so many stretches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, Column, Table, table
from xttsbench.reporting.monitoring.screen import numbered

FloatArray = npt.NDArray[np.float64]

_GIB, _MIB = 1 / 2**30, 1 / 2**20
_ROWS: Final = 12


@dataclass(frozen=True)
class Panel:
    """Columns of one unit: their names and what they are called; ``top`` is where the axis ends."""

    title: str
    unit: str
    scale: float
    series: tuple[tuple[str, str], ...]
    top: float | None = None


def figures(columns: Collection[str]) -> dict[str, tuple[str, list[Panel]]]:
    """Name of each figure to its title and its panels, of the columns that hold something."""
    made = {
        name: (title, [cut for one in panels if (cut := _cut(one, columns)).series])
        for name, title, panels in _all(columns)
    }
    return {name: found for name, found in made.items() if found[1]}


def _cut(panel: Panel, columns: Collection[str]) -> Panel:
    series = tuple((name, text) for name, text in panel.series if name in columns)
    return Panel(panel.title, panel.unit, panel.scale, series, panel.top)


def _all(columns: Collection[str]) -> Iterator[tuple[str, str, list[Panel]]]:
    for n in numbered(columns, "gpu"):
        pcie = tuple((f"gpu{n}_pcie_{way}_bytes_per_s", said) for way, said in (("rx", "to it"), ("tx", "from it")))
        yield (
            f"gpu-{n}",
            f"GPU {n}",
            [
                Panel("utilization", "%", 100, ((f"gpu{n}_utilization", ""),), 105),
                Panel("memory", "GiB", _GIB, ((f"gpu{n}_memory_used_bytes", ""),)),
                Panel("power", "W", 1, ((f"gpu{n}_power_w", ""),)),
                Panel("clock of the multiprocessors", "MHz", 1, ((f"gpu{n}_sm_clock_mhz", ""),)),
                Panel("PCIe", "MiB/s", _MIB, pcie),
            ],
        )
    steps = [
        Panel("processors that it uses", "processors", 1, (("process_cpus", ""),)),
        Panel("memory", "GiB", _GIB, (("process_memory_bytes", "resident"), ("process_gpu_memory_bytes", "on GPUs"))),
        Panel("time of a step", "ms", 1e3, (("process_step_time_s", ""),)),
        Panel("waiting for input", "% of a step", 100, (("process_input_wait_share", ""),), 105),
    ]
    yield "process", "The process", steps
    cores = tuple((f"cpu{n}_share", f"processor {n}") for n in numbered(columns, "cpu"))
    yield (
        "processors",
        "Processors",
        [
            Panel("use", "%", 100, (("cpu_share", "all"), *cores), 105),
            Panel(
                "time taken from them",
                "%",
                100,
                (("cpu_steal_share", "stolen"), ("cpu_iowait_share", "waiting for storage")),
            ),
            Panel("stopped by the quota", "processors", 1, (("quota_throttled_cpus", ""),)),
        ],
    )
    moved = (("storage_read_bytes_per_s", "read"), ("storage_write_bytes_per_s", "written"))
    yield (
        "storage",
        "Memory and storage",
        [
            Panel("memory in use", "GiB", _GIB, (("memory_used_bytes", ""),)),
            Panel("storage", "MiB/s", _MIB, moved),
            Panel("busiest device at work", "% of the time", 100, (("storage_busy_share", ""),), 105),
        ],
    )


def stretches(t_s: FloatArray, values: FloatArray, most: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Middle, mean, least and largest value of so many stretches of equal time, those without a value left out."""
    read = ~np.isnan(values)
    t_s, values = t_s[read], values[read]
    if values.size <= most:
        return t_s, values, values, values
    place = np.minimum((t_s - t_s[0]) / (t_s[-1] - t_s[0]) * most, most - 1).astype(np.int64)
    starts = np.flatnonzero(np.r_[True, place[1:] != place[:-1]])
    count = np.diff(np.r_[starts, values.size])
    mean, middle = np.add.reduceat(values, starts) / count, np.add.reduceat(t_s, starts) / count
    return middle, mean, np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)


def table_of(panels: list[Panel], columns: Mapping[str, FloatArray]) -> Table:
    """What a figure draws, as means over stretches of time: for who cannot see it, or wants the numbers."""
    names = [name for panel in panels for name, _ in panel.series]
    t_s = columns["t_s"]
    edges = np.linspace(0.0, max(float(t_s[-1]), 1e-3), _ROWS + 1)
    rows = []
    for low, high in pairwise(edges):
        inside = (t_s >= low) & (t_s <= high)
        found = (columns[name][inside] for name in names)
        means = [float(one[~np.isnan(one)].mean()) if (~np.isnan(one)).any() else None for one in found]
        cells = (
            NOT_MEASURED if mean is None else units.named(name, mean)[1]
            for name, mean in zip(names, means, strict=True)
        )
        rows.append((f"{low:.1f} to {high:.1f} s", *cells))
    return table((Column("since the first reading"), *(Column(name, numeric=True) for name in names)), rows)
