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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from xttsbench.analysis.readings import Intervals, both, clip, complement, covered, nothing, total, union, without
from xttsbench.records.readings import CAUSES, COPIES, WORK, Cause, Gap, GpuActivity, GpuDevice, XProfVerdict

_LONGEST: Final = 10


@dataclass(frozen=True)
class DeviceTrace:
    """Events of the streams of one GPU, arrays of one length in any order; times in nanoseconds of the profile.

    Attributes:
        index: of the GPU in TensorFlow.
        rows: start and end of each event, shape ``(n, 2)``.
        work: position of its kind in :data:`~xttsbench.records.readings.WORK`.
    """

    index: int
    rows: Intervals
    work: npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowTrace:
    """A profiled window of steps.

    Attributes:
        steps: start and end of each step on the host, in nanoseconds of the profile, shape ``(k, 2)``, k at least 1.
        devices: GPUs that the profile has a plane of.
        host: cause -> when the host did that (any intervals; ``host`` itself is what is left).
        offset_ns: what to add for the clock of the steps.
        unmeasured: reasons of the reader.
    """

    steps: Intervals
    devices: Sequence[DeviceTrace] = ()
    host: Mapping[Cause, Intervals] = field(default_factory=dict)
    offset_ns: int = 0
    unmeasured: Mapping[str, str] = field(default_factory=dict)


def activity_of(trace: WindowTrace) -> GpuActivity:
    """The record of a profiled window, all times per step."""
    count = len(trace.steps)
    start, end = int(trace.steps[0, 0]), int(trace.steps[:, 1].max())
    did = partition(trace.host, start, end)
    ran = any(len(device.rows) for device in trace.devices)
    devices = trace.devices if ran else ()
    made = tuple(_device(device, trace, did, start, end) for device in devices)
    unmeasured = dict(trace.unmeasured)
    on_clock = trace.steps + trace.offset_ns
    imbalance, slowest, slowest_share = _imbalance(devices, trace.steps)
    if imbalance is None:
        why = "one GPU worked" if ran else unmeasured.get("devices", "no GPU worked")
        unmeasured |= dict.fromkeys(("imbalance", "slowest", "slowest_share"), why)
    return GpuActivity(
        steps=count,
        start_ns=start + trace.offset_ns,
        step_s=(end - start) / count / 1e9,
        step_starts_ns=tuple(map(int, on_clock[:, 0])),
        step_ends_ns=tuple(map(int, on_clock[:, 1])),
        host_s={cause: total(spans) / count / 1e9 for cause, spans in did.items()},
        devices=made,
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


def _device(device: DeviceTrace, trace: WindowTrace, did: Mapping[Cause, Intervals], start: int, end: int) -> GpuDevice:
    per_step = len(trace.steps) * 1e9
    work = {kind: clip(union(device.rows[device.work == n]), start, end) for n, kind in enumerate(WORK)}
    copies = union(*(work[kind] for kind in COPIES))
    kernels, collectives = work["kernel"], work["collective"]
    busy = union(kernels, collectives, copies)
    idle = complement(busy, start, end)
    inside = (device.rows[:, 1] > start) & (device.rows[:, 0] < end)
    return GpuDevice(
        index=device.index,
        kernel_s=total(kernels) / per_step,
        collective_s=total(collectives) / per_step,
        copy_s=total(copies) / per_step,
        collective_alone_s=total(without(collectives, kernels)) / per_step,
        copy_alone_s=total(without(copies, union(kernels, collectives))) / per_step,
        idle_s=total(idle) / per_step,
        work_s={kind: total(spans) / per_step for kind, spans in work.items() if len(spans)},
        kernels=int((inside & (device.work == 0)).sum()) / len(trace.steps),
        idle_by_cause_s={why: total(both(idle, spans)) / per_step for why, spans in did.items()},
        longest_gaps=_longest(idle, did, trace.steps, trace.offset_ns),
    )


def _longest(idle: Intervals, did: Mapping[Cause, Intervals], steps: Intervals, shift: int) -> tuple[Gap, ...]:
    lengths = idle[:, 1] - idle[:, 0]
    chosen = idle[np.argsort(-lengths, kind="stable")[:_LONGEST]]
    causes = list(did)
    most = np.array([covered(spans, chosen) for spans in did.values()]).argmax(axis=0)
    numbers = np.searchsorted(steps[:, 0], chosen[:, 0], side="right") - 1
    return tuple(
        Gap(
            start_ns=int(begin) + shift,
            duration_s=int(stop - begin) / 1e9,
            step=max(int(numbers[n]), 0),
            cause=causes[most[n]],
        )
        for n, (begin, stop) in enumerate(chosen)
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
