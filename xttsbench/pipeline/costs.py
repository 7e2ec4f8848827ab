"""What each op of a pipeline costs, read from TensorFlow's own performance model while the pipeline runs.

The reading is a run of its own: fusion and the default rewrites are off, so that every op keeps its name, and autotune
is on, without which there is no model. So the times are per op as written; how fast the pipeline is as it really runs
is measured elsewhere.
"""

from __future__ import annotations

import time
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import model_pb2

from xttsbench.pipeline import model
from xttsbench.pipeline.graph import inspect
from xttsbench.records.pipeline import Pipeline, PipelineOp

_REWRITES: Final = (
    "filter_fusion",
    "filter_parallelization",
    "inject_prefetch",
    "map_and_batch_fusion",
    "map_and_filter_fusion",
    "map_fusion",
    "map_parallelization",
    "noop_elimination",
    "parallel_batch",
    "seq_interleave_prefetch",
    "shuffle_and_repeat_fusion",
)
_SNAPSHOTS: Final = 16
"""Iterators of inner datasets and past epochs vanish with their counters; a few looks on the way catch them."""
_KNOWN_RATIO: Final = (model_pb2.NodeClass.KNOWN_RATIO, model_pb2.NodeClass.ASYNC_KNOWN_RATIO)


def read_costs(dataset: Any, *, batches: int, max_s: float, graph: Any = None) -> Pipeline:
    """Run a dataset for ``batches`` batches after the first, or ``max_s`` seconds, and describe it with its costs.

    The user's functions are called as in any run; an in-memory cache is filled by it. Costs are per batch of the whole
    pipeline, summed over parallel calls, waits included. A batch that takes longer than ``max_s`` is waited for.

    Raises:
        tf.errors.OpError: what the pipeline itself raises.
    """
    pipeline = inspect(dataset, graph)
    if pipeline.unserialisable is not None:
        return pipeline.model_copy(update={"costs_from": "no costs: the graph that they belong to cannot be read"})
    try:
        snapshots, root, delivered = _run(_as_written(dataset), batches, max_s)
    except tf.errors.NotFoundError as error:
        if "model" not in error.message.lower() and "autotune" not in error.message.lower():
            raise  # the pipeline's own: a missing file
        return pipeline.model_copy(update={"costs_from": f"no costs: TensorFlow kept no model ({error.message})"})
    if not snapshots:
        return pipeline.model_copy(update={"costs_from": "no costs: the dataset is empty"})
    nodes = model.merge(snapshots)
    matched, ignored = model.match(nodes, root, pipeline.ops)
    costs = model.costs(nodes, matched, pipeline.ops)
    if not any(cost.cost_s for cost in costs.values()):
        return pipeline.model_copy(update={"costs_from": "no costs: TensorFlow's model counted no time in any op"})
    unpriced = sum(op.name not in costs or costs[op.name].cost_s is None for op in pipeline.ops)
    return pipeline.model_copy(
        update={
            "ops": tuple(_priced(op, costs.get(op.name), tuned=pipeline.autotune) for op in pipeline.ops),
            "costs_from": (
                f"TensorFlow's performance model over {delivered} batches, fusion and default rewrites off; "
                f"{ignored} model nodes belong to no op, {unpriced} ops have no cost"
            ),
        }
    )


def _run(dataset: Any, batches: int, max_s: float) -> tuple[list[dict[int, model.ModelNode]], int, int]:
    """Snapshots of the model, the id of its root, and how many batches the costs come from."""
    snapshots: list[dict[int, model.ModelNode]] = []
    root = 0
    every = max(1, batches // _SNAPSHOTS)
    iterator = iter(dataset)
    deadline = time.perf_counter() + max_s
    drawn = 0
    while next(iterator, None) is not None:
        drawn += 1  # the first batch fills buffers; the differences start after it
        last = drawn > batches or time.perf_counter() > deadline
        if drawn == 1 or last or drawn % every == 0:
            snapshot, root = _snapshot(iterator)
            snapshots.append(snapshot)
        if last:
            break
    return snapshots, root, max(1, drawn - 1) if drawn else 0


def _snapshot(iterator: Any) -> tuple[dict[int, model.ModelNode], int]:
    proto = tf.data.experimental.get_model_proto(iterator)
    nodes = {
        node.id: model.ModelNode(
            id=node.id,
            name=node.name,
            elements=node.num_elements,
            time_ns=node.processing_time,
            ratio=node.ratio if node.node_class in _KNOWN_RATIO and node.ratio > 0 else None,
            inputs=tuple(i for i in node.inputs if i in proto.nodes),
            parameters={parameter.name: parameter.state_value for parameter in node.parameters},
        )
        for node in proto.nodes.values()
    }
    return nodes, proto.output


def _as_written(dataset: Any) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = True
    for rewrite in _REWRITES:
        setattr(options.experimental_optimization, rewrite, False)
    return dataset.with_options(options)


def _priced(op: PipelineOp, cost: model.OpCost | None, *, tuned: bool) -> PipelineOp:
    if cost is None:
        return op

    def chosen(parameter: str) -> int | None:
        return round(cost.parameters[parameter]) if tuned and cost.parameters.get(parameter) else None

    return op.model_copy(
        update={
            "elements": cost.elements,
            "cost_s": cost.cost_s,
            "chosen_parallelism": chosen("parallelism"),
            "chosen_buffer_size": chosen("buffer_size"),
        }
    )
