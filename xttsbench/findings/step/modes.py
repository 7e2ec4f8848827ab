"""Rules about how else the step could run: through XLA or without, in other precision. Measured, never assumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.lines import whole_step
from xttsbench.records.conditions import PRECISIONS
from xttsbench.records.report import Finding
from xttsbench.rules.proposal import WORTH

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


def xla(evidence: Evidence) -> Iterator[Finding]:
    """XLA helps or hurts here, measured beside the step as given."""
    through_xla, graph = evidence.modes.get("xla"), evidence.modes.get("graph")
    if through_xla is not None and through_xla.speedup is not None and evidence.given_mode == "graph":
        speedup = through_xla.speedup
        if speedup.low > WORTH:
            yield Finding(
                rule="xla-untried",
                severity="warning" if speedup.estimate > 1.2 else "info",
                limiting=False,
                title=f"XLA runs the step {speedup.estimate:.2f} times as fast",
                evidence={"step_speedup": speedup.estimate, "first_compilation_s": through_xla.compile_s},
                remedy="tf.function(jit_compile=True), with fixed shapes; weigh the compilation of each shape.",
                predicted_speedup=whole_step(evidence, speedup),
            )
        elif speedup.high < 1 / WORTH:
            yield Finding(
                rule="xla-slower",
                severity="info",
                limiting=False,
                title=f"XLA would slow the step down, to {speedup.estimate:.2f} of its speed",
                evidence={"step_speedup": speedup.estimate, "first_compilation_s": through_xla.compile_s},
                remedy="Leave XLA off for this step on this device.",
            )
    if evidence.given_mode == "xla" and graph is not None and graph.speedup is not None and graph.speedup.low > WORTH:
        yield Finding(
            rule="xla-slower",
            severity="warning",
            limiting=False,
            title=f"without XLA the step runs {graph.speedup.estimate:.2f} times as fast",
            evidence={"step_speedup_without_xla": graph.speedup.estimate},
            remedy="Drop jit_compile=True for this step on this device.",
            predicted_speedup=whole_step(evidence, graph.speedup),
        )


def precision(evidence: Evidence) -> Iterator[Finding]:
    """Another precision helps or hurts here, measured beside the step as given."""
    for name in PRECISIONS:
        tried = evidence.modes.get(name)
        if tried is None or tried.speedup is None:
            continue
        speedup = tried.speedup
        helps = speedup.low > WORTH
        if not helps and speedup.high >= 1 / WORTH:
            continue
        yield Finding(
            rule="precision",
            severity="warning" if helps and speedup.estimate > 1.2 else "info",
            limiting=False,
            title=f"{_SAID[name]} runs the step {speedup.estimate:.2f} times as fast"
            if helps
            else f"{_SAID[name]} would slow the step down, to {speedup.estimate:.2f} of its speed",
            evidence={"precision": name, "helps": helps, "step_speedup": speedup.estimate},
            remedy=f"{_DONE_BY[name]}; compare the losses before it is kept."
            if helps
            else "Keep the precision that the step has on this device.",
            predicted_speedup=whole_step(evidence, speedup) if helps else None,
        )


RULES: Final = (xla, precision)
