"""The stretches of time in which a trial measured, and what readings beside the steps say of them.

Sets of moments are arrays of half-open intervals ``[start, end)``, rows of an integer array of shape ``(n, 2)``. A
*set* is what :func:`union` returns: sorted, disjoint, not adjacent, none empty. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xttsbench.records.readings import MACHINE_COLUMNS, GpuActivity, GpuReadings, HostReadings, Readings
from xttsbench.records.trial import Segment, TrialRecord

Intervals = npt.NDArray[np.int64]


def intervals(starts: Any, ends: Any) -> Intervals:
    """Rows from two sequences of equal length."""
    return np.column_stack([np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)])


def nothing() -> Intervals:
    """The empty set."""
    return np.empty((0, 2), dtype=np.int64)


def union(*parts: Intervals) -> Intervals:
    """The set of all moments that at least one interval covers, whatever the order and the overlap of the rows."""
    rows = np.concatenate([nothing(), *parts])
    rows = rows[rows[:, 1] > rows[:, 0]]
    if not len(rows):
        return nothing()
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    reached = np.maximum.accumulate(rows[:, 1])
    begins = np.concatenate([[True], rows[1:, 0] > reached[:-1]])
    ends = np.concatenate([begins[1:], [True]])
    return np.column_stack([rows[begins, 0], reached[ends]])


def total(found: Intervals) -> int:
    """Length of a set."""
    return int((found[:, 1] - found[:, 0]).sum())


def complement(found: Intervals, start: int, end: int) -> Intervals:
    """The moments of ``[start, end)`` that a set does not cover."""
    inner = clip(found, start, end)
    edges = np.concatenate([[start], inner.ravel(), [end]]).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def clip(found: Intervals, start: int, end: int) -> Intervals:
    """The part of a set that is in ``[start, end)``."""
    inner = np.clip(found, start, end)
    return inner[inner[:, 1] > inner[:, 0]]


def both(one: Intervals, other: Intervals) -> Intervals:
    """The moments that are in both sets."""
    if not len(one) or not len(other):
        return nothing()
    start, end = int(min(one[0, 0], other[0, 0])), int(max(one[-1, 1], other[-1, 1]))
    return complement(union(complement(one, start, end), complement(other, start, end)), start, end)


def without(one: Intervals, other: Intervals) -> Intervals:
    """The moments of the first set that are not in the second."""
    if not len(one):
        return one
    return both(one, complement(other, int(one[0, 0]), int(one[-1, 1])))


def covered(found: Intervals, windows: Intervals) -> npt.NDArray[np.int64]:
    """Length of a set within each window, shape ``(len(windows),)``; windows may overlap."""
    if not len(found):
        return np.zeros(len(windows), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(found[:, 1] - found[:, 0])])

    def up_to(moments: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        at = np.searchsorted(found[:, 0], moments, side="right")
        inside = np.where(at > 0, np.minimum(moments, found[at - 1, 1]) - found[at - 1, 0], 0)
        done: npt.NDArray[np.int64] = before[np.maximum(at - 1, 0)] + np.maximum(inside, 0)
        return done

    return up_to(windows[:, 1]) - up_to(windows[:, 0])


_SEEN_SHARE: Final = 0.5  # Of a stretch that samples must cover before its counters are said to have been read


@dataclass(frozen=True)
class Span:
    """Measured steps, on the clock of the readings.

    Attributes:
        start_ns, end_ns: from the first measured step's start to the last one's end.
        steps: how many there are.
        epochs: passes over the data set that were begun in it, the one under way at its start included.
    """

    start_ns: int
    end_ns: int
    steps: int = 0
    epochs: int = 1

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9

    def inside(self, t_ns: Sequence[int]) -> npt.NDArray[np.intp]:
        """Positions of the samples that were taken in it."""
        times = np.asarray(t_ns, dtype=np.int64)
        return np.flatnonzero((times >= self.start_ns) & (times <= self.end_ns))

    def growth(self, host: HostReadings, name: str) -> float | None:
        """Increase of a cumulative column in the span, linear between samples and beyond the outer ones.

        ``None`` where the column was not read, or its samples cover less than half of the span.
        """
        values = getattr(host, name)
        if len(values) != len(host.t_ns) or len(values) < 2 or self.end_ns <= self.start_ns:
            return None
        start_ns, end_ns = max(self.start_ns, host.t_ns[0]), min(self.end_ns, host.t_ns[-1])
        seen = (end_ns - start_ns) / (self.end_ns - self.start_ns)
        if seen < _SEEN_SHARE:
            return None
        # Counters since the machine's start are large: differences first, or they drown in rounding.
        times = np.asarray(host.t_ns, dtype=np.int64) - start_ns
        risen = np.asarray(values, dtype=np.float64) - values[0]
        low, high = np.interp([0, end_ns - start_ns], times, risen)
        return float(high - low) / seen


def spans_of(segment: Segment) -> tuple[Span, ...]:
    """The measured rows of a segment, its own warm-up left out: a span for each round, since others ran in between."""
    rounds = np.asarray(segment.columns.get("round", (0,) * segment.steps))[segment.warmup_steps :]
    edges = [0, *(np.flatnonzero(np.diff(rounds)) + 1), len(rounds)] if len(rounds) else []
    return tuple(
        _rows(segment, segment.warmup_steps + int(begin), segment.warmup_steps + int(end))
        for begin, end in pairwise(edges)
    )


def measured_span(trial: TrialRecord) -> Span | None:
    """From the first measured step as it is to the last, whatever ran in between; ``None`` where there is none."""
    segment = trial.segment("as_is")
    if segment is None or segment.steps <= segment.warmup_steps:
        return None
    return _rows(segment, segment.warmup_steps, segment.steps)


def _rows(segment: Segment, begin: int, end: int) -> Span:
    columns = segment.columns
    end_ns = columns["start_ns"][end - 1] + columns["wait_ns"][end - 1] + columns["step_ns"][end - 1]
    epochs = columns.get("epoch", (0,) * end)[begin:end]
    return Span(columns["start_ns"][begin], end_ns, end - begin, max(epochs) - min(epochs) + 1)


def turns_of(trial: TrialRecord) -> tuple[Span, ...]:
    """When the trial measured: its turns where it took some, else the rows of the target as it is, else all rows."""
    if trial.rounds:
        return tuple(Span(mark.start_ns, mark.end_ns) for mark in trial.rounds)
    segment = trial.segment("as_is")
    segments = trial.segments if segment is None or not spans_of(segment) else (segment,)
    return tuple(span for segment in segments for span in spans_of(segment))


def summarise(readings: Readings, span: Span) -> dict[str, Any]:
    """Numbers of a stretch of measured steps; what was not read is in ``unmeasured``."""
    summary: dict[str, Any] = {"unmeasured": dict(readings.unmeasured)}
    if readings.host is None:
        summary["unmeasured"]["host"] = readings.unmeasured.get("host", "not sampled")
    else:
        summary["host"] = _host(readings.host, span)
        summary["unmeasured"] |= {f"host.{name}": why for name, why in readings.host.unmeasured.items()}
        if not summary["host"].keys() - {"samples", "thread_group_cpu_s"}:
            summary["unmeasured"]["host"] = f"{summary['host']['samples']} sample(s) during the steps are too few"
    summary["gpus"] = [gpu_in(gpu, span) for gpu in readings.gpus]
    return summary


def _host(host: HostReadings, span: Span) -> dict[str, Any]:
    inside = span.inside(host.t_ns)
    found: dict[str, Any] = {"samples": len(inside), "thread_group_cpu_s": host.thread_group_cpu_s}
    if (used_s := span.growth(host, "cpu_s")) is not None:
        found |= {"cpus_used": used_s / span.seconds, "cpu_s_per_step": used_s / span.steps if span.steps else None}
    if host.rss_bytes and len(inside):
        found["rss_bytes_max"] = max(host.rss_bytes[index] for index in inside)
    for name in ("major_faults", "read_bytes"):
        if (grown := span.growth(host, name)) is not None:
            found[f"{name}_per_step"] = grown / span.steps if span.steps else None
    times = [grown for name in MACHINE_COLUMNS if (grown := span.growth(host, name)) is not None]
    if sum(times) > 0:
        found |= {"machine_busy": times[0] / sum(times), "machine_steal": times[1] / sum(times)}
    return found


def beside_profile(gpu: GpuActivity, readings: Readings, mask: object = None) -> list[dict[str, Any]]:
    """NVML's readings of each profiled GPU in the window, on the same clock; ``unmeasured`` names the missing ones.

    The mask is ``CUDA_VISIBLE_DEVICES``, if that is set.
    """
    own = own_gpus(readings, mask)
    if not own:
        why = readings.unmeasured.get("gpus", "NVML names no GPU of this process")
    elif len(own) != len(gpu.devices):
        why = f"NVML names {len(own)} GPUs of this process, and TensorFlow {len(gpu.devices)}"
    else:
        span = Span(gpu.start_ns, max(gpu.step_ends_ns), gpu.steps)
        pairs = zip(gpu.devices, own, strict=True)
        return [
            {"gpu": device.index, "samples": len(span.inside(one.utilization_t_ns))} | gpu_in(one, span)
            for device, one in pairs
        ]
    return [{"gpu": device.index, "unmeasured": {"utilization": why}} for device in gpu.devices]


def gpu_samples(trial: TrialRecord) -> npt.NDArray[np.float64]:
    """The driver's utilisation samples during the measured steps of ``as_is``, of all GPUs in turn, 0..1."""
    span = measured_span(trial)
    gpus = trial.readings.gpus if span is not None else ()
    samples = [np.asarray(gpu.utilization, dtype=np.float64)[span.inside(gpu.utilization_t_ns)] for gpu in gpus if span]
    return np.concatenate([np.zeros(0), *samples])


def own_gpus(readings: Readings, mask: object = None) -> tuple[GpuReadings, ...]:
    """GPUs that the process computes on, in the order in which it counts them.

    The mask is ``CUDA_VISIBLE_DEVICES``, if that is set; a driver in a container may not tell which processes hold a
    GPU.
    """
    own = set(readings.host.pids) if readings.host else set()
    wanted = [one.strip() for one in mask.split(",")] if isinstance(mask, str) else None
    holding = tuple(gpu for gpu in readings.gpus if own & set(gpu.processes))
    if wanted is None:
        return holding or readings.gpus
    named = [
        next((gpu for gpu in readings.gpus if one and (str(gpu.index) == one or gpu.uuid.startswith(one))), None)
        for one in wanted
    ]
    seen = tuple(gpu for gpu in named if gpu is not None and (not holding or gpu in holding))
    return seen or holding


def gpu_in(gpu: GpuReadings, span: Span) -> dict[str, Any]:
    """Means and extremes of a GPU's samples in a stretch of time; ``None`` where there is none."""
    busy = np.asarray(gpu.utilization, dtype=np.float64)[span.inside(gpu.utilization_t_ns)]
    inside = span.inside(gpu.t_ns)

    def of(name: str) -> list[float]:
        values = getattr(gpu, name)
        return [value for index in inside if index < len(values) and (value := values[index]) is not None]

    reasons = [int(reason) for reason in of("throttle_reasons")]
    means = ("sm_clock_mhz", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "power_w")
    return {
        "index": gpu.index,
        "name": gpu.name,
        "utilization": float(busy.mean()) if len(busy) else None,
        "utilization_p5": float(np.quantile(busy, 0.05)) if len(busy) else None,
        "utilization_p95": float(np.quantile(busy, 0.95)) if len(busy) else None,
        "memory_used_bytes_max": max(of("memory_used_bytes"), default=None),
        "memory_total_bytes": gpu.memory_total_bytes,
        "throttle_reasons": reduce(or_, reasons) if reasons else None,
        **{name: float(np.mean(values)) if (values := of(name)) else None for name in means},
        "unmeasured": gpu.unmeasured,
    }
