"""A dataset whose end cannot be written into a graph (``prefetch_to_device``), read up to there."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from xttsbench.pipeline.graph.python_side import python_side_ops
from xttsbench.pipeline.graph.read import inspect, read_graph
from xttsbench.records.pipeline import Pipeline


def peel(dataset: Any, graph: Any = None) -> tuple[Pipeline, Any, Any]:
    """A dataset's description, the longest beginning of it that has a graph, and that graph.

    Ops after that beginning are those that the Python objects show, in their order; ``unserialisable`` says why they
    have no graph. Where no beginning has one, the dataset itself and ``None`` come back.
    """
    inner, graph = (dataset, graph) if graph is not None else _longest(dataset)
    if inner is dataset:
        return inspect(dataset, graph), dataset, graph
    whole = inspect(dataset)
    if graph is None:
        return whole, dataset, None
    begun = inspect(inner, graph)
    kept = len(python_side_ops(inner)[0])
    tail = list(whole.ops[kept:])
    if tail and begun.ops:
        tail[0] = tail[0].model_copy(update={"inputs": (begun.ops[-1].name,)})
    return (
        whole.model_copy(update={"ops": (*begun.ops, *tail), "python_functions": begun.python_functions}),
        inner,
        graph,
    )


def _longest(dataset: Any) -> tuple[Any, Any]:
    current = dataset
    while True:
        try:
            return current, read_graph(current)
        except tf.errors.OpError:
            inputs = current._inputs()
        if len(inputs) != 1:
            return current, None
        current = inputs[0]
