"""The rule `xla-recompilation`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.step import costliest_shape, place_in_step
from xttsbench.findings.rule import Findings, rule


@rule(
    "xla-recompilation",
    evidence="compilations, traces in the same steps, shapes compiled, seconds of a compilation, and the shape that "
    "cost most",
    threshold="one compilation in the steady state; a bottleneck where compilation is",
    remedy="Give XLA few fixed shapes (buckets, drop_remainder=True) and compile each before training.",
    false_alarms="a few compilations while the last shapes are first seen",
)
def xla_recompilation(evidence: Evidence) -> Findings:
    """XLA compiles again in the steady state, most often for each new shape, while the trace count stays low."""
    steps = evidence.steps
    if steps is None or int(steps.xla_compiles.sum()) == 0:
        return
    compiles = int(steps.xla_compiles.sum())
    shapes = {int(shape) for shape, count in zip(steps.shape_id, steps.xla_compiles, strict=True) if count}
    limiting, costliest = evidence.limits("compile"), costliest_shape(evidence)
    yield xla_recompilation.finding(
        f"XLA compiled {compiles} times in {len(steps)} steady steps",
        {
            "compiles": compiles,
            "steps": len(steps),
            "traces_in_the_same_steps": int(steps.traces.sum()),
            "shapes_compiled": len(shapes),
            "compile_s_per_compile": float(steps.compile_s[steps.xla_compiles > 0].sum()) / compiles,
            "costliest_shape": costliest.shape if costliest else None,
            "costliest_shape_lost_s": costliest.lost_s if costliest else None,
        },
        severity="critical" if limiting else "warning",
        limiting=limiting,
        location=place_in_step(evidence, ("function", "tensorflow")),
        predicted_speedup=evidence.max_speedups.get("compile") if limiting else None,
    )
