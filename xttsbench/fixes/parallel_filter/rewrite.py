"""Filters that run several calls of their predicate at a time, order kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from xttsbench.fixes.graph.edit import does_not_apply
from xttsbench.fixes.graph.hazards import Reader
from xttsbench.pipeline.graph.edit import constant, copied, data_inputs, set_inputs
from xttsbench.pipeline.graph.nodes import dataset_nodes
from xttsbench.records.fix_set import Fix, FixSet


def parallel_filter(graph: Any, *, calls: int = tf.data.AUTOTUNE) -> Any:
    """Every sequential ``filter`` of the outer pipeline made parallel, order kept.

    Raises:
        InvalidInputError: there is no sequential filter.
    """
    edited = copied(graph)
    filters = [node for node in dataset_nodes(edited) if node.op == "FilterDataset"]
    if not filters:
        raise does_not_apply("parallel-filter", "the dataset has no sequential filter")
    for node in filters:
        set_inputs(node, [*data_inputs(node), constant(edited, f"{node.name}/num_parallel_calls", calls)])
        node.op = "ParallelFilterDataset"
        node.attr["deterministic"].s = b"true"
    return edited


def hazards(reader: Reader, _fix: Fix, _every: FixSet) -> Iterator[str]:
    """State of the predicates that would be called several times at once."""
    return reader.shared_state([name for name, node in reader.nodes.items() if node.op == "FilterDataset"])
