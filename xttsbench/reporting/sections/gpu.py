"""The profiled steps: what each GPU did, why it was idle, what the main thread did, NVML and XProf beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from xttsbench.records.gpu_activity import CAUSES, COPIES, GpuActivity, GpuDevice
from xttsbench.records.report import Report
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, View
from xttsbench.reporting.sections import read_as
from xttsbench.reporting.words import part

WORDS: Final = {
    "compile": "tracing or compiling",
    "saving": "saving, or writing summaries",
    "input": "waiting for input",
    "sync": "waiting for a device",
    "dispatch": "launching ops",
    "host": "running other Python",
}
"""What the thread of the steps did, as the record names it, to its words."""
_WORK: Final = {
    "kernel": "kernel",
    "collective": "collective",
    "to_device": "copy to the GPU",
    "from_device": "copy from the GPU",
    "between_devices": "copy between GPUs",
    "on_device": "copy or memset on the GPU",
}
_NAME_CHARACTERS: Final = 100
_GAPS, _KERNELS, _TOLD = 5, 10, 2


def sections(report: Report) -> Iterator[doc.Section]:
    """The profiled steps; nothing where no profile was asked for."""
    profile = report.profile
    if not profile:
        return
    gpu = read_as(GpuActivity, profile.get("gpu"))
    blocks = tuple(_blocks(profile, gpu))
    yield doc.Section("GPU" if gpu is not None and gpu.devices else "Profiled steps", blocks, view=View.FULL)


def _blocks(profile: Mapping[str, Any], gpu: GpuActivity | None) -> Iterator[doc.Block]:
    unmeasured = profile.get("unmeasured") or {}
    if gpu is None:
        yield doc.Paragraph(f"{NOT_MEASURED}: {unmeasured.get('profile', 'the profile was not read')}")
    elif gpu.devices:
        yield doc.Paragraph(" ".join(_sentences(gpu)))
        yield _devices(gpu, profile.get("nvml") or ())
        yield _idle(gpu)
        yield _gaps(gpu)
        yield _kernels(gpu)
    else:
        yield doc.Paragraph(gpu.unmeasured.get("devices", "no GPU in the profile"))
    if gpu is not None and gpu.host_s:
        yield _host(gpu)
    facts = [*_xprof(profile, unmeasured)]
    if profile.get("steps"):
        facts.append(doc.Fact("to open it", f"tensorboard --logdir {profile['directory']}, in the run's directory"))
    yield doc.Facts(tuple(facts), ("profile", "what"))


def _share(seconds: float, gpu: GpuActivity) -> str:
    return units.percent(seconds / gpu.step_s) if gpu.step_s else NOT_MEASURED


def _sentences(gpu: GpuActivity) -> Iterator[str]:
    """What each GPU did, or of many those that did most and least; and how even that is."""
    working = sorted((device for device in gpu.devices if device.work_s), key=lambda device: device.kernel_s)
    told = working if len(working) <= _TOLD else [working[-1], working[0]]
    for device in sorted(told, key=lambda device: device.index):
        words = [f"computes {_share(device.kernel_s, gpu)} of a profiled step"]
        if device.collective_alone_s > 0:
            words.append(f"is in collectives alone {_share(device.collective_alone_s, gpu)}")
        if device.copy_alone_s > 0:
            words.append(f"copies alone {_share(device.copy_alone_s, gpu)}")
        words.append(f"is idle {_share(device.idle_s, gpu)}{_mostly(device)}")
        yield f"GPU {device.index} {', '.join(words)}."
    if others := len(working) - len(told):
        yield f"{others} others are between them."
    if unused := [str(device.index) for device in gpu.devices if not device.work_s]:
        yield f"Nothing ran on GPU {', '.join(unused)}."
    if gpu.imbalance is not None:
        said = f"The busiest GPU computes {units.percent(gpu.imbalance)} longer than the mean"
        if gpu.slowest is not None and gpu.slowest_share is not None:
            said += f"; GPU {gpu.slowest} is the slowest in {units.percent(gpu.slowest_share)} of the steps"
        yield f"{said}."


def _mostly(device: GpuDevice) -> str:
    causes = device.idle_by_cause_s
    if not causes or not device.idle_s:
        return ""
    cause = max(causes, key=lambda name: causes[name])
    return f", mostly while the main thread is {WORDS[cause]}"


def _devices(gpu: GpuActivity, nvml: Any) -> doc.Table:
    beside = {found["gpu"]: found.get("utilization") for found in nvml}
    rows = []
    for device in gpu.devices:
        moved = sum(device.bytes.get(way, 0) for way in COPIES if way != "on_device")
        busy = beside.get(device.index)
        rows.append(
            (
                f"GPU {device.index}",
                *(
                    doc.Cell(units.duration(seconds), _share(seconds, gpu))
                    for seconds in (device.kernel_s, device.collective_alone_s, device.copy_alone_s, device.idle_s)
                ),
                units.size(moved) if moved or not device.copy_s else NOT_MEASURED,
                units.number(device.kernels),
                NOT_MEASURED if busy is None else units.percent(busy),
            )
        )
    header = ("kernels", "collectives alone", "copies alone", "idle", "copied", "kernels a step", "NVML busy")
    return doc.table(("GPU", *map(_number, header)), rows, view=View.FULL)


def _number(name: str) -> doc.Column:
    return doc.Column(name, numeric=True)


def _idle(gpu: GpuActivity) -> doc.Table:
    """A row for each cause, a column for each GPU that ran anything."""
    working = [device for device in gpu.devices if device.work_s and device.idle_by_cause_s]
    rows = []
    for cause in CAUSES:
        times = [device.idle_by_cause_s.get(cause, 0.0) for device in working]
        if any(time > 0 for time in times):
            rows.append((WORDS[cause], *(doc.Cell(units.duration(time), _share(time, gpu)) for time in times)))
    return doc.table(
        ("idle while the main thread is", *(_number(f"GPU {device.index}") for device in working)), rows, view=View.FULL
    )


def _gaps(gpu: GpuActivity) -> doc.Table:
    gaps = sorted(
        ((gap, device.index) for device in gpu.devices if device.work_s for gap in device.longest_gaps),
        key=lambda found: -found[0].duration_s,
    )
    rows = [
        (units.duration(gap.duration_s), f"GPU {index}", f"{gap.step}", WORDS[gap.cause] if gap.cause else NOT_MEASURED)
        for gap, index in gaps[:_GAPS]
    ]
    return doc.table(("longest gaps", "GPU", "step", "mostly while the main thread is"), rows, view=View.FULL)


def _kernels(gpu: GpuActivity) -> doc.Table:
    rows = [
        (kernel.name[:_NAME_CHARACTERS], _WORK[kernel.work], units.duration(kernel.time_s), units.number(kernel.calls))
        for kernel in gpu.kernels[:_KERNELS]
    ]
    return doc.table(
        ("costliest on the GPUs", "what", _number("a step"), _number("calls a step")), rows, view=View.FULL
    )


def _host(gpu: GpuActivity) -> doc.Table:
    running = "launching ops" if gpu.devices else "running TensorFlow's ops"
    rows = [
        (running if cause == "dispatch" else WORDS[cause], units.duration(time), _share(time, gpu))
        for cause in CAUSES
        if (time := gpu.host_s.get(cause, 0.0)) > 0
    ]
    return doc.table(
        ("the main thread in the profiled steps", _number("a step"), _number("share")), rows, view=View.FULL
    )


def _xprof(profile: Mapping[str, Any], unmeasured: Mapping[str, str]) -> Iterator[doc.Fact]:
    said, beside = profile.get("xprof"), profile.get("agreement") or {}
    if not said:
        yield doc.Fact("XProf", f"{NOT_MEASURED}: {unmeasured.get('xprof', 'there is no profile for it')}")
        return
    yield doc.Fact(f"XProf {said.get('version') or ''}".strip(), said.get("statement") or "says nothing of the input")
    if beside:
        ours = part(str(beside["verdict"]))
        yield doc.Fact("the verdict", f"{ours}: they agree" if beside["agree"] else f"{ours}; {beside['why']}")
