"""Batches that are put together several at a time, order kept. There is no parallel twin of ``padded_batch``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from xttsbench.fixes.graph.edit import does_not_apply
from xttsbench.pipeline.nodes import add_constant, copied, data_inputs, dataset_nodes, set_inputs


def parallel_batch(graph: Any, *, calls: int = tf.data.AUTOTUNE) -> Any:
    """Every ``batch`` of the outer pipeline made parallel, order kept.

    Raises:
        InvalidInputError: there is no sequential batch.
    """
    edited = copied(graph)
    batches = [node for node in dataset_nodes(edited) if node.op == "BatchDatasetV2"]
    if not batches:
        raise does_not_apply(
            "parallel-batch", "the dataset has no sequential batch (a padded one has no parallel twin)"
        )
    for node in batches:
        source, size, remainder = data_inputs(node)
        number = add_constant(edited, f"{node.name}/num_parallel_calls", calls)
        set_inputs(node, [source, size, number, remainder])
        node.op = "ParallelBatchDataset"
        node.attr["deterministic"].s = b"true"
    return edited
