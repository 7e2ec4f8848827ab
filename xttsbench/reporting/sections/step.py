"""What the step does and how it behaves in time: its ops, its shapes, other conditions; rhythm, warm-up, overhead."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from xttsbench.records.base import Estimate
from xttsbench.records.code import OpLine, StepOps
from xttsbench.records.report import Oscillation, Report
from xttsbench.reporting import units
from xttsbench.reporting.document import NOT_MEASURED, Fact, Facts, Fold, Section, View, folded
from xttsbench.reporting.sections import cell, missing, read_as

OSCILLATES: Final = 0.5
STABLE: Final = 0.2
"""The rule of thumb for std / mean: above the first it oscillates, below the second it is stable."""
_LINES: Final = 10
_SHAPES: Final = 10
_ORDER: Final = ("forward", "loss", "backward", "optimizer", "other")
_MEASURES: Final = {
    "period_steps": "period, steps",
    "period_s": "period",
    "variance_share": "share of the variance in the period",
    "p_value": "p of the period against red noise",
    "cv": "robust coefficient of variation",
    "std_over_mean": "std / mean (above 0.5 oscillates, below 0.2 is stable)",
    "p99_over_p50": "99th percentile over median",
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
    shares = sorted(ops.phases.items(), key=lambda item: -item[1])
    said = ", ".join(f"{phase} {units.percent(share)}" for phase, share in shares if share >= 0.005)
    top = next((line for line in ops.lines if line.share is not None), None)
    if top and top.share:
        said += f"; most of it in one place: {_where(top)} ({top.phase}, {units.percent(top.share)})"
    return f"Of the time of the step's ops: {said}."


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
    rows: list[tuple[str, str]] = [(phase, units.percent(ops.phases[phase])) for phase in _ORDER if phase in ops.phases]
    if ops.op_time_s is not None:
        rows.append(("all ops, summed over threads", units.duration(ops.op_time_s)))
    if ops.between_ops_s is not None:
        rows.append(("Python between the ops", units.duration(ops.between_ops_s)))
    return folded("The step by phase", ("phase", "share of the ops' time"), rows)


def _lines(ops: StepOps) -> Fold:
    rows = [
        (_where(line), line.phase, f"{line.ops:,}", NOT_MEASURED if line.share is None else units.percent(line.share))
        for line in ops.lines[:_LINES]
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
        share = units.percent(sum(shares)) if shares else NOT_MEASURED
        rows.append((device, f"{sum(placed.count for placed in own):,}", share, names, why))
    return folded("Where the step's ops run", ("device", "ops", "share", "types", "why"), rows)


def _shapes(step: Mapping[str, Any]) -> Fold:
    rows = [
        (
            str(shape["shape"]),
            f"{shape['steps']:,}",
            f"{shape['traces']:,}",
            f"{shape['compiles']:,}",
            units.duration(shape["lost_s"]),
            NOT_MEASURED if shape["step_s"] is None else units.duration(shape["step_s"]),
        )
        for shape in step.get("shapes", ())[:_SHAPES]
    ]
    header = ("shapes of the batch", "steps", "traces", "XLA compilations", "lost to them", "a step otherwise")
    return folded("What each shape cost", header, rows)


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
    """How the step behaves in time, how it warmed up, and what the measurement adds to it."""
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
        every = tuple(Fact(label, _measure(report, name)) for name, label in _MEASURES.items())
        yield Fold("All measures of oscillation", (Facts(every, ("oscillation", "value"), view=View.FULL),))


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
    """The period, the rule of thumb and the tail in one line."""
    found, words = report.oscillation, [period(report)]
    if (spread := found.std_over_mean) is not None:
        between = "stable" if spread < STABLE else "between stable and oscillating"
        words.append(f"std/mean {units.number(float(spread))}, {'oscillates' if spread > OSCILLATES else between}")
    if found.p99_over_p50 is not None:
        words.append(f"99th percentile {units.ratio(found.p99_over_p50)} the median")
    return "; ".join(words)


def _measure(report: Report, name: str) -> str:
    value = getattr(report.oscillation, name)
    return missing(report, f"oscillation.{name}") if value is None else units.named(name, value)[1]


def _warm_up(report: Report) -> str:
    warm = report.warm_up
    words = [f"{warm.steps_measured:,} steps measured, {warm.steps_cut:,} cut as warm-up"]
    first = warm.first_step_s
    words.append(f"first step {missing(report, 'warm_up.first_step_s') if first is None else units.duration(first)}")
    compiled = ("XLA compilation", warm.xla_compiles, warm.xla_compile_s)
    for what, count, time in (("trace", warm.traces, warm.trace_s), compiled):
        if count is not None:
            took = f" taking {units.duration(time)}" if time else ""
            words.append(f"{count:,} {what}{'' if count == 1 else 's'}{took}")
    if warm.steady_state:
        words.append(f"steady state reached, {'certified' if warm.certified else 'not certified'}")
    else:
        words.append("no steady state")
    if warm.reason:
        words.append(warm.reason)
    return "; ".join(words)


def _overhead(report: Report) -> str:
    cost = report.overhead.get("overhead_s_per_step")
    if not isinstance(cost, int | float):
        return missing(report, "overhead")
    words = [units.duration(cost)]
    share = report.overhead.get("share_of_step")
    if isinstance(share, int | float):
        words[0] += f", {units.percent(share)} of the step"
    if method := report.overhead.get("method"):
        words.append(str(method))
    if report.verdict_after_s is not None:
        words.append(f"the verdict took {units.duration(report.verdict_after_s)}")
    return "; ".join(words)
