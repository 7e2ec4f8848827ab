"""Readings beside the steps, cut to the steps and summed up: pure."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.spans import Span, measured_span
from xttsbench.records.readings import MACHINE_COLUMNS, GpuReadings, HostReadings, Readings
from xttsbench.records.trial import TrialRecord


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
    summary["gpus"] = [_gpu(gpu, span) for gpu in readings.gpus]
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


def gpu_samples(trial: TrialRecord) -> npt.NDArray[np.float64]:
    """The driver's utilisation samples during the measured steps of ``as_is``, of all GPUs in turn, 0..1."""
    span = measured_span(trial)
    if span is None:
        return np.zeros(0)
    samples = [
        busy
        for gpu in trial.readings.gpus
        for t_ns, busy in zip(gpu.utilization_t_ns, gpu.utilization, strict=True)
        if span.start_ns <= t_ns <= span.end_ns
    ]
    return np.asarray(samples, dtype=np.float64)


def _gpu(gpu: GpuReadings, span: Span) -> dict[str, Any]:
    busy = np.asarray(gpu.utilization, dtype=np.float64)[span.inside(gpu.utilization_t_ns)]
    inside = span.inside(gpu.t_ns)

    def of(values: tuple[int | None, ...] | tuple[float | None, ...]) -> list[float]:
        return [float(value) for index in inside if index < len(values) and (value := values[index]) is not None]

    reasons = [int(reason) for reason in of(gpu.throttle_reasons)]
    return {
        "index": gpu.index,
        "name": gpu.name,
        "utilization": float(busy.mean()) if len(busy) else None,
        "utilization_p5": float(np.quantile(busy, 0.05)) if len(busy) else None,
        "utilization_p95": float(np.quantile(busy, 0.95)) if len(busy) else None,
        "memory_used_bytes_max": max(of(gpu.memory_used_bytes), default=None),
        "memory_total_bytes": gpu.memory_total_bytes,
        "sm_clock_mhz": _mean(of(gpu.sm_clock_mhz)),
        "throttle_reasons": reduce(or_, reasons) if reasons else None,
        "pcie_rx_bytes_per_s": _mean(of(gpu.pcie_rx_bytes_per_s)),
        "pcie_tx_bytes_per_s": _mean(of(gpu.pcie_tx_bytes_per_s)),
        "power_w": _mean(of(gpu.power_w)),
        "unmeasured": gpu.unmeasured,
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
