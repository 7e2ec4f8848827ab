"""Readings beside the steps, cut to the steps and summed up: pure."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import numpy.typing as npt

from xttsbench.records.readings import MACHINE_COLUMNS, GpuReadings, HostReadings, Readings


def summarise(readings: Readings, start_ns: int, end_ns: int, steps: int) -> dict[str, Any]:
    """Numbers of the samples between two times on the clock of the steps; what was not read is in ``unmeasured``.

    Args:
        readings: as taken beside a trial.
        start_ns: first moment of the steps, ``perf_counter_ns``.
        end_ns: their last moment.
        steps: how many steps ended in between.
    """
    summary: dict[str, Any] = {"unmeasured": dict(readings.unmeasured)}
    if readings.host is None:
        summary["unmeasured"]["host"] = readings.unmeasured.get("host", "not sampled")
    else:
        summary["host"] = _host(readings.host, start_ns, end_ns, steps)
        summary["unmeasured"] |= {f"host.{name}": why for name, why in readings.host.unmeasured.items()}
        if summary["host"]["samples"] < 2:
            summary["unmeasured"]["host"] = f"{summary['host']['samples']} sample(s) during the steps; rates take two"
    summary["gpus"] = [_gpu(gpu, start_ns, end_ns) for gpu in readings.gpus]
    return summary


def _host(host: HostReadings, start_ns: int, end_ns: int, steps: int) -> dict[str, Any]:
    t_ns = np.asarray(host.t_ns, dtype=np.int64)
    inside = np.flatnonzero((t_ns >= start_ns) & (t_ns <= end_ns))
    found: dict[str, Any] = {"samples": len(inside), "thread_group_cpu_s": host.thread_group_cpu_s}
    if len(inside) < 2:
        return found
    first, last = int(inside[0]), int(inside[-1])
    seconds = (host.t_ns[last] - host.t_ns[first]) / 1e9
    steps_inside = steps * seconds / max((end_ns - start_ns) / 1e9, 1e-9)
    if host.cpu_s:
        used = host.cpu_s[last] - host.cpu_s[first]
        found |= {"cpus_used": used / seconds, "cpu_s_per_step": used / steps_inside if steps_inside else None}
    if host.rss_bytes:
        found["rss_bytes_max"] = max(host.rss_bytes[first : last + 1])
    for name in ("major_faults", "read_bytes"):
        values = getattr(host, name)
        if values:
            found[f"{name}_per_step"] = (values[last] - values[first]) / steps_inside if steps_inside else None
    if host.machine_busy_s:
        times = [values[last] - values[first] for values in (getattr(host, name) for name in MACHINE_COLUMNS)]
        if sum(times) > 0:
            found |= {"machine_busy": times[0] / sum(times), "machine_steal": times[1] / sum(times)}
    return found


def gpu_busy(readings: Readings, start_ns: int, end_ns: int) -> npt.NDArray[np.float64]:
    """The driver's utilisation samples between two times, of all GPUs in turn, 0..1; empty where none was read."""
    samples = [
        busy
        for gpu in readings.gpus
        for t_ns, busy in zip(gpu.utilization_t_ns, gpu.utilization, strict=True)
        if start_ns <= t_ns <= end_ns
    ]
    return np.asarray(samples, dtype=np.float64)


def _gpu(gpu: GpuReadings, start_ns: int, end_ns: int) -> dict[str, Any]:
    t_ns = np.asarray(gpu.utilization_t_ns, dtype=np.int64)
    busy = np.asarray(gpu.utilization, dtype=np.float64)[(t_ns >= start_ns) & (t_ns <= end_ns)]
    inside = [index for index, t in enumerate(gpu.t_ns) if start_ns <= t <= end_ns]

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
