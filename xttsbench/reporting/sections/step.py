"""What the step does, in words and tables: phases, the user's lines, devices, shapes, and other conditions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from xttsbench.records.base import Estimate
from xttsbench.records.report import Report
from xttsbench.records.step_ops import OpLine, StepOps
from xttsbench.reporting import units
from xttsbench.reporting.absent import NOT_MEASURED
from xttsbench.reporting.rows import Table
from xttsbench.reporting.text import plain

_LINES: Final = 10
_SHAPES: Final = 10
_ORDER: Final = ("forward", "loss", "backward", "optimizer", "other")
_CONDITIONS: Final = {
    "mixed_bfloat16": "mixed precision, bfloat16",
    "mixed_float16": "mixed precision, float16",
    "tf32": "TensorFloat-32",
    "no-tf32": "without TensorFloat-32",
    "half-batch": "half of each batch",
}


def step_sentence(report: Report) -> str | None:
    """One sentence: the phases by their shares, and the line that most of the ops' time comes from."""
    ops = _ops(report.step)
    if ops is None or not ops.phases:
        return None
    shares = sorted(ops.phases.items(), key=lambda item: -item[1])
    said = ", ".join(f"{phase} {units.percent(share)}" for phase, share in shares if share >= 0.005)
    top = next((line for line in ops.lines if line.share is not None), None)
    where = (
        f"; most of it in one place: {_where(top)} ({top.phase}, {units.percent(top.share)})"
        if top and top.share
        else ""
    )
    return plain(f"Of the time of the step's ops: {said}{where}.")


def step_tables(report: Report) -> tuple[Table, ...]:
    """The tables of the step that have rows: phases, lines, devices, shapes, conditions."""
    step = report.step
    if step is None:
        return ()
    ops = _ops(step)
    found = []
    if ops is not None:
        found += [_phases(ops), _lines(ops), _devices(ops)]
    found += [_shapes(step), _conditions(step), _unmeasured(step)]
    return tuple(table for table in found if table.rows)


def _phases(ops: StepOps) -> Table:
    rows: list[tuple[str, str]] = [(phase, units.percent(ops.phases[phase])) for phase in _ORDER if phase in ops.phases]
    if ops.op_time_s is not None:
        rows.append(("all ops, summed over threads", units.duration(ops.op_time_s)))
    if ops.between_ops_s is not None:
        rows.append(("Python between the ops", units.duration(ops.between_ops_s)))
    return Table("The step by phase", ("phase", "share of the ops' time"), tuple(rows))


def _lines(ops: StepOps) -> Table:
    rows = tuple(
        (_where(line), line.phase, f"{line.ops:,}", NOT_MEASURED if line.share is None else units.percent(line.share))
        for line in ops.lines[:_LINES]
    )
    return Table("The lines behind the step's ops", ("line", "phase", "ops a step", "share"), rows)


def _devices(ops: StepOps) -> Table:
    """By device and reason; one row for each type of op would only list the step again."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for placed in ops.placements:
        groups.setdefault((placed.device, placed.why), []).append(placed)
    rows = []
    for (device, why), own in groups.items():
        shares = [placed.share for placed in own if placed.share is not None]
        names = ", ".join(placed.op for placed in own[:5]) + (", …" if len(own) > 5 else "")
        rows.append(
            (
                device,
                f"{sum(placed.count for placed in own):,}",
                units.percent(sum(shares)) if shares else NOT_MEASURED,
                plain(names),
                plain(why),
            )
        )
    return Table("Where the step's ops run", ("device", "ops", "share", "types", "why"), tuple(rows))


def _shapes(step: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            plain(str(shape["shape"])),
            f"{shape['steps']:,}",
            f"{shape['traces']:,}",
            f"{shape['compiles']:,}",
            units.duration(shape["lost_s"]),
            NOT_MEASURED if shape["step_s"] is None else units.duration(shape["step_s"]),
        )
        for shape in step.get("shapes", ())[:_SHAPES]
    )
    header = ("shapes of the batch", "steps", "traces", "XLA compilations", "lost to them", "a step otherwise")
    return Table("What each shape cost", header, rows)


def _conditions(step: Mapping[str, Any]) -> Table:
    rows = []
    for name, found in step.get("conditions", {}).items():
        time, speed = found.get("step_time_s"), found.get("speedup")
        status = found["status"] if found.get("cause") is None else f"{found['status']}: {found['cause']}"
        rows.append(
            (
                _CONDITIONS.get(name, plain(name)),
                NOT_MEASURED if time is None else units.duration_interval(Estimate(**time)),
                NOT_MEASURED if speed is None else units.ratio_interval(Estimate(**speed)),
                plain(status),
            )
        )
    return Table("The step under other conditions", ("condition", "step", "speed", "status"), tuple(rows))


def _unmeasured(step: Mapping[str, Any]) -> Table:
    rows = tuple((plain(name), plain(reason)) for name, reason in step.get("unmeasured", {}).items())
    return Table("Of the step not measured", ("what", "why"), rows)


def _ops(step: Mapping[str, Any] | None) -> StepOps | None:
    if not step or not step.get("ops"):
        return None
    try:
        return StepOps(**step["ops"])
    except (ValidationError, TypeError):
        return None  # of another version: what it says is in report.json


def _where(line: OpLine) -> str:
    if line.file:
        return plain(f"{os.path.basename(line.file)}:{line.line} {line.function}")
    return plain(f"layers {line.function}" if line.function else "no line of the target's")
