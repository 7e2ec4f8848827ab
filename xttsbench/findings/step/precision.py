"""The rule `precision`."""

from __future__ import annotations

from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.step import whole_step
from xttsbench.findings.rule import Findings, rule
from xttsbench.fixes.spec import WORTH
from xttsbench.records.trial import PRECISIONS

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
