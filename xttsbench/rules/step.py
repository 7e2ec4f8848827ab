"""Rules about the training step: how it is dispatched, traced, compiled, and what the host does in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from xttsbench.records.base import Estimate, Location
from xttsbench.records.report import Finding
from xttsbench.records.trial import StackLine
from xttsbench.rules.evidence import Evidence

_FASTER: Final = 1.05
_SLOWER: Final = 0.95
_HOST_KINDS: Final = ("python", "io", "sync")


def eager_step(evidence: Evidence) -> Iterator[Finding]:
    """The step dispatches op by op from Python."""
    anatomy = evidence.anatomy
    if anatomy is None or not evidence.facts.eager:
        return
    limiting = evidence.limits("dispatch")
    graph = evidence.modes.get("graph")
    line = _heaviest(evidence, ("tensorflow",))
    yield Finding(
        rule="eager-step",
        severity="critical" if limiting else "info",
        limiting=limiting,
        title=f"the step runs op by op from Python ({anatomy.eager_ops_per_step:.0f} ops a step)",
        location=_place(line),
        evidence={
            "eager_ops_per_step": anatomy.eager_ops_per_step,
            "op_launch_s": anatomy.op_floor_s,
            "function_calls_per_step": anatomy.function_calls_per_step,
            "graph_mode": graph.status if graph else "not run",
            "host_reads_removed_to_trace": graph.fetches_removed if graph else None,
        },
        remedy="Decorate the step with @tf.function (for Keras: compile(run_eagerly=False)).",
        predicted_speedup=_whole_step(evidence, graph.speedup if graph else None)
        or (evidence.ceilings.get("dispatch") if limiting else None),
    )


def launch_bound(evidence: Evidence) -> Iterator[Finding]:
    """A compiled step so short that handing over batches and launching its calls is a good part of it."""
    if evidence.facts.eager or not evidence.limits("dispatch"):
        return
    yield Finding(
        rule="launch-bound",
        severity="warning",
        limiting=True,
        title=f"handing over a batch is {evidence.share('dispatch'):.0%} of a step that is compiled already",
        evidence={"handoff_s": evidence.facts.handoff_s, "step_s": evidence.wall_s},
        remedy="Larger batches, or several steps in one call: iterate inside the tf.function, or steps_per_execution.",
        predicted_speedup=evidence.ceilings.get("dispatch"),
    )


def retracing(evidence: Evidence) -> Iterator[Finding]:
    """A tf.function that is traced again and again, and why."""
    steps = evidence.steps
    if steps is None or int(steps.traces.sum()) == 0:
        return
    again = [trace for trace in evidence.traces if trace.reason != "first"]
    if not again:
        return
    reason, times = Counter(trace.reason for trace in again).most_common(1)[0]
    example = next(trace for trace in again if trace.reason == reason)
    limiting = evidence.limits("compile")
    remedies = {
        "new function object": "Make the tf.function once, outside of the loop.",
        "shape": "Fix the shapes (buckets), or relax them with input_signature or reduce_retracing=True.",
        "python value": "Pass Python numbers as tensors, or keep them out of the arguments.",
        "other": "See the signatures of the traces; make arguments alike from call to call.",
    }
    yield Finding(
        rule="retracing",
        severity="critical" if limiting else "warning",
        limiting=limiting,
        title=f"{example.function} is traced again after the first step: {reason}",
        location=_place(_heaviest(evidence, ("function", "tensorflow"))),
        evidence={
            "traces_in_steady_state": int(steps.traces.sum()),
            "steps": len(steps),
            "reason": reason,
            "traces_with_this_reason": times,
            "trace_time_s": sum(trace.time_s for trace in again) / len(again),
            "signature": example.signature,
        },
        remedy=remedies[reason],
        predicted_speedup=evidence.ceilings.get("compile") if limiting else None,
    )


def xla_recompilation(evidence: Evidence) -> Iterator[Finding]:
    """XLA compiles again in the steady state, most often for each new shape, while the trace count stays low."""
    steps = evidence.steps
    if steps is None or int(steps.compiles.sum()) == 0:
        return
    compiles = int(steps.compiles.sum())
    shapes = {int(shape) for shape, count in zip(steps.shape_id, steps.compiles, strict=True) if count}
    limiting = evidence.limits("compile")
    yield Finding(
        rule="xla-recompilation",
        severity="critical" if limiting else "warning",
        limiting=limiting,
        title=f"XLA compiled {compiles} times in {len(steps)} steady steps",
        location=_place(_heaviest(evidence, ("function", "tensorflow"))),
        evidence={
            "compiles": compiles,
            "steps": len(steps),
            "traces_in_the_same_steps": int(steps.traces.sum()),
            "shapes_compiled": len(shapes),
            "compile_s_per_compile": float(steps.compile_s[steps.compiles > 0].sum()) / compiles,
        },
        remedy="Give XLA few fixed shapes (buckets, drop_remainder=True) and compile each before training.",
        predicted_speedup=evidence.ceilings.get("compile") if limiting else None,
    )


def xla(evidence: Evidence) -> Iterator[Finding]:
    """XLA helps or hurts here, measured beside the step as given."""
    through_xla, graph = evidence.modes.get("xla"), evidence.modes.get("graph")
    if through_xla is not None and through_xla.speedup is not None and evidence.given_mode == "graph":
        speedup = through_xla.speedup
        if speedup.low > _FASTER:
            yield Finding(
                rule="xla-untried",
                severity="warning" if speedup.estimate > 1.2 else "info",
                limiting=False,
                title=f"XLA runs the step {speedup.estimate:.2f} times as fast",
                evidence={"step_speedup": speedup.estimate, "first_compilation_s": through_xla.compile_s},
                remedy="tf.function(jit_compile=True), with fixed shapes; weigh the compilation of each shape.",
                predicted_speedup=_whole_step(evidence, speedup),
            )
        elif speedup.high < _SLOWER:
            yield Finding(
                rule="xla-slower",
                severity="info",
                limiting=False,
                title=f"XLA would slow the step down, to {speedup.estimate:.2f} of its speed",
                evidence={"step_speedup": speedup.estimate, "first_compilation_s": through_xla.compile_s},
                remedy="Leave XLA off for this step on this device.",
            )
    if evidence.given_mode == "xla" and graph is not None and graph.speedup is not None and graph.speedup.low > _FASTER:
        yield Finding(
            rule="xla-slower",
            severity="warning",
            limiting=False,
            title=f"without XLA the step runs {graph.speedup.estimate:.2f} times as fast",
            evidence={"step_speedup_without_xla": graph.speedup.estimate},
            remedy="Drop jit_compile=True for this step on this device.",
            predicted_speedup=_whole_step(evidence, graph.speedup),
        )


def host_sync(evidence: Evidence) -> Iterator[Finding]:
    """Values of the device are fetched to Python in every step."""
    steps = evidence.steps
    if steps is None or len(steps) == 0 or steps.syncs.mean() < 0.5 or not evidence.has_step:
        return
    per_step, cost_s = float(steps.syncs.mean()), float(steps.sync_s.mean())
    on_gpu = bool(evidence.devices and evidence.devices.gpus)
    share = cost_s / evidence.wall_s if evidence.wall_s else 0.0
    limiting = evidence.limits("host") and share >= 0.10
    yield Finding(
        rule="host-sync",
        severity="warning" if on_gpu or limiting else "info",
        limiting=limiting,
        title=f"{per_step:.1f} values a step are fetched from the device",
        location=_place(_heaviest(evidence, ("sync",))),
        evidence={"fetches_per_step": per_step, "fetch_s_per_step": cost_s, "share": share, "gpu": on_gpu},
        remedy="Keep metrics on the device and fetch them every hundred steps."
        + ("" if on_gpu else " On this CPU it costs next to nothing; on a GPU each fetch waits for the step to end."),
    )


def host_stall(evidence: Evidence) -> Iterator[Finding]:
    """Work of the host between the device's steps: logging, checkpoints, figures, garbage collection."""
    if not evidence.limits("host"):
        return
    line = _heaviest(evidence, _HOST_KINDS, rarest=evidence.facts.opaque)
    period = evidence.oscillation
    numbers: dict[str, float | int | str | bool | None] = {
        "host_s_per_step": evidence.parts.get("host"),
        "share": evidence.share("host"),
        "line_share": line.share if line else None,
        "in_share_of_steps": line.steps_share if line else None,
        "kind": line.kind if line else None,
        "period_steps": period.period_steps,
        "gc_s_per_step": float(evidence.steps.gc_s.mean()) if evidence.steps is not None else None,
    }
    how_often = ""
    if line is not None and line.steps_share < 0.5:
        how_often = f", about every {1 / max(line.steps_share, 1e-6):.0f} steps"
    yield Finding(
        rule="host-stall",
        severity="critical",
        limiting=True,
        title=f"the host works {evidence.share('host'):.0%} of the step outside the device's work{how_often}",
        location=_place(line),
        evidence=numbers,
        remedy="Do it less often, or in a thread beside the training, or after the epoch.",
        predicted_speedup=evidence.ceilings.get("host"),
    )


def python_function_in_step(evidence: Evidence) -> Iterator[Finding]:
    """A Python function inside the compiled step: it runs on the host and holds the interpreter lock."""
    anatomy = evidence.anatomy
    if anatomy is None or not anatomy.python_functions_in_step:
        return
    share = anatomy.kinds.get("python_function", 0.0)
    yield Finding(
        rule="python-function-in-step",
        severity="warning" if share >= 0.10 else "info",
        limiting=share >= 0.10 and evidence.bottleneck == "compute",
        title=f"the step calls Python from inside its graph: {anatomy.python_functions_in_step[0]}",
        location=_place(_heaviest(evidence, ("python_function",))),
        evidence={"share_of_step": share, "functions": len(anatomy.python_functions_in_step)},
        remedy="Write it in TensorFlow ops, or move it into the input pipeline.",
    )


RULES: Final = (
    eager_step,
    launch_bound,
    retracing,
    xla_recompilation,
    xla,
    host_sync,
    host_stall,
    python_function_in_step,
)


def _heaviest(evidence: Evidence, kinds: tuple[str, ...], *, rarest: bool = False) -> StackLine | None:
    """The user's line with most time in these kinds; ``rarest`` prefers, among heavy ones, what fewest steps reach."""
    lines = [line for line in (evidence.anatomy.lines if evidence.anatomy else ()) if line.kind in kinds and line.file]
    if rarest:
        lines = sorted((line for line in lines if line.share >= 0.05), key=lambda line: line.steps_share)
    return lines[0] if lines else None


def _place(line: StackLine | None) -> Location:
    return Location(file=line.file, line=line.line) if line is not None else Location()


def _whole_step(evidence: Evidence, speedup: Estimate | None) -> Estimate | None:
    """The speed-up of the whole step where only its own work gets faster, by Amdahl's law."""
    if speedup is None or not evidence.wall_s:
        return None
    inside = sum(evidence.share(part) for part in ("compute", "dispatch"))  # the modes leave the host's work out

    def whole(ratio: float) -> float:
        return 1.0 / max(1.0 - inside + inside / max(ratio, 1e-9), 1e-9)

    return Estimate(estimate=whole(speedup.estimate), low=whole(speedup.low), high=whole(speedup.high))
