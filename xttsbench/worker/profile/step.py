"""Profile of a step on cached batches, in runs that no timing uses: its lines, its ops, their phases and devices.

A stack sampler and an op counter tell where its time goes. Ops launched from Python are timed in one run, ops inside
traced functions in another under the profiler; both are summed up alike. Where XLA has compiled the step, its
instructions are led back to ops by the text of the module.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import kernels

from xttsbench.records.code import OpLine, Phase, Placement, StepOps
from xttsbench.records.trial import StackLine, StepProfile
from xttsbench.step.frames import StackSampler, in_layer, in_order, own_phase, user_frame, writes
from xttsbench.step.graph_ops import (
    CALLS,
    NO_GPU,
    GraphOps,
    OpPlace,
    by_name,
    devices_of,
    scope_of,
    short_device,
    why,
)
from xttsbench.step.op_trace import EagerOp, EagerOps, OpCounter, OpTime, OpTrace, op_names
from xttsbench.worker.batches import CachedBatches
from xttsbench.worker.bench import Bench, Step

_PROFILE_LINES: Final = 12


def read_step_profile(bench: Bench, step: Step, batches: list[Any], window_s: float) -> StepProfile:
    """Run the step for ``window_s`` seconds (one step at least) and say where its time went."""
    counted = bench.watch.counts_calls
    bench.watch.watch_calls()
    source, steps, calls_before = CachedBatches(batches), 0, bench.watch.counters()[0]
    began = time.perf_counter()
    with OpCounter() as ops, StackSampler() as sampler:
        while steps < 1 or (time.perf_counter() - began < window_s and steps < 3000):
            batch = source.next()
            sampler.step = steps
            call_step(bench, step, batch)
            sampler.step = None
            steps += 1
    calls = bench.watch.counters()[0] - calls_before
    if not counted:  # what is timed after it has no such cost either
        bench.watch.leave_calls()
    return summarise(ops, sampler, steps, calls)


def summarise(ops: OpCounter, sampler: StackSampler, steps: int, calls: int) -> StepProfile:
    """Profile from the counts and samples of that many steps, in which tf.functions were called ``calls`` times."""
    lines = _lines(sampler, steps)
    kinds: dict[str, float] = defaultdict(float)
    for line in lines:
        kinds[line.kind] += line.share
    return StepProfile(
        **ops.per_step(steps, calls),
        samples=sampler.samples,
        step_s=sampler.total_s / steps,
        kinds=dict(kinds),
        lines=tuple(lines[:_PROFILE_LINES]),
        python_functions_in_step=tuple(
            f"{line.function} ({line.file}:{line.line})" for line in lines if line.kind == "python_function"
        ),
    )


def call_step(bench: Bench, step: Step, batch: Any) -> None:
    """One step, to its end; the sampler knows this function by its name."""
    step(batch)
    if bench.synchronise is not None:
        bench.synchronise()


def _lines(sampler: StackSampler, steps: int) -> list[StackLine]:
    total = sampler.total_s or 1.0
    lines = [
        StackLine(
            file=file,
            line=number,
            function=function,
            kind=kind,
            share=min(weight / total, 1.0),
            steps_share=len(sampler.steps[file, number, function, kind]) / steps,
        )
        for (file, number, function, kind), weight in sampler.weights.items()
    ]
    return sorted(lines, key=lambda line: -line.share)


_STEPS: Final = 8
_PROFILED_S: Final = 1.5
_COMPILE_S: Final = 8.0  # Compiling a module again to read its text has to be cheaper than that
_LINES: Final = 16
_PLACEMENTS: Final = 24
_UNKNOWN: Final = 0.5  # Where more than this share of the time cannot be led back to ops, no phase is named


@dataclass(frozen=True)
class _Timed:
    """One op of a step: its place, the device, runs and seconds in one step; seconds are ``None`` where unknown."""

    place: OpPlace | None
    op: str
    device: str
    count: float
    time_s: float | None


def read_step_ops(bench: Bench, step: Step, batches: list[Any], window_s: float) -> StepOps:
    """Run the step a few times, on batches on which it has run before, and say what its ops are; where that fails, why.

    That takes ``window_s`` seconds, and one step of each run.
    """
    known = len(bench.watch.traces)
    try:
        return _read(bench, step, batches, window_s)
    except Exception as error:  # the step has been measured by now: nothing that fails here may take that away
        return StepOps(unmeasured={"phases": f"looking at the ops failed: {type(error).__name__}: {str(error)[:200]}"})
    finally:
        del bench.watch.traces[known:]  # those that looking made are not the step's


def _read(bench: Bench, step: Step, batches: list[Any], window_s: float) -> StepOps:
    eager = EagerOps()
    taken_s, between_s = _watched(bench, step, batches, window_s / 2, eager)
    steps = len(eager.steps)
    unmeasured: dict[str, str] = {}
    ops = _of_python(eager.steps)
    launched = sum(len(own) for own in eager.steps) / steps
    how = ["ops launched from Python, each with its stack"] if launched else []
    cached = ((name, getattr(function, "_cached_graph", None)) for name, function in eager.functions.items())
    graphs = {name: GraphOps(graph) for name, graph in cached if graph}
    if eager.functions:
        how.append("ops inside tf.functions, by TensorFlow's profiler and the stacks that traced them")
        inside = _of_functions(bench, step, batches, eager, graphs, (window_s / 2, taken_s), unmeasured)
        if ops and any(op.time_s is None for op in inside):  # what was launched from Python has its times still
            unmeasured["functions"] = unmeasured.pop("phases", "their ops were not timed")
            inside = []
        ops += inside
    if not ops:
        return StepOps(unmeasured={"phases": "the step runs no op of TensorFlow's"})
    short = None  # ops of the functions that were not seen: at most, since TensorFlow folds some away
    if eager.functions and not eager.compiled:  # XLA's are other ops
        inside_count = sum(len(list(graph.computing())) for graph in graphs.values())
        seen = sum(op.count for op in ops if op.time_s is not None) - launched
        short = max(round(inside_count - seen), 0)
    if launched <= 1:
        unmeasured["between_ops_s"] = "the step is not launched op by op"
    found = _summed(ops, " and ".join(how), between_s if launched > 1 else None, unmeasured)
    counted = (found.ops or 0) + (short or 0) if found.op_time_s else found.ops
    return found.model_copy(update={"short_ops": short, "ops": counted})


def _watched(bench: Bench, step: Step, batches: list[Any], window_s: float, eager: EagerOps) -> tuple[float, float]:
    """Run some steps with ``eager`` looking; seconds per step, and those outside ops and called functions."""
    began, total_s = time.perf_counter(), 0.0
    with eager:
        while not eager.steps or (len(eager.steps) < _STEPS and time.perf_counter() - began < window_s):
            batch = batches[len(eager.steps) % len(batches)]
            eager.begin_step()
            started = time.perf_counter()
            call_step(bench, step, batch)
            total_s += time.perf_counter() - started
    return total_s / len(eager.steps), max(total_s - eager.inside_s, 0.0) / len(eager.steps)


def _of_python(steps: list[list[EagerOp]]) -> list[_Timed]:
    found = []
    for ops in steps:
        stacks = [op.frames for op in ops]
        phases = in_order([(own_phase(stack), writes(op.op)) for op, stack in zip(ops, stacks, strict=True)])
        for op, stack, phase in zip(ops, stacks, phases, strict=True):
            place = OpPlace(op.op, op.op, phase, user_frame(stack), "", op.dtypes, in_layer(stack))
            found.append(_Timed(place, op.op, short_device(op.device), 1 / len(steps), op.time_s / len(steps)))
    return found


def _of_functions(
    bench: Bench,
    step: Step,
    batches: list[Any],
    eager: EagerOps,
    graphs: dict[str, GraphOps],
    pace: tuple[float, float],
    unmeasured: dict[str, str],
) -> list[_Timed]:
    """Ops inside the traced functions; without a time where that could not be had, with the reason.

    ``pace`` is the seconds that they may take, and those of a step.
    """
    window_s, step_s = pace
    number = max(1, min(_STEPS, int(min(window_s, _PROFILED_S) / max(step_s, 1e-4))))
    with OpTrace() as trace:
        for index in range(number):
            call_step(bench, step, batches[index % len(batches)])
    times = trace.times()
    if trace.reason or not times:
        unmeasured["phases"] = trace.reason or "every op of the step is too short for TensorFlow's profiler"
        return _untimed(graphs.values())
    names, why_not = _instructions(bench, eager) if any(time.instruction for time in times) else ({}, None)
    placed = devices_of(step, batches[0]) if tf.config.list_physical_devices("GPU") else {}
    found = [_one(time, graphs, names, placed, number) for time in times]
    found = [timed for timed in found if timed.op not in CALLS]  # XLA's loops wait for what is in them
    if placed or any(time.device.startswith("GPU") for time in times):
        found = _without_launches(found)
    lost_s = sum(timed.time_s or 0.0 for timed in found if timed.place is None)
    if lost_s > _UNKNOWN * sum(timed.time_s or 0.0 for timed in found):
        could_not = "most of the time is in ops that could not be led back to the code that made them"
        unmeasured["phases"] = why_not or could_not
        return _untimed(graphs.values()) or found
    return found


def _one(
    time: OpTime, graphs: dict[str, GraphOps], names: dict[str, tuple[str, str]], placed: dict[str, str], steps: int
) -> _Timed:
    name, op = names.get(time.instruction_root, (time.name, time.op)) if time.instruction else (time.name, time.op)
    known = graphs.get(time.function)
    if time.instruction and time.name not in names and time.instruction_root not in names:
        place = None
    else:
        looked = [known] if known is not None else list(graphs.values())
        place = next((found for graph in looked if (found := graph.find(name)) is not None), None)
        if place is None and by_name(name):
            place = OpPlace(name, op, "backward")
    device = time.device if time.device.startswith("GPU") else placed.get(name, time.device)
    return _Timed(place, place.op if place else op or time.name, device, time.count / steps, time.time_s / steps)


def _without_launches(found: list[_Timed]) -> list[_Timed]:
    """Beside a GPU, an op of the GPU is seen twice: its launch on the host is left out where its kernel is there."""
    kernels_of = {timed.place.name for timed in found if timed.place and timed.device.startswith("GPU")}
    return [
        timed
        for timed in found
        if timed.device.startswith("GPU") or timed.place is None or timed.place.name not in kernels_of
    ]


def _untimed(graphs: Any) -> list[_Timed]:
    return [_Timed(place, place.op, "CPU:0", 1.0, None) for graph in graphs for place in graph.computing()]


def _instructions(bench: Bench, eager: EagerOps) -> tuple[dict[str, tuple[str, str]], str | None]:
    """XLA's instruction -> op, of the functions that the step called; and why it is not known, where it is not."""
    counted = bench.compilations.xla.read()
    per_compile_s = counted.compile_ns / max(counted.compiles, 1) / 1e9
    if per_compile_s > _COMPILE_S:
        return {}, f"XLA takes {per_compile_s:.0f} s for a module, too long to compile it again and read its text"
    if not eager.compiled:
        return {}, "XLA compiled a part of the step whose text cannot be read"
    found: dict[str, tuple[str, str]] = {}
    for function, args, kwargs in eager.compiled.values():
        try:
            found |= op_names(function.experimental_get_compiler_ir(*args, **kwargs)(stage="optimized_hlo"))
        except Exception as error:  # an experimental interface: whatever it cannot do is said, and nothing else lost
            return found, f"the text of XLA's module cannot be read: {type(error).__name__}"
    return found, None


def _summed(ops: list[_Timed], how: str, between_s: float | None, unmeasured: dict[str, str]) -> StepOps:
    total_s = sum(op.time_s or 0.0 for op in ops)
    timed = total_s > 0 and all(op.time_s is not None for op in ops)
    if not timed:
        unmeasured.setdefault("phases", "the ops of the step were not timed")

    def share(time_s: float | None) -> float | None:
        return time_s / total_s if timed and time_s is not None else None

    def summed(own: list[_Timed]) -> tuple[int, float | None]:
        """Runs of some ops in a step, and their share of its time."""
        return max(round(sum(op.count for op in own)), 1), share(sum(op.time_s or 0.0 for op in own))

    phases: dict[Phase, float] = defaultdict(float)
    lines: dict[tuple[str, int, str, Phase, str], list[_Timed]] = defaultdict(list)
    devices: dict[tuple[str, str, str], list[_Timed]] = defaultdict(list)
    gpus = len(tf.config.list_physical_devices("GPU"))
    for op in ops:
        phase: Phase = op.place.phase if op.place else "other"
        phases[phase] += share(op.time_s) or 0.0
        frame = op.place.frame if op.place else None
        where = (
            (frame.file, frame.line, frame.function) if frame else ("", 0, scope_of(op.place.name) if op.place else "")
        )
        lines[*where, phase, op.device].append(op)
        devices[op.op, op.device, _why(op, gpus)].append(op)
    by_line = [
        OpLine(file=file, line=number, function=function, phase=phase, device=device, ops=count, share=part)
        for (file, number, function, phase, device), own in lines.items()
        for count, part in [summed(own)]
    ]
    by_device = [
        Placement(op=op, device=device, why=reason, count=count, share=part)
        for (op, device, reason), own in devices.items()
        for count, part in [summed(own)]
    ]
    return StepOps(
        phases=dict(phases) if timed else {},
        how=how,
        op_time_s=total_s if timed else None,
        between_ops_s=between_s,
        lines=tuple(sorted(by_line, key=lambda line: (-(line.share or 0.0), -line.ops))[:_LINES]),
        placements=tuple(sorted(by_device, key=lambda one: (-(one.share or 0.0), -one.count))[:_PLACEMENTS]),
        ops=round(sum(op.count for op in ops)),
        keras_layers=any(op.place is not None and op.place.in_layer for op in ops),
        unmeasured=unmeasured,
    )


def _why(op: _Timed, gpus: int) -> str:
    """Why an op is on its device."""
    if not gpus:
        return NO_GPU
    registered = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op.op).kernel}
    requested, dtypes = (op.place.requested, op.place.dtypes) if op.place else ("", ())
    return why(op.device, requested, registered & {"CPU", "GPU"}, dtypes)
