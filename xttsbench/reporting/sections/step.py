"""Sections on the step and its behaviour in time: ops, shapes, other conditions; rhythm, warm-up, overhead.

Of profiled steps: what each GPU did, why it was idle, what the main thread did, NVML and XProf beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from xttsbench.records.base import Estimate
from xttsbench.records.code import OpLine, StepOps
from xttsbench.records.readings import CAUSES, GpuActivity, GpuDevice
from xttsbench.records.report import Oscillation, Report
from xttsbench.reporting import document as doc
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, Fact, Facts, Fold, Section, View, folded
from xttsbench.reporting.sections import cell, known, missing, read_as
from xttsbench.reporting.words import part

OSCILLATES: Final = 0.5
STABLE: Final = 0.2
"""The rule of thumb for std / mean: above the first steps are very uneven, below the second even."""
_LINES: Final = 10
_SHAPES: Final = 10
_ORDER: Final = ("forward", "loss", "backward", "optimizer", "other")
_MEASURES: Final = {
    "period_steps": "period, steps",
    "period_s": "period",
    "variance_share": "share of the variance in the period",
    "p_value": "p of the period against red noise",
    "cv": "robust coefficient of variation",
    "std_over_mean": "std / mean (below 0.2 even, above 0.5 very uneven)",
    "p99_over_p50": "99th percentile over median, of all steps",
    "autocorrelation": "autocorrelation at lag 1",
    "ljung_box_p": "Ljung-Box p",
    "effective_steps": "effective number of independent steps",
    "burstiness": "burstiness of the stalls",
}
"""The oscillation vector: field to what it is."""
_CONDITIONS: Final = {
    "mixed_bfloat16": "mixed precision, bfloat16",
    "mixed_float16": "mixed precision, float16",
    "tf32": "TensorFloat-32",
    "no-tf32": "without TensorFloat-32",
    "half-batch": "half of each batch",
}


def sentence(report: Report) -> str:
    """The phases by their shares, and the line that most of the ops' time comes from; empty where it was not read."""
    ops = _ops(report.step)
    if ops is None or not ops.phases:
        return ""
    shares, texts = sorted(ops.phases.items(), key=lambda item: -item[1]), _shares(ops)
    said = ", ".join(f"{phase} {texts[phase]}" for phase, share in shares if share >= 0.005)
    top = next((line for line in ops.lines if line.share is not None), None)
    if top and top.share:
        said += f"; most of it in one place: {_where(top)} ({top.phase}, {units.percent(top.share)})"
    return f"Of the time of the step's ops: {said}."


def _shares(ops: StepOps) -> dict[str, str]:
    return dict(zip(ops.phases, units.percents(list(ops.phases.values())), strict=True))


def costliest_line(report: Report) -> str:
    """The user's line that most of the ops' time comes from, with its share; empty where it was not read."""
    ops = _ops(report.step)
    top = next((line for line in ops.lines if line.share and line.file), None) if ops is not None else None
    return f"{_where(top)}, {units.percent(top.share)} of the time of the step's ops" if top and top.share else ""


def tables(report: Report) -> Iterator[Fold]:
    """Phases, lines, devices, shapes, conditions, as far as they were read."""
    step = report.step
    if step is None:
        return
    if (ops := _ops(step)) is not None:
        yield from (_phases(ops), _lines(ops), _devices(ops))
    yield from (_shapes(step), _conditions(step))
    yield folded("Of the step not measured", ("what", "why"), list(step.get("unmeasured", {}).items()))


def _phases(ops: StepOps) -> Fold:
    rows: list[tuple[str, str]] = [(phase, _shares(ops)[phase]) for phase in _ORDER if phase in ops.phases]
    if ops.between_ops_s is not None:
        rows.append(("Python between the ops", units.duration(ops.between_ops_s)))
    return folded("The step by phase", ("phase", "share of the ops' time"), rows)


def _lines(ops: StepOps) -> Fold:
    rows = [
        (_where(line), line.phase, f"{line.ops:,}", known(line.share, units.percent)) for line in ops.lines[:_LINES]
    ]
    return folded("The lines behind the step's ops", ("line", "phase", "ops a step", "share"), rows)


def _devices(ops: StepOps) -> Fold:
    """By device and reason; one row for each type of op would only list the step again."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for placed in ops.placements:
        groups.setdefault((placed.device, placed.why), []).append(placed)
    rows = []
    for (device, why), own in groups.items():
        shares = [placed.share for placed in own if placed.share is not None]
        names = ", ".join(placed.op for placed in own[:5]) + (", …" if len(own) > 5 else "")
        share = known(sum(shares) if shares else None, units.percent)
        rows.append((device, f"{sum(placed.count for placed in own):,}", share, names, why))
    return folded("Where the step's ops run", ("device", "ops", "share", "types", "why"), rows)


def _shapes(step: Mapping[str, Any]) -> Fold:
    rows = [
        (
            re.sub(r"^shape \d+$", "others, not recorded", str(shape["shape"])),
            f"{shape['steps']:,}",
            f"{shape['traces']:,}",
            f"{shape['compiles']:,}",
            units.duration(shape["lost_s"]),
            known(shape["step_s"], units.duration),
        )
        for shape in step.get("shapes", ())[:_SHAPES]
    ]
    header = ("shapes of the batch", "steps", "traces", "XLA compilations", "lost to them", "a step otherwise")
    return folded("What each shape cost, over all steps that were run", header, rows)


def _conditions(step: Mapping[str, Any]) -> Fold:
    rows = []
    for name, found in step.get("conditions", {}).items():
        time, speed = found.get("step_time_s"), found.get("speedup")
        status = found["status"] if found.get("cause") is None else f"{found['status']}: {found['cause']}"
        time_cell = cell(None if time is None else Estimate(**time), units.duration_bounds)
        speed_cell = cell(None if speed is None else Estimate(**speed), units.ratio_bounds)
        rows.append((_CONDITIONS.get(name, name), time_cell, speed_cell, status))
    return folded("The step under other conditions", ("condition", "step", "speed", "status"), rows)


def _ops(step: Mapping[str, Any] | None) -> StepOps | None:
    return read_as(StepOps, (step or {}).get("ops"))


def _where(line: OpLine) -> str:
    if line.file:
        return f"{os.path.basename(line.file)}:{line.line} {line.function}"
    return f"layers {line.function}" if line.function else "no line of the target's"


def in_time(report: Report, *, only_measured: bool) -> Iterator[Section]:
    """Sections on the step's behaviour in time, its warm-up, and the measurement overhead."""
    varies = report.oscillation != Oscillation()
    lines = (
        ("oscillation", varies, _rhythm),
        ("warm-up", report.warm_up.steps_measured > 0, _warm_up),
        ("measurement overhead per step", bool(report.overhead), _overhead),
    )
    facts = tuple(Fact(label, say(report)) for label, known, say in lines if known or not only_measured)
    if facts:
        yield Section("In time", (Facts(facts),), view=View.FULL)
    if varies or not only_measured:
        found = report.oscillation.model_dump()
        every = [
            Fact(label, units.named(name, found[name])[1])
            for name, label in _MEASURES.items()
            if found[name] is not None  # for the others stands the reason
        ]
        yield Fold("All measures of oscillation", (Facts(tuple(every), ("oscillation", "value"), view=View.FULL),))


def period(report: Report) -> str:
    """The period in words; that none was found is a result, that none was looked for is not."""
    found = report.oscillation
    if found.period_steps is None:
        reason = missing(report, "oscillation.period_steps")
        searched = found.p_value is not None or reason.startswith(f"{NOT_MEASURED}: no period")
        return "no period at 1 %" if searched else f"period {reason}"
    seconds = "" if found.period_s is None else f" ({units.duration(found.period_s)})"
    share = "" if found.variance_share is None else f", {units.percent(found.variance_share)} of the variance"
    return f"repeats every {found.period_steps:.3g} steps{seconds}{share}"


def _rhythm(report: Report) -> str:
    found, words = report.oscillation, [period(report)]
    if (spread := found.std_over_mean) is not None:
        uneven = "even" if spread < STABLE else "very uneven" if spread > OSCILLATES else "uneven"
        words.append(f"steps are {uneven}, std/mean {units.number(float(spread))}")
    if found.p99_over_p50 is not None:
        words.append(f"99th percentile of all steps {units.ratio(found.p99_over_p50)} their median")
    return "; ".join(words)


def _warm_up(report: Report) -> str:
    warm = report.warm_up
    first = warm.first_step_s
    words = [
        f"{warm.steps_measured + warm.steps_cut:,} steps measured, {warm.steps_cut:,} of them cut as warm-up",
        f"first step {missing(report, 'warm_up.first_step_s') if first is None else units.duration(first)}",
    ]
    compiled = ("XLA compilation", warm.xla_compiles, warm.xla_compile_s)
    for what, count, time in (("trace", warm.traces, warm.trace_s), compiled):
        if count is not None:
            took = f" taking {units.duration(time)}" if time else ""
            words.append(f"{count:,} {what}{'' if count == 1 else 's'}{took}")
    certain = "" if warm.certified else ", not for certain"
    drifts = any(one.rule == "drift" for one in report.findings)  # which says by how much
    steady = f"steady state reached{certain}" if warm.steady_state else "no steady state"
    words.append(steady + (", in which step times drift" if warm.steady_state else ": step times drift") * drifts)
    return "; ".join(filter(None, (*words, "" if drifts and not warm.steady_state else warm.reason)))


def _overhead(report: Report) -> str:
    cost = report.overhead.get("overhead_s_per_step")
    if not isinstance(cost, int | float):
        return missing(report, "overhead")
    share, took = report.overhead.get("share_of_step"), report.verdict.verdict_final_s
    said = f", {units.percent(share)} of the step" if isinstance(share, int | float) else ""
    after = "" if took is None else f"the verdict was final after {units.duration(took)}"
    return "; ".join(filter(None, (units.duration(cost) + said, str(report.overhead.get("method") or ""), after)))


WORDS: Final = {
    "compile": "tracing or compiling",
    "saving": "saving, or writing summaries",
    "input": "waiting for input",
    "sync": "waiting for a device",
    "dispatch": "launching ops",
    "host": "running other Python",
}
"""Phrases for the activity of the thread of the steps, by its name in the record."""
_GAPS, _TOLD = 5, 2


def profiled(report: Report) -> Iterator[doc.Section]:
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
        yield _gpus(gpu, profile.get("nvml") or ())
        yield _idle(gpu)
        yield _gaps(gpu)
    else:
        yield doc.Paragraph(gpu.unmeasured.get("devices", "no GPU in the profile"))
    if gpu is not None and gpu.host_s:
        yield _host(gpu)
    yield doc.Facts(tuple(_xprof(profile, unmeasured)), ("profile", "what"))


def _share(seconds: float, gpu: GpuActivity) -> str:
    return units.percent(seconds / gpu.step_s) if gpu.step_s else NOT_MEASURED


def _sentences(gpu: GpuActivity) -> Iterator[str]:
    """Sentences on each GPU's activity, or of many GPUs on the busiest and the least busy; and on how even that is."""
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
    return (
        f", mostly while the main thread is {WORDS[max(causes, key=causes.__getitem__)]}"
        if any(causes.values())
        else ""
    )


def _gpus(gpu: GpuActivity, nvml: Any) -> doc.Table:
    beside = {found["gpu"]: found.get("utilization") for found in nvml}
    rows = []
    for device in gpu.devices:
        busy = beside.get(device.index)
        rows.append(
            (
                f"GPU {device.index}",
                *(
                    doc.Cell(units.duration(seconds), _share(seconds, gpu))
                    for seconds in (device.kernel_s, device.collective_alone_s, device.copy_alone_s, device.idle_s)
                ),
                units.number(device.kernels),
                known(busy, units.percent),
            )
        )
    header = doc.numeric("kernels", "collectives alone", "copies alone", "idle", "kernels a step", "NVML busy")
    return doc.table(("GPU", *header), rows, view=View.FULL)


def _idle(gpu: GpuActivity) -> doc.Table:
    working = [device for device in gpu.devices if device.work_s and device.idle_by_cause_s]
    rows = []
    for cause in CAUSES:
        times = [device.idle_by_cause_s.get(cause, 0.0) for device in working]
        if any(time > 0 for time in times):
            rows.append((WORDS[cause], *(doc.Cell(units.duration(time), _share(time, gpu)) for time in times)))
    gpus = doc.numeric(*(f"GPU {device.index}" for device in working))
    return doc.table(("idle while the main thread is", *gpus), rows, view=View.FULL)


def _gaps(gpu: GpuActivity) -> doc.Table:
    gaps = sorted(
        ((gap, device.index) for device in gpu.devices if device.work_s for gap in device.longest_gaps),
        key=lambda found: -found[0].duration_s,
    )
    rows = [
        (units.duration(gap.duration_s), f"GPU {index}", f"{gap.step}", WORDS[gap.cause]) for gap, index in gaps[:_GAPS]
    ]
    return doc.table(("longest gaps", "GPU", "step", "mostly while the main thread is"), rows, view=View.FULL)


def _host(gpu: GpuActivity) -> doc.Table:
    running = "launching ops" if gpu.devices else "running TensorFlow's ops"
    rows = [
        (running if cause == "dispatch" else WORDS[cause], units.duration(time), _share(time, gpu))
        for cause in CAUSES
        if (time := gpu.host_s.get(cause, 0.0)) > 0
    ]
    numbers = doc.numeric("a step", "share")
    return doc.table(("the main thread in the profiled steps", *numbers), rows, view=View.FULL)


def _xprof(profile: Mapping[str, Any], unmeasured: Mapping[str, str]) -> Iterator[doc.Fact]:
    said, beside = profile.get("xprof"), profile.get("agreement") or {}
    if said:
        version = f"XProf {said.get('version') or ''}".strip()
        yield doc.Fact(version, said.get("statement") or "says nothing of the input")
        if beside:
            ours = part(str(beside["verdict"]))
            yield doc.Fact("the verdict", f"{ours}: they agree" if beside["agree"] else f"{ours}; {beside['why']}")
    else:
        yield doc.Fact("XProf", f"{NOT_MEASURED}: {unmeasured.get('xprof', 'there is no profile for it')}")
    if profile.get("steps"):
        yield doc.Fact("to open it", f"tensorboard --logdir {profile['directory']}, in the run's directory")
