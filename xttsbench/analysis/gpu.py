"""Time of the GPUs in a window of steps: busy, idle, and the host's activity while they were idle.

Pure.

Each moment of the window counts once for a GPU: a kernel computes, else a collective runs, else a copy, else it is
idle; and each idle moment goes to what the host did then (:data:`~xttsbench.records.readings.CAUSES`, in order).

Beside it stands what XProf's tables say of the profile (:func:`read`). XProf calls a step input-bound from 5 % of
waiting on (``op_stats_to_input_pipeline_analysis.cc``), and counts a moment once, by the event that ranks highest.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.readings import Intervals, both, clip, complement, covered, nothing, total, union, without
from xttsbench.records.readings import (
    CAUSES,
    COPIES,
    WORK,
    Cause,
    Gap,
    GpuActivity,
    GpuDevice,
    GpuSlices,
    Kernel,
    Work,
    XProfVerdict,
)

_LONGEST: Final = 10
_KERNELS: Final = 15
_SLICES: Final = 8000  # Slices that are kept of all GPUs together


@dataclass(frozen=True)
class DeviceTrace:
    """Events of the streams of one GPU, arrays of one length in any order; times in nanoseconds of the profile.

    Attributes:
        index: of the GPU in TensorFlow.
        lanes: names of its streams.
        rows: start and end of each event, shape ``(n, 2)``.
        lane: position of its stream in ``lanes``.
        work: position of its kind in :data:`~xttsbench.records.readings.WORK`.
        names: of kernels and copies.
        name: position in ``names``.
        bytes: that a copy moved; 0 where it is none or the profile does not say.
    """

    index: int
    lanes: tuple[str, ...]
    rows: Intervals
    lane: npt.NDArray[np.int64]
    work: npt.NDArray[np.int64]
    names: tuple[str, ...]
    name: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowTrace:
    """A profiled window of steps.

    Attributes:
        steps: start and end of each step on the host, in nanoseconds of the profile, shape ``(k, 2)``, k at least 1.
        devices: GPUs that the profile has a plane of.
        host: cause -> when the host did that (any intervals; ``host`` itself is what is left); ``None`` where the
            profile has nothing of the host.
        offset_ns: what to add for the clock of the steps; ``None`` where it is not known.
        unmeasured: reasons of the reader.
    """

    steps: Intervals
    devices: Sequence[DeviceTrace] = ()
    host: Mapping[Cause, Intervals] | None = None
    offset_ns: int | None = None
    unmeasured: Mapping[str, str] = field(default_factory=dict)


def activity_of(trace: WindowTrace) -> GpuActivity:
    """The record of a profiled window, all times per step.

    Raises:
        ValueError: there is no step.
    """
    count = len(trace.steps)
    if not count:
        raise ValueError("a profiled window without a step has no times per step")
    start, end = int(trace.steps[0, 0]), int(trace.steps[:, 1].max())
    did = None if trace.host is None else partition(trace.host, start, end)
    ran = any(len(device.rows) for device in trace.devices)
    devices = trace.devices if ran else ()
    kept = _SLICES // max(sum(len(device.rows) > 0 for device in devices), 1)
    made = tuple(_device(device, trace, did, start, end, kept) for device in devices)
    unmeasured = dict(trace.unmeasured)
    if trace.host is None:
        unmeasured.setdefault("host_s", "the profile has nothing of the thread that takes the steps")
    offset, on_clock = trace.offset_ns, nothing()
    if offset is None:
        unmeasured.setdefault("start_ns", "the profile could not be put on the clock of the steps")
    else:
        on_clock = trace.steps + offset
    imbalance, slowest, slowest_share = _imbalance(devices, trace.steps)
    if imbalance is None:
        why = "one GPU worked" if ran else unmeasured.get("devices", "no GPU worked")
        unmeasured |= dict.fromkeys(("imbalance", "slowest", "slowest_share"), why)
    return GpuActivity(
        steps=count,
        start_ns=None if offset is None else start + offset,
        step_s=(end - start) / count / 1e9,
        step_starts_ns=tuple(map(int, on_clock[:, 0])),
        step_ends_ns=tuple(map(int, on_clock[:, 1])),
        host_s={} if did is None else {cause: total(spans) / count / 1e9 for cause, spans in did.items()},
        devices=made,
        kernels=_costliest(devices, start, end, count),
        imbalance=imbalance,
        slowest=slowest,
        slowest_share=slowest_share,
        unmeasured=unmeasured,
    )


def partition(host: Mapping[Cause, Intervals], start: int, end: int) -> dict[Cause, Intervals]:
    """Splits ``[start, end)`` by the host's activity, one cause a moment; the rest is ``host``."""
    left = complement(nothing(), start, end)
    did: dict[Cause, Intervals] = {}
    for cause in CAUSES:
        found = left if cause == "host" else both(left, union(host.get(cause, nothing())))
        did[cause] = found
        left = without(left, found)
    return did


def _device(
    device: DeviceTrace, trace: WindowTrace, did: Mapping[Cause, Intervals] | None, start: int, end: int, kept: int
) -> GpuDevice:
    per_step = len(trace.steps) * 1e9
    work = {kind: clip(union(device.rows[device.work == n]), start, end) for n, kind in enumerate(WORK)}
    copies = union(*(work[kind] for kind in COPIES))
    kernels, collectives = work["kernel"], work["collective"]
    busy = union(kernels, collectives, copies)
    idle = complement(busy, start, end)
    inside = (device.rows[:, 1] > start) & (device.rows[:, 0] < end)
    moved = {
        kind: int(device.bytes[inside & (device.work == WORK.index(kind))].sum()) // len(trace.steps) for kind in COPIES
    }
    unmeasured = {}
    if total(copies) and not any(moved.values()):
        unmeasured["bytes"] = "the profile does not say how much its copies moved"
    if did is None:
        unmeasured["idle_by_cause_s"] = "the profile has nothing of the thread that takes the steps"
    shift = trace.offset_ns or 0
    slices = _slices(device, shift, kept) if trace.offset_ns is not None and len(device.rows) else None
    if slices is not None and sum(slices.events) < len(device.rows):
        unmeasured["slices"] = f"the first {sum(slices.events):,} of {len(device.rows):,} events"
    return GpuDevice(
        index=device.index,
        kernel_s=total(kernels) / per_step,
        collective_s=total(collectives) / per_step,
        copy_s=total(copies) / per_step,
        collective_alone_s=total(without(collectives, kernels)) / per_step,
        copy_alone_s=total(without(copies, union(kernels, collectives))) / per_step,
        idle_s=total(idle) / per_step,
        work_s={kind: total(spans) / per_step for kind, spans in work.items() if len(spans)},
        bytes={kind: size for kind, size in moved.items() if size},
        kernels=int((inside & (device.work == 0)).sum()) / len(trace.steps),
        idle_by_cause_s={} if did is None else {why: total(both(idle, spans)) / per_step for why, spans in did.items()},
        gaps=len(idle) / len(trace.steps),
        longest_gaps=_longest(idle, did, trace.steps, shift),
        slices=slices,
        unmeasured=unmeasured,
    )


def _longest(idle: Intervals, did: Mapping[Cause, Intervals] | None, steps: Intervals, shift: int) -> tuple[Gap, ...]:
    lengths = idle[:, 1] - idle[:, 0]
    chosen = idle[np.argsort(-lengths, kind="stable")[:_LONGEST]]
    causes = list(did or ())
    shares = np.array([covered(did[cause], chosen) for cause in causes]) if did else None
    numbers = np.searchsorted(steps[:, 0], chosen[:, 0], side="right") - 1
    return tuple(
        Gap(
            start_ns=int(begin) + shift,
            duration_s=int(stop - begin) / 1e9,
            step=max(int(numbers[n]), 0),
            cause=None if shares is None else causes[int(shares[:, n].argmax())],
        )
        for n, (begin, stop) in enumerate(chosen)
    )


def _slices(device: DeviceTrace, shift: int, most: int) -> GpuSlices:
    """The events as slices, neighbours of a kind on a stream merged over longer and longer pauses till they are few."""
    order = np.lexsort((device.rows[:, 0], device.lane))
    rows, lane, work = device.rows[order], device.lane[order], device.work[order]
    pause, begins = 0, np.ones(len(rows), dtype=bool)
    if len(rows) > most:
        same = (lane[1:] == lane[:-1]) & (work[1:] == work[:-1])
        pauses = rows[1:, 0] - rows[:-1, 1]
        # Half of a millisecond is longer than any pause between launches that belong together.
        while begins.sum() > most and pause < 500_000:
            pause = max(pause * 2, 1000)
            begins[1:] = ~(same & (pauses <= pause))
    at = np.flatnonzero(begins)
    ends = np.maximum.reduceat(rows[:, 1], at)
    events = np.diff([*at, len(rows)])
    chosen = np.argsort(rows[at, 0], kind="stable")[:most]
    first = at[chosen]
    return GpuSlices(
        lanes=device.lanes,
        start_ns=tuple(map(int, rows[first, 0] + shift)),
        duration_ns=tuple(map(int, ends[chosen] - rows[first, 0])),
        lane=tuple(map(int, lane[first])),
        work=tuple(map(int, work[first])),
        events=tuple(map(int, events[chosen])),
    )


def _costliest(devices: Sequence[DeviceTrace], start: int, end: int, steps: int) -> tuple[Kernel, ...]:
    times, calls = Counter[tuple[str, Work]](), Counter[tuple[str, Work]]()
    for device in devices:
        inside = (device.rows[:, 1] > start) & (device.rows[:, 0] < end)
        kinds, at = np.unique(np.column_stack([device.name, device.work])[inside], axis=0, return_inverse=True)
        for number, (name, work) in enumerate(kinds.tolist()):
            lasted = np.diff(device.rows[inside][at.ravel() == number], axis=1)
            times[device.names[name], WORK[work]] += int(lasted.sum())
            calls[device.names[name], WORK[work]] += len(lasted)
    chosen = sorted(times, key=lambda name: (-times[name], name))[:_KERNELS]
    return tuple(
        Kernel(name=name, work=work, time_s=times[name, work] / steps / 1e9, calls=calls[name, work] / steps)
        for name, work in chosen
    )


def _imbalance(devices: Sequence[DeviceTrace], steps: Intervals) -> tuple[float | None, int | None, float | None]:
    """Excess of the busiest computing GPU over their mean, the GPU slowest most often, and its share of steps."""
    by_step = {device.index: covered(union(device.rows[device.work == 0]), steps) for device in devices}
    working = {index: times for index, times in by_step.items() if times.sum()}
    if len(working) < 2:
        return None, None, None
    times = np.array(list(working.values()), dtype=np.float64)
    means = times.mean(axis=1)
    counts = np.bincount(times.argmax(axis=0))
    slowest, share = list(working)[counts.argmax()], float(counts.max() / len(steps))
    return float(means.max() / means.mean() - 1), slowest, share


TOOLS: Final = ("overview_page", "input_pipeline_analyzer")
"""XProf's tools that the verdict is read from."""
_ANSWERS: Final[Mapping[str, Literal["input", "not input", "perhaps input"]]] = {
    "HIGHLY": "input",
    "MODERATELY": "input",
    "POTENTIALLY": "perhaps input",
    "COULD be": "perhaps input",
    "NOT": "not input",
}


def read(texts: Mapping[str, str | bytes]) -> XProfVerdict:
    """The JSON of the two tools of :data:`TOOLS` as a verdict.

    Raises:
        ValueError, KeyError, TypeError: the tables are not those that are known.
    """
    overview, analyzer = (json.loads(texts[tool]) for tool in TOOLS)
    statement = _property(overview, "statement") or _property(analyzer, "input_conclusion")
    step_ms = float(_property(analyzer, "steptime_ms_average") or 0)
    share = round(float(_property(analyzer, "infeed_time_ms_avg") or 0) / step_ms, 4) if step_ms else None
    return XProfVerdict(says=answer(statement), statement=statement, input_share=share)


def answer(statement: str) -> Literal["input", "not input", "perhaps input", "nothing"]:
    """XProf's sentence as one of four answers."""
    found = re.search(f"({'|'.join(_ANSWERS)}) input-bound", statement)
    return _ANSWERS[found[1]] if found else "nothing"


def _property(tables: list[dict[str, Any]], name: str) -> str:
    return next((str(table["p"][name]) for table in tables if table.get("p", {}).get(name)), "")
