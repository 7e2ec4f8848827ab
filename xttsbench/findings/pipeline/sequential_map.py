"""The rule `sequential-map`."""

from __future__ import annotations

from xttsbench.evidence.evidence import Evidence
from xttsbench.evidence.pipeline import function_of
from xttsbench.findings.rule import Findings, blamed, cost_share, finding, gain, most_costly, pace_share, rule
from xttsbench.records.pipeline import Pipeline, PipelineOp


@rule(
    "sequential-map",
    evidence="the map's shares of cost and pace, its seconds for a batch, and how many such maps there are",
    threshold="parallel calls were measured or estimated to make the step faster, and it waits for data",
    remedy="Give it num_parallel_calls=tf.data.AUTOTUNE.",
    false_alarms="TensorFlow makes stateless maps parallel by itself; only what it leaves sequential is reported",
)
def sequential_map(evidence: Evidence) -> Findings:
    """A map that runs one element at a time, where running it in parallel helps."""
    helps = gain(evidence, "parallel-map")
    if helps is None:
        return
    maps = [op for op in evidence.graph.ops if op.op == "MapDataset"]
    if not helps.processes:
        maps = [op for op in maps if not _takes_turns(evidence.graph, op)]
    op = most_costly(evidence, maps)
    if op is None or not blamed(evidence, helps, *maps):
        return
    why = (
        "TensorFlow does not do so by itself for functions with state, Python functions among them"
        if op.stateful or op.python_functions
        else "TensorFlow does not do so by itself here"
    )
    yield finding(
        sequential_map,
        f"{op.name} maps one element at a time",
        op,
        {
            "cost_share": cost_share(evidence, op),
            "pace_share": pace_share(evidence, op),
            "sequential_maps": len(maps),
            "cost_s_per_batch": op.cost_s,
        },
        f"Give it num_parallel_calls=tf.data.AUTOTUNE: .map({function_of(op)}, num_parallel_calls=tf.data.AUTOTUNE) "
        f"({why}).",
        limits=helps,
    )


def _takes_turns(pipeline: Pipeline, op: PipelineOp) -> bool:
    """Whether the Python functions of an op hold the interpreter lock, so that parallel calls wait for one another."""
    own = [function for function in pipeline.python_functions if function.token in op.python_functions]
    return bool(own) and all(function.gil == "holds" for function in own)
