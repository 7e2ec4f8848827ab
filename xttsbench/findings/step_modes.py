"""Rules about how the step is run: op by op, launch by launch, through XLA, at which precision, on which device."""

from __future__ import annotations

from typing import Final

from xttsbench.analysis.attribution import THRESHOLD
from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.step import heaviest_line, place_of, whole_step
from xttsbench.findings.rule import Findings, rule
from xttsbench.fixes.spec import WORTH
from xttsbench.records.base import Location
from xttsbench.records.trial import HALF_BATCH, PRECISIONS


@rule(
    "eager-step",
    evidence="eager ops and calls of tf.functions a step, seconds to launch an op, and what became of the step as "
    "one graph",
    threshold="10 ops or calls a step; a bottleneck where launching is the verdict, or takes 10 % of the step",
    remedy="Decorate the step with @tf.function (for Keras: compile(run_eagerly=False)).",
    false_alarms="ops that run for long hide their launch; then it is no bottleneck",
)
def eager_step(evidence: Evidence) -> Findings:
    """The step dispatches its ops one by one from Python."""
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
        location=place_of(line),
        predicted_speedup=whole_step(evidence, graph.speedup if graph else None)
        or (evidence.max_speedups.get("dispatch") if limiting else None),
    )


_FLAT: Final = 0.85
"""A step that takes this share of its time for half the batch does not follow the size of its batch."""
_SHORT_S: Final = 3e-6
"""At most what an op took that was too short to be timed."""
_SMALL_OPS: Final = 2.0
"""An op that runs for less than Python takes to launch so many is small: its launch is a good part of it."""


@rule(
    "launch-bound",
    evidence="seconds to hand over a batch, time of half a batch relative to a whole one, mean time of an op",
    threshold="launching is the verdict, or takes 10 %; or half a batch takes 85 % of the time with ops of under "
    "two launches each",
    remedy="Larger batches, or several steps in one call: iterate inside the tf.function, or steps_per_execution.",
    false_alarms="on a processor, starting ops may be all that there is to gain, and XLA the better remedy",
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
    if evidence.limits("dispatch"):
        yield launch_bound.finding(
            f"handing over a batch is {evidence.share('dispatch'):.0%} of a step that is compiled already",
            numbers,
            severity="warning",
            limiting=True,
            predicted_speedup=evidence.max_speedups.get("dispatch"),
        )
    elif flat and small and ratio is not None:
        on_gpu = bool(evidence.devices and evidence.devices.gpus)
        yield launch_bound.finding(
            f"half a batch takes {ratio:.0%} of the time of a whole one: "
            + ("the kernels are too small for the GPU" if on_gpu else "starting the ops costs more than their work"),
            numbers,
            None
            if on_gpu
            else launch_bound.remedy
            + " On this CPU it is what TensorFlow spends between ops; XLA fuses them, where it was faster.",
            severity="warning" if evidence.bottleneck == "compute" else "info",
            limiting=evidence.bottleneck == "compute" and evidence.share("compute") >= 0.5,
        )


def _mean_op_s(evidence: Evidence) -> float | None:
    """Mean time of an op; of those that were too short to be timed, at most."""
    ops = evidence.step_ops
    if ops is None or not ops.ops or (ops.op_time_s is None and not ops.short_ops):
        return None
    return ((ops.op_time_s or 0.0) + (ops.short_ops or 0) * _SHORT_S) / ops.ops


@rule(
    "xla-untried",
    evidence="speed of the step alone, and seconds of the first compilation",
    threshold="5 % faster at the low end of the interval; never a bottleneck",
    remedy="tf.function(jit_compile=True), with fixed shapes; weigh the compilation of each shape.",
    false_alarms="shapes that were not measured compile anew",
)
def xla_untried(evidence: Evidence) -> Findings:
    """XLA makes the step faster, measured beside the original step."""
    tried = evidence.modes.get("xla")
    if tried is None or tried.speedup is None or evidence.given_mode != "graph" or tried.speedup.low <= WORTH:
        return
    yield xla_untried.finding(
        f"XLA runs the step {tried.speedup.estimate:.2f} times as fast",
        {"step_speedup": tried.speedup.estimate, "first_compilation_s": tried.compile_s},
        severity="warning" if tried.speedup.estimate > 1.2 else "info",
        predicted_speedup=whole_step(evidence, tried.speedup),
    )


@rule(
    "xla-slower",
    evidence="speed of the step alone, and seconds of the first compilation",
    threshold="5 % slower at the high end of the interval; never a bottleneck",
    remedy="Leave XLA off for this step on this device.",
    false_alarms="none known",
)
def xla_slower(evidence: Evidence) -> Findings:
    """XLA makes the step slower, measured beside the original step: if it were used, or as it is used."""
    through_xla, graph = evidence.modes.get("xla"), evidence.modes.get("graph")
    speedup = through_xla.speedup if through_xla is not None and evidence.given_mode == "graph" else None
    if through_xla is not None and speedup is not None and speedup.high < 1 / WORTH:
        yield xla_slower.finding(
            f"XLA would slow the step down, to {speedup.estimate:.2f} of its speed",
            {"step_speedup": speedup.estimate, "first_compilation_s": through_xla.compile_s},
        )
    if evidence.given_mode == "xla" and graph is not None and graph.speedup is not None and graph.speedup.low > WORTH:
        yield xla_slower.finding(
            f"without XLA the step runs {graph.speedup.estimate:.2f} times as fast",
            {"step_speedup_without_xla": graph.speedup.estimate},
            "Drop jit_compile=True for this step on this device.",
            severity="warning",
            predicted_speedup=whole_step(evidence, graph.speedup),
        )


_SAID: Final = {
    "mixed_bfloat16": "mixed precision (bfloat16)",
    "mixed_float16": "mixed precision (float16)",
    "tf32": "TensorFloat-32",
    "no-tf32": "float32 without TensorFloat-32",
}
_DONE_BY: Final = {
    "mixed_bfloat16": 'keras.mixed_precision.set_global_policy("mixed_bfloat16") before the model is built',
    "mixed_float16": 'keras.mixed_precision.set_global_policy("mixed_float16") before the model is built, '
    "with loss scaling",
    "tf32": "tf.config.experimental.enable_tensor_float_32_execution(True)",
    "no-tf32": "tf.config.experimental.enable_tensor_float_32_execution(False)",
}


@rule(
    "precision",
    evidence="which precision, whether it helps, and the speed of the step alone",
    threshold="5 % beyond the interval in either direction; never a bottleneck",
    remedy="Set the policy before the model is built, and compare the losses before it is kept.",
    false_alarms="speed says nothing of what it does to the losses",
)
def precision(evidence: Evidence) -> Findings:
    """Mixed precision or TensorFloat-32 makes the step faster or slower, measured where it follows Keras's policy."""
    for name in PRECISIONS:
        tried = evidence.modes.get(name)
        if tried is None or tried.speedup is None:
            continue
        speedup = tried.speedup
        helps = speedup.low > WORTH
        if not helps and speedup.high >= 1 / WORTH:
            continue
        yield precision.finding(
            f"{_SAID[name]} runs the step {speedup.estimate:.2f} times as fast"
            if helps
            else f"{_SAID[name]} would slow the step down, to {speedup.estimate:.2f} of its speed",
            {"precision": name, "helps": helps, "step_speedup": speedup.estimate},
            f"{_DONE_BY[name]}; compare the losses before it is kept."
            if helps
            else "Keep the precision that the step has on this device.",
            severity="warning" if helps and speedup.estimate > 1.2 else "info",
            predicted_speedup=whole_step(evidence, speedup) if helps else None,
        )


_NAMED_FROM: Final = 0.02
"""Share of the time of the step's ops from which those on the CPU are named."""
_ASKED: Final = "asked for"


@rule(
    "cpu-placement",
    evidence="their share of the time of all ops, the heaviest of them, how many, and why",
    threshold="2 % of the time of the step's ops, or asked for by tf.device; a bottleneck from 10 % where the step "
    "computes",
    remedy="Use an op with a kernel for the GPU, or move the work into the input pipeline.",
    false_alarms="ops on shapes and small integers belong on the CPU",
)
def cpu_placement(evidence: Evidence) -> Findings:
    """Ops of the step on the CPU while a GPU is there, with the reason that TensorFlow had."""
    ops = evidence.step_ops
    if ops is None or evidence.devices is None or not evidence.devices.gpus:
        return
    on_cpu = [placed for placed in ops.placements if placed.device.startswith("CPU")]
    share = sum(placed.share or 0.0 for placed in on_cpu)
    asked = [placed for placed in on_cpu if placed.why.startswith(_ASKED)]
    if share < _NAMED_FROM and not (asked and all(placed.share is None for placed in asked)):
        return
    heaviest = max(asked or on_cpu, key=lambda placed: (placed.share or 0.0, placed.count))
    line = next((line for line in ops.lines if line.device.startswith("CPU") and line.file), None)
    limiting = evidence.bottleneck == "compute" and share >= THRESHOLD
    yield cpu_placement.finding(
        f"{sum(placed.count for placed in on_cpu)} ops of the step run on the CPU beside the GPU "
        f"({share:.0%} of the time of all ops)",
        {
            "share_of_op_time": share if any(placed.share is not None for placed in on_cpu) else None,
            "op": heaviest.op,
            "count": heaviest.count,
            "why": heaviest.why,
        },
        "Take the tf.device away."
        if asked
        else "Use an op with a kernel for the GPU, or move the work into the input pipeline.",
        severity="warning" if limiting or share >= THRESHOLD else "info",
        limiting=limiting,
        location=Location(file=line.file, line=line.line, op=heaviest.op) if line else Location(op=heaviest.op),
    )
