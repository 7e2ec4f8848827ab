"""The rules `xla-untried` and `xla-slower`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.step import whole_step
from xttsbench.findings.rule import Findings, rule
from xttsbench.fixes.spec import WORTH


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
