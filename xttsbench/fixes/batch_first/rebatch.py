"""``unbatch().batch(n)`` as one op that cuts the batches anew, without an op for every element in between."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.batch_first.conversions import NotVectorisedError
from xttsbench.fixes.graph.edit import copied, data_inputs, does_not_apply, free_name, set_inputs
from xttsbench.fixes.graph.splice import flat_spec, readers, redirect, source_of
from xttsbench.pipeline.graph.nodes import constant_input, dataset_nodes

_FIX: Final = "rebatch"
BATCHES: Final = ("BatchDatasetV2", "ParallelBatchDataset")
"""Ops that put elements together as they are, without padding."""


def rebatch(graph: Any) -> Any:
    """The graph with every ``unbatch`` and the batch after it as one op; the batches, their types and order stay.

    Raises:
        InvalidInputError: there is no such pair, or none that can be one op, and why.
    """
    edited, why, done = graph, list[str](), False
    for name in [node.name for node in dataset_nodes(graph) if node.op in BATCHES]:
        try:
            again = rebatched(edited, name)
        except NotVectorisedError as error:
            why.append(str(error))
            continue
        done, edited = done or again is not None, edited if again is None else again
    if not done:
        raise does_not_apply(_FIX, "; ".join(why) if why else "no batch comes right after an unbatch")
    return edited


def rebatched(graph: Any, name: str) -> Any | None:
    """The graph with ``unbatch`` and the batch after it as one op; ``None`` where the named batch reads none.

    Where the batches before have the same size already, as their static shapes say, both ops are left out.

    Raises:
        NotVectorisedError: the pair is there and cannot be one op.
    """
    by_name = {node.name: node for node in graph.node}
    batch = by_name[name]
    unbatch = source_of(batch, by_name)
    if unbatch is None or unbatch.op != "UnbatchDataset":
        return None
    whole = source_of(unbatch, by_name)
    if whole is None or len(readers(graph, unbatch.name)) != 1:
        raise NotVectorisedError(f"{unbatch.name} is read by other ops as well")
    spec = flat_spec(whole, _FIX)
    if any(one.dtype in (tf.variant, tf.resource) for one in spec):
        raise NotVectorisedError(f"{whole.name} yields ragged, sparse or nested components")
    edited = copied(graph)
    size = constant_input(batch, "batch_size", by_name)
    sizes = {one.shape[0] if one.shape.rank else None for one in spec}
    if size is not None and sizes == {size}:
        redirect(edited, name, whole.name)
        return edited
    node = next(one for one in edited.node if one.name == name)
    inputs = data_inputs(node)
    options = inputs[3] if node.op == "ParallelBatchDataset" else inputs[2]
    sizes_name = free_name(edited, f"{name}/batch_sizes")
    _add_vector_of(edited, sizes_name, inputs[1])
    node.op = "RebatchDatasetV2"
    set_inputs(node, [whole.name, sizes_name, options])
    for key in ("parallel_copy", "deterministic"):
        node.attr.pop(key, None)
    return edited


def _add_vector_of(graph: Any, name: str, scalar: str) -> None:
    """A vector of one entry, the value of a scalar node."""
    axis = graph.node.add(name=free_name(graph, f"{name}/axis"), op="Const")
    axis.attr["dtype"].type = tf.int32.as_datatype_enum
    axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0, tf.int32))
    node = graph.node.add(name=name, op="ExpandDims", input=[scalar, axis.name])
    node.attr["T"].type = tf.int64.as_datatype_enum
    node.attr["Tdim"].type = tf.int32.as_datatype_enum
