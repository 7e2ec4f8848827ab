"""The rules on how the step computes: `xla-untried`, `xla-slower`, `precision`, `cpu-placement`."""

from __future__ import annotations

from typing import Final

from xttsbench.analysis.attribution import THRESHOLD
from xttsbench.evidence import Evidence
from xttsbench.evidence.step import whole_step
from xttsbench.findings.rule import Findings, rule
from xttsbench.fixes.spec import WORTH
from xttsbench.records.base import Location
from xttsbench.records.trial import PRECISIONS


@rule(
    "xla-untried",
    threshold="a step that runs as a graph is 5 % faster by XLA at the low end of the interval; never a bottleneck",
    remedy="tf.function(jit_compile=True), with fixed shapes; weigh the compilation of each shape.",
    false_alarms="each shape that was not measured is compiled as well",
)
def xla_untried(evidence: Evidence) -> Findings:
    """XLA makes the step faster, measured beside the original step."""
    tried = evidence.modes.get("xla")
    if tried is None or tried.speedup is None or evidence.given_mode != "graph" or tried.speedup.low <= WORTH:
        return
    yield xla_untried.finding(
        f"XLA runs the step alone {tried.speedup.estimate:.2f} times as fast",
        {"step_speedup": tried.speedup.estimate, "first_compilation_s": tried.compile_s},
        severity="warning" if tried.speedup.estimate > 1.2 else "info",
        predicted_speedup=whole_step(evidence, tried.speedup),
    )


@rule(
    "xla-slower",
    threshold="a step that runs as a graph is 5 % slower by XLA at the high end of the interval or, of a step that XLA "
    "compiles, 5 % faster without it at the low end; never a bottleneck",
    remedy="Leave XLA off for this step on this device.",
    false_alarms="none known",
)
def xla_slower(evidence: Evidence) -> Findings:
    """XLA makes the step slower, or would, measured beside the original step."""
    other = evidence.modes.get({"graph": "xla", "xla": "graph"}.get(evidence.given_mode or "", ""))
    if other is None or (speedup := other.speedup) is None:
        return
    if evidence.given_mode == "graph" and speedup.high < 1 / WORTH:
        yield xla_slower.finding(
            f"with XLA the step alone would take {1 / speedup.estimate:.3g} times as long",
            {"step_speedup": speedup.estimate, "first_compilation_s": other.compile_s},
        )
    if evidence.given_mode == "xla" and speedup.low > WORTH:
        yield xla_slower.finding(
            f"without XLA the step alone runs {speedup.estimate:.2f} times as fast",
            {"step_speedup_without_xla": speedup.estimate},
            "Drop jit_compile=True for this step on this device.",
            severity="warning",
            predicted_speedup=whole_step(evidence, speedup),
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
    threshold="5 % faster at the low end of the interval, or slower at its high end; never a bottleneck",
    remedy="Set the policy before the model is built, and compare the losses before it is kept.",
    false_alarms="speed says nothing of the losses",
)
def precision(evidence: Evidence) -> Findings:
    """Another precision makes the step faster or slower: mixed precision, or TensorFloat-32 on or off."""
    for name in PRECISIONS:
        tried = evidence.modes.get(name)
        if tried is None or tried.speedup is None:
            continue
        speedup = tried.speedup
        helps = speedup.low > WORTH
        if not helps and speedup.high >= 1 / WORTH:
            continue
        yield precision.finding(
            f"{_SAID[name]} runs the step alone {speedup.estimate:.2f} times as fast"
            if helps
            else f"with {_SAID[name]} the step alone would take {1 / speedup.estimate:.3g} times as long",
            {"precision": name, "helps": helps, "step_speedup": speedup.estimate},
            f"{_DONE_BY[name]}; compare the losses before it is kept."
            if helps
            else "Keep the precision that the step has on this device.",
            severity="warning" if helps and speedup.estimate > 1.2 else "info",
            predicted_speedup=whole_step(evidence, speedup) if helps else None,
        )


_NAMED_FROM: Final = 0.02  # Share of the time of the step's ops from which those on the CPU are named
_ASKED: Final = "asked for"


@rule(
    "cpu-placement",
    threshold="2 % of the time of the step's ops or, where no times are known, ops that tf.device puts there; a "
    "bottleneck only where the verdict is compute",
    remedy="Use an op with a kernel for the GPU, or move the work into the input pipeline.",
    false_alarms="ops on shapes and small integers belong on the CPU",
)
def cpu_placement(evidence: Evidence) -> Findings:
    """Ops of the step on the CPU while a GPU is there, with the reason that TensorFlow had."""
    ops = evidence.step_ops
    if ops is None or not evidence.on_gpu:
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
        "Take the tf.device away." if asked else None,
        severity="warning" if limiting or share >= THRESHOLD else "info",
        limiting=limiting,
        at=Location(file=line.file, line=line.line, op=heaviest.op) if line else Location(op=heaviest.op),
    )
