"""The rules on starting the step's ops: `eager-step`, one by one from Python, and `launch-bound`, in a graph."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence import Evidence
from xttsbench.evidence.step import heaviest_line, place_in_step, place_of, whole_step, why_not_several
from xttsbench.findings.rule import Findings, rule
from xttsbench.records.trial import HALF_BATCH


@rule(
    "eager-step",
    threshold="10 eager ops and calls of tf.functions a step, both together; a bottleneck where launch overhead is the "
    "verdict, or takes 10 % of the step",
    remedy="Decorate the step with @tf.function (for Keras: compile(run_eagerly=False)).",
    false_alarms="ops that run for long hide their launch; launching is no bottleneck then",
)
def eager_step(evidence: Evidence) -> Findings:
    """A step that launches its ops one by one from Python."""
    anatomy = evidence.anatomy
    if anatomy is None or not evidence.facts.eager:
        return
    limiting = evidence.limits("dispatch")
    graph = evidence.modes.get("graph")
    line = heaviest_line(evidence, ("tensorflow",))
    yield eager_step.finding(
        f"the step runs op by op from Python ({anatomy.eager_ops_per_step:.0f} ops a step)",
        {
            "eager_ops_per_step": anatomy.eager_ops_per_step,
            "op_launch_s": anatomy.op_floor_s,
            "function_calls_per_step": anatomy.function_calls_per_step,
            "graph_mode": graph.status if graph else "not run",
            "host_reads_removed_to_trace": graph.fetches_removed if graph else None,
        },
        severity="critical" if limiting else "info",
        limiting=limiting,
        at=place_of(line),
        predicted_speedup=whole_step(evidence, graph.speedup if graph else None)
        or (evidence.max_speedups.get("dispatch") if limiting else None),
    )


_FLAT: Final = 0.85  # A step that takes this share of its time for half the batch does not follow the size of its batch
_SHORT_S: Final = 3e-6  # At most what an op took that was too short to be timed
_SMALL_OPS: Final = 2.0
"""An op that runs for less than Python takes to launch so many is small: its launch is a good part of it."""


@rule(
    "launch-bound",
    threshold="launch overhead is the verdict or takes 10 % of a compiled step; or half a batch takes 85 % of the "
    "time of a whole one and ops are short, which is a bottleneck only where the verdict is compute",
    remedy="Larger batches, or several steps in one call: iterate inside the tf.function, or steps_per_execution.",
    false_alarms="on a CPU, where XLA may be the better remedy: it fuses the ops",
)
def launch_bound(evidence: Evidence) -> Findings:
    """A compiled step whose time goes to handing over batches, or to ops too small to fill the device."""
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
    refused = why_not_several(evidence)
    remedy = f"Larger batches. {refused}." if refused else launch_bound.remedy
    if evidence.limits("dispatch"):
        yield launch_bound.finding(
            f"handing over a batch is {evidence.share('dispatch'):.0%} of a step that is compiled already",
            numbers,
            remedy,
            severity="warning",
            limiting=True,
            at=place_in_step(evidence),
            predicted_speedup=evidence.max_speedups.get("dispatch"),
        )
    elif flat and small and ratio is not None:
        on_cpu = "starting the ops costs more than their work"
        why = "the kernels are too small for the GPU" if evidence.on_gpu else on_cpu
        yield launch_bound.finding(
            f"half a batch takes {ratio:.0%} of the time of a whole one: {why}",
            numbers,
            remedy
            if evidence.on_gpu
            else f"{remedy} On this CPU it is what TensorFlow spends between ops; XLA fuses them, where it was faster.",
            severity="warning" if evidence.bottleneck == "compute" else "info",
            limiting=evidence.bottleneck == "compute" and evidence.share("compute") >= 0.5,
        )


def _mean_op_s(evidence: Evidence) -> float | None:
    """Mean time of an op; of those that were too short to be timed, at most."""
    ops = evidence.step_ops
    if ops is None or not ops.ops or (ops.op_time_s is None and not ops.short_ops):
        return None
    return ((ops.op_time_s or 0.0) + (ops.short_ops or 0) * _SHORT_S) / ops.ops
