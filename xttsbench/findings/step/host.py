"""Rules about the training step: how it is dispatched, and what the host does in between.

What tracing again costs is in :mod:`xttsbench.findings.step.shapes`, other modes and precision in
:mod:`xttsbench.findings.step.modes`, devices in :mod:`xttsbench.findings.step.cpu_placement`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.lines import heaviest_line, place_of, whole_step
from xttsbench.findings.step import cpu_placement as step_placement
from xttsbench.findings.step import modes as step_modes
from xttsbench.findings.step import shapes as step_shapes
from xttsbench.records.conditions import HALF_BATCH
from xttsbench.records.report import Finding

_HOST_KINDS: Final = ("python", "io", "sync")
_COLLECTING: Final = 0.5
"""Share of the host's work from which Python's garbage collection is named as what it is."""
_OTHERWISE: Final = "Do it less often, or in a thread beside the training, or after the epoch."
_REMEDIES: Final = {
    "collects": "Call gc.freeze() once the model is built, keep fewer objects alive from step to step, and do not call "
    "gc.collect() in the loop.",
    "io": "Save less often, or beside the training (an asynchronous checkpoint: tf.train.CheckpointOptions); "
    "call clear_session between trainings, not in one.",
    "sync": "Keep metrics on the device, and fetch them less often.",
    "python": _OTHERWISE,
    "": _OTHERWISE,
}
_FLAT: Final = 0.85
"""A step that takes this share of its time for half the batch does not follow the size of its batch."""
_SHORT_S: Final = 3e-6
"""At most what an op took that was too short to be timed."""
_SMALL_OPS: Final = 2.0
"""An op that runs for less than Python takes to launch so many is small: its launch is a good part of it."""


def eager_step(evidence: Evidence) -> Iterator[Finding]:
    """The step dispatches op by op from Python."""
    anatomy = evidence.anatomy
    if anatomy is None or not evidence.facts.eager:
        return
    limiting = evidence.limits("dispatch")
    graph = evidence.modes.get("graph")
    line = heaviest_line(evidence, ("tensorflow",))
    yield Finding(
        rule="eager-step",
        severity="critical" if limiting else "info",
        limiting=limiting,
        title=f"the step runs op by op from Python ({anatomy.eager_ops_per_step:.0f} ops a step)",
        location=place_of(line),
        evidence={
            "eager_ops_per_step": anatomy.eager_ops_per_step,
            "op_launch_s": anatomy.op_floor_s,
            "function_calls_per_step": anatomy.function_calls_per_step,
            "graph_mode": graph.status if graph else "not run",
            "host_reads_removed_to_trace": graph.fetches_removed if graph else None,
        },
        remedy="Decorate the step with @tf.function (for Keras: compile(run_eagerly=False)).",
        predicted_speedup=whole_step(evidence, graph.speedup if graph else None)
        or (evidence.ceilings.get("dispatch") if limiting else None),
    )


def launch_bound(evidence: Evidence) -> Iterator[Finding]:
    """A compiled step whose time goes to handing over batches, or to launching ops too small to fill the device."""
    if evidence.facts.eager or evidence.facts.opaque:
        return
    half = evidence.modes.get(HALF_BATCH)
    ratio = 1.0 / half.speedup.estimate if half is not None and half.speedup is not None else None
    flat = half is not None and half.speedup is not None and 1.0 / half.speedup.high >= _FLAT
    op_s = _mean_op_s(evidence)
    floor_s = evidence.anatomy.op_floor_s if evidence.anatomy is not None else None
    small = op_s is not None and floor_s is not None and op_s <= _SMALL_OPS * floor_s
    numbers = {
        "handoff_s": evidence.facts.handoff_s,
        "step_s": evidence.wall_s,
        "time_of_half_a_batch": ratio,
        "mean_op_s": op_s,
    }
    remedy = "Larger batches, or several steps in one call: iterate inside the tf.function, or steps_per_execution."
    if evidence.limits("dispatch"):
        yield Finding(
            rule="launch-bound",
            severity="warning",
            limiting=True,
            title=f"handing over a batch is {evidence.share('dispatch'):.0%} of a step that is compiled already",
            evidence=numbers,
            remedy=remedy,
            predicted_speedup=evidence.ceilings.get("dispatch"),
        )
    elif flat and small and ratio is not None:
        on_gpu = bool(evidence.devices and evidence.devices.gpus)
        yield Finding(
            rule="launch-bound",
            severity="warning" if evidence.bottleneck == "compute" else "info",
            limiting=evidence.bottleneck == "compute" and evidence.share("compute") >= 0.5,
            title=f"half a batch takes {ratio:.0%} of the time of a whole one: "
            + ("the kernels are too small for the GPU" if on_gpu else "starting the ops costs more than their work"),
            evidence=numbers,
            remedy=remedy
            if on_gpu
            else remedy + " On this CPU it is what TensorFlow spends between ops; XLA fuses them, where it was faster.",
        )


def _mean_op_s(evidence: Evidence) -> float | None:
    """Mean time of an op; of those that were too short to be timed, at most."""
    ops = evidence.step_ops
    if ops is None or not ops.ops or (ops.op_time_s is None and not ops.short_ops):
        return None
    return ((ops.op_time_s or 0.0) + (ops.short_ops or 0) * _SHORT_S) / ops.ops


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
        location=place_of(heaviest_line(evidence, ("sync",))),
        evidence={"fetches_per_step": per_step, "fetch_s_per_step": cost_s, "share": share, "gpu": on_gpu},
        remedy="Keep metrics on the device and fetch them every hundred steps."
        + ("" if on_gpu else " On this CPU it costs next to nothing; on a GPU each fetch waits for the step to end."),
    )


def host_stall(evidence: Evidence) -> Iterator[Finding]:
    """Work of the host between the device's steps: logging, checkpoints, figures, garbage collection."""
    if not evidence.limits("host"):
        return
    line = heaviest_line(evidence, _HOST_KINDS, rarest=evidence.facts.opaque)
    period = evidence.oscillation
    collecting_s = float(evidence.steps.gc_s.mean()) if evidence.steps is not None and len(evidence.steps) else None
    collects = collecting_s is not None and collecting_s >= _COLLECTING * evidence.parts.get("host", 0.0)
    numbers: dict[str, float | int | str | bool | None] = {
        "host_s_per_step": evidence.parts.get("host"),
        "share": evidence.share("host"),
        "line_share": line.share if line else None,
        "in_share_of_steps": line.steps_share if line else None,
        "kind": line.kind if line else None,
        "period_steps": period.period_steps,
        "gc_s_per_step": collecting_s,
    }
    how_often = ""
    if line is not None and line.steps_share < 0.5:
        how_often = f", about every {1 / max(line.steps_share, 1e-6):.0f} steps"
    elif period.period_steps is not None and not evidence.length_has_the_period:
        how_often = f", about every {period.period_steps:.0f} steps"
    what = "collects garbage" if collects else "works"
    yield Finding(
        rule="host-stall",
        severity="critical",
        limiting=True,
        title=f"the host {what} {evidence.share('host'):.0%} of the step outside the device's work{how_often}",
        location=place_of(None if collects and line is None else line),
        evidence=numbers,
        remedy=_REMEDIES["collects" if collects else line.kind if line else ""],
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
        location=place_of(heaviest_line(evidence, ("python_function",))),
        evidence={"share_of_step": share, "functions": len(anatomy.python_functions_in_step)},
        remedy="Write it in TensorFlow ops, or move it into the input pipeline.",
    )


RULES: Final = (
    eager_step,
    launch_bound,
    *step_shapes.RULES,
    *step_modes.RULES,
    *step_placement.RULES,
    host_sync,
    host_stall,
    python_function_in_step,
)
