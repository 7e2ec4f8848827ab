"""Prefetches: one more at the end, and how much the last one holds."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import tensorflow as tf

from xttsbench.fixes.graph.edit import does_not_apply
from xttsbench.pipeline.nodes import add_constant, constant_input, copied, data_inputs, dataset_nodes, set_inputs
from xttsbench.pipeline.read import read_graph


def prefetched(dataset: Any, *, elements: int = tf.data.AUTOTUNE) -> Any:
    """A prefetch at the end, which needs no graph, so that it also works where that cannot be read.

    Raises:
        InvalidInputError: the pipeline ends in a prefetch already, options apart.
    """
    with suppress(tf.errors.OpError):
        ops = [node.op for node in dataset_nodes(read_graph(dataset)) if node.op != "OptionsDataset"]
        if ops[-1:] == ["PrefetchDataset"]:
            raise does_not_apply(
                "prefetch", "the dataset ends in a prefetch already (buffer:<n> has the last one hold n elements)"
            )
    return dataset.prefetch(elements)


def last_buffer(graph: Any, *, elements: int) -> Any:
    """The last prefetch of the outer pipeline made to hold ``elements`` elements, neither more nor fewer.

    Raises:
        InvalidInputError: there is no prefetch, or the last one holds this number already.
    """
    fix = f"buffer:{elements}"
    edited = copied(graph)
    prefetches = [node for node in dataset_nodes(edited) if node.op == "PrefetchDataset"]
    if not prefetches:
        raise does_not_apply(fix, f"the dataset has no prefetch (prefetch:{elements} appends one)")
    last = prefetches[-1]
    if constant_input(last, "buffer_size", {node.name: node for node in edited.node}) == elements:
        raise does_not_apply(fix, f"the last prefetch holds {elements} elements already")
    size = add_constant(edited, f"{last.name}/buffer_size", elements)
    set_inputs(last, [data_inputs(last)[0], size])
    return edited
