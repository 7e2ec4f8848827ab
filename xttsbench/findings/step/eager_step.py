"""The rule `eager-step`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.step import heaviest_line, place_of, whole_step
from xttsbench.findings.rule import Findings, rule


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
