"""A run's samples as a time line in Chrome's trace format, which Perfetto opens.

The clock of steps and readings is one for all processes of a machine, so all trials of a run stand on one time line,
each as a process: its steps with what they wait for, what was traced and compiled, under which condition they ran, its
turns, the operations of a step and of the pipeline, the longest gaps of the GPUs in a profile, counters of host and
GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from xttsbench import __version__
from xttsbench.records.pipeline import every_op
from xttsbench.records.readings import SLOWED, GpuReadings, HostReadings, throttle_reason_names
from xttsbench.records.rows import COLUMNS, absent
from xttsbench.records.trial import Segment, TrialRecord
from xttsbench.reporting.words import plain

_STEPS, _COMPILATIONS, _STEP_OPS, _PIPELINE_OPS, _PROFILED, _GAPS = range(1, 7)
_THREADS: Final = {
    _STEPS: "steps",
    _COMPILATIONS: "tracing and compilation",
    _STEP_OPS: "operations of a step (means, not in their order)",
    _PIPELINE_OPS: "input pipeline (means for a batch, not in their order)",
    _PROFILED: "profiled steps",
}
_PARTS: Final = ("device_ns", "emulated_ns", "sync_ns", "gc_ns", "cpu_ns")
_COUNTS: Final = ("round", "epoch", "batch_size", "shape_id")
_RATES: Final = {
    "processors in use": ("cpu_s", 1.0),
    "processors in use, all processes": ("machine_busy_s", 1.0),
    "processors stolen": ("machine_steal_s", 1.0),
    "storage reads, MB/s": ("read_bytes", 1e-6),
    "page faults from storage, 1/s": ("major_faults", 1.0),
    "stopped by the quota, s/s": ("throttled_s", 1.0),
}
"""Counter of the trace -> cumulative column of the host's readings, whose growth a second it shows, and its scale."""
_LEVELS: Final = {
    "memory used, GB": ("memory_used_bytes", 1e-9),
    "SM clock, MHz": ("sm_clock_mhz", 1.0),
    "power, W": ("power_w", 1.0),
    "PCIe to the GPU, MB/s": ("pcie_rx_bytes_per_s", 1e-6),
    "PCIe from the GPU, MB/s": ("pcie_tx_bytes_per_s", 1e-6),
}
"""The same of a GPU's readings, whose values are shown as they are."""

Event = dict[str, Any]


def perfetto(trials: Sequence[TrialRecord]) -> str:
    """Every step of every trial as JSON in Chrome's trace format; times in microseconds from the first of all.

    A step is its wait and its work, and what the loop did since the step before. At the end of its work stand the wait
    for the device and that of an emulated accelerator. Of tracing and compilation only the duration is known, and the
    step that they fell into: they begin with it here. Of operations the mean is known: they stand one after the other,
    the longest first, from the first step on that was measured.
    """
    events = list(_events(trials))
    first = min((event["ts"] for event in events if "ts" in event), default=0)
    for event in events:
        if "ts" in event:
            event["ts"] = (event["ts"] - first) / 1e3
        if "dur" in event:
            event["dur"] /= 1e3
    about = {"xttsbench": __version__, "clock": "CLOCK_MONOTONIC from the first event on", "first_ns": first}
    trace = {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}
    return json.dumps(trace, ensure_ascii=False, allow_nan=False) + "\n"


def _events(trials: Iterable[TrialRecord]) -> Iterator[Event]:
    readers = (_steps, _step_ops, _pipeline_ops, _profiled, _readings)
    for process, trial in enumerate(trials, start=1):
        if made := [event for read in readers for event in read(trial)]:
            for event in (*_names(trial, process, {event["tid"] for event in made}), *made):
                event["pid"] = process
                yield event


def _names(trial: TrialRecord, process: int, threads: set[int]) -> Iterator[Event]:
    spec = trial.spec
    yield _about("process_name", 0, name=plain(f"{spec.trial_id} ({spec.kind})"))
    yield _about("process_sort_index", 0, sort_index=process)
    if configuration := spec.arm or spec.fix:
        yield _about("process_labels", 0, labels=plain(configuration))
    for thread in sorted(threads & _THREADS.keys()):
        yield _about("thread_name", thread, name=_THREADS[thread])
        yield _about("thread_sort_index", thread, sort_index=thread)


def _steps(trial: TrialRecord) -> Iterator[Event]:
    for segment in trial.segments:
        for step, row in enumerate(_rows(segment)):
            start, wait, work = row["start_ns"], row["wait_ns"], row["step_ns"]
            begun = start + wait + work - row["wall_ns"] + row["pause_ns"]
            about = {"segment": plain(segment.name), "step": step, "warm_up": step < segment.warmup_steps}
            if step and begun < start:
                yield _slice("between steps", _STEPS, begun, start - begun, about)
            if wait:
                yield _slice("wait for input", _STEPS, start, wait, about)
            if work:
                numbers = {name: row[name] for name in (*_PARTS, *_COUNTS) if row[name]}
                yield _slice("step", _STEPS, start + wait, work, about | numbers)
                yield from _waits_of_the_step(row)
            at = start + wait
            for name, part, count in (("trace", "trace_ns", "traces"), ("XLA compile", "xla_ns", "xla_compiles")):
                if row[part]:
                    # Threads that compile side by side add up to more than the step, which is all that can be drawn.
                    took = min(row[part], start + wait + work - at)
                    numbers = {count: row[count], part: row[part]}
                    yield _slice(name, _COMPILATIONS, at, took, about | numbers)
                    at += took


def _waits_of_the_step(row: dict[str, int]) -> Iterator[Event]:
    """After the step had returned: the wait for the device, then that of an emulated accelerator."""
    end = row["start_ns"] + row["wait_ns"] + row["step_ns"]
    emulated, device = row["emulated_ns"], row["device_ns"]
    if device + emulated > row["step_ns"]:
        return  # of another part of the loop
    if device:
        yield _slice("wait for the device", _STEPS, end - emulated - device, device, {})
    if emulated:
        yield _slice("emulated accelerator", _STEPS, end - emulated, emulated, {})


def _step_ops(trial: TrialRecord) -> Iterator[Event]:
    ops, at = trial.step_ops, _first_measured_ns(trial)
    if ops is None or ops.op_time_s is None or at is None:
        return
    for phase, share in sorted(ops.phases.items(), key=lambda one: -one[1]):
        took = _ns(ops.op_time_s * share)
        yield _slice(phase, _STEP_OPS, at, took, {"share": share})
        inner, end = at, at + took
        lines = [line for line in ops.lines if line.phase == phase and line.share]
        for line in sorted(lines, key=lambda one: -(one.share or 0.0)):
            part = min(_ns(ops.op_time_s * (line.share or 0.0)), end - inner)
            about = {"function": plain(line.function), "ops": line.ops, "share": line.share, "device": line.device}
            yield _slice(plain(f"{line.file}:{line.line}"), _STEP_OPS, inner, part, about)
            inner += part
        at = end


def _pipeline_ops(trial: TrialRecord) -> Iterator[Event]:
    at = _first_measured_ns(trial)
    if trial.pipeline is None or at is None:
        return
    costs = [(op, op.cost_s) for op in every_op(trial.pipeline.ops) if op.cost_s]
    for op, cost_s in sorted(costs, key=lambda one: -one[1]):
        place = op.location
        about = {"op": op.op, "elements_per_batch": op.elements_per_batch, "cost_from": op.cost_from}
        if place.file:
            about["line"] = plain(f"{place.file}:{place.line}")
        yield _slice(plain(op.name), _PIPELINE_OPS, at, _ns(cost_s), about)
        at += _ns(cost_s)


def _profiled(trial: TrialRecord) -> Iterator[Event]:
    """The steps of a profile, and the longest gaps of each GPU with what the host did."""
    gpu = trial.profile.gpu if trial.profile is not None else None
    if gpu is None:
        return
    for step, (start, end) in enumerate(zip(gpu.step_starts_ns, gpu.step_ends_ns, strict=True)):
        yield _slice("profiled step", _PROFILED, start, end - start, {"step": step})
    for thread, device in enumerate(gpu.devices, start=_GAPS):
        for gap in device.longest_gaps:
            about = {"step": gap.step, "host": gap.cause}
            yield _slice("idle", thread, gap.start_ns, _ns(gap.duration_s), about)
        yield _about("thread_name", thread, name=f"GPU {device.index}, longest gaps")
        yield _about("thread_sort_index", thread, sort_index=thread)


def _first_measured_ns(trial: TrialRecord) -> int | None:
    """When the first step began that counts; without any, when the readings beside the trial begin."""
    for segment in trial.segments:
        if segment.steps > segment.warmup_steps and "start_ns" in segment.columns:
            return segment.columns["start_ns"][segment.warmup_steps]
    host = trial.readings.host
    return host.t_ns[0] if host is not None and host.t_ns else None


def _readings(trial: TrialRecord) -> Iterator[Event]:
    if trial.readings.host is not None:
        yield from _of_host(trial.readings.host)
    for gpu in trial.readings.gpus:
        yield from _of_gpu(gpu)


def _of_host(host: HostReadings) -> Iterator[Event]:
    for name, (column, scale) in _RATES.items():
        values = getattr(host, column)
        if len(values) != len(host.t_ns) or (column not in ("cpu_s", "machine_busy_s") and values[-1:] == values[:1]):
            continue  # not read, or never anything
        for (before, used), (after, now) in pairwise(zip(host.t_ns, values, strict=True)):
            if after > before:
                yield _counter(name, before, (now - used) / (after - before) * 1e9 * scale)
    for when, size in zip(host.t_ns, host.rss_bytes, strict=False):
        yield _counter("memory, GB", when, size / 1e9)


def _of_gpu(gpu: GpuReadings) -> Iterator[Event]:
    for when, share in zip(gpu.utilization_t_ns, gpu.utilization, strict=False):
        yield _counter(f"GPU {gpu.index} utilization", when, share)
    for name, (column, scale) in _LEVELS.items():
        for when, value in zip(gpu.t_ns, getattr(gpu, column), strict=False):
            if value is not None:
                yield _counter(f"GPU {gpu.index} {name}", when, value * scale)
    for when, mask in zip(gpu.t_ns, gpu.throttle_reasons, strict=False):
        if mask is not None:
            held = len(SLOWED & {*throttle_reason_names(mask)})
            yield _counter(f"GPU {gpu.index} reasons that hold the clocks back", when, held)


def _rows(segment: Segment) -> Iterator[dict[str, int]]:
    """The rows of a segment; a column that its journal does not have holds what says that nothing is known."""
    columns = {name: segment.columns.get(name) or (absent(name),) * segment.steps for name in COLUMNS}
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _slice(name: str, thread: int, start_ns: int, duration_ns: int, about: dict[str, Any]) -> Event:
    return {"name": name, "ph": "X", "pid": 0, "tid": thread, "ts": start_ns, "dur": duration_ns, "args": about}


def _counter(name: str, at_ns: int, value: float) -> Event:
    return {"name": name, "ph": "C", "pid": 0, "tid": 0, "ts": at_ns, "args": {"value": round(value, 4)}}


def _about(kind: str, thread: int, **known: str | int) -> Event:
    return {"name": kind, "ph": "M", "pid": 0, "tid": thread, "args": known}
