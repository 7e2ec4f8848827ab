"""Batches of rows of arrays in memory as gathers by index, in a graph.

The source counts where it cut slices; all up to the batch handles indices as it handled rows, with the same buffers and
seeds, and a map behind the batch gathers its rows from the arrays, which are in the graph already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.gather import BATCHES, HANDS_ON, SLICES
from xttsbench.fixes.graph.edit import add_functions, does_not_apply, flat_spec, readers, set_spec, source_of
from xttsbench.pipeline.altered import length_of, with_own_store
from xttsbench.pipeline.nodes import (
    add_constant,
    copied,
    data_inputs,
    dataset_nodes,
    free_name,
    redirect,
    set_inputs,
    text_inputs,
)

_FIX: Final = "gather"


class _StaysError(ValueError):
    """A batch that is not gathered; the message says why."""


def gather(graph: Any) -> Any:
    """The graph with every batch of rows of arrays gathered by index; names of nodes stay.

    Elements, their order, their types and their static shapes stay. A cache in memory on the way keeps indices then, in
    a store of its own.

    Raises:
        InvalidInputError: there is no such batch, or none that can be gathered, and why.
    """
    edited, why = graph, list[str]()
    for name in [node.name for node in dataset_nodes(graph) if BATCHES.fullmatch(node.op)]:
        try:
            edited = _gathered(edited, name)
        except _StaysError as error:
            why.append(str(error))
    if edited is graph:
        raise does_not_apply(_FIX, "; ".join(why) if why else "the dataset makes no batches")
    return edited


def _gathered(graph: Any, name: str) -> Any:
    edited = copied(graph)
    by_name = {node.name: node for node in edited.node}
    batch = by_name[name]
    *way, source = _way(edited, batch)
    spec, result = flat_spec(source, _FIX), flat_spec(batch, _FIX)
    length = length_of(source, by_name)
    if any(one.dtype in (tf.variant, tf.resource) for one in spec):
        raise _StaysError(f"{source.name} yields ragged, sparse or nested components")
    if length is None:
        raise _StaysError(f"how many rows {source.name} cuts is not in the graph")
    arrays, index = data_inputs(source), [tf.TensorSpec([], tf.int64)]
    source.op = "RangeDataset"
    source.attr.clear()
    set_inputs(source, [add_constant(edited, f"{source.name}/{end}", end) for end in (0, length, 1)])
    for node in (source, *way):
        set_spec(node, index)
        if node.op.startswith("CacheDataset"):
            if text_inputs(node, "filename", by_name) != ("",):
                raise _StaysError(f"{node.name} keeps the rows on disk")
            with_own_store(edited, node)
    set_spec(batch, [tf.TensorSpec(result[0].shape[:1], tf.int64)])
    mapped = edited.node.add(name=free_name(edited, f"{name}/gathered"), op="MapDataset")
    redirect(edited.node, {name: mapped.name})
    function = _function([tf.TensorSpec([length, *one.shape], one.dtype) for one in spec])
    add_functions(edited, [function])
    mapped.input.extend([name, *arrays])
    mapped.attr["f"].func.name = function.signature.name
    mapped.attr["Targuments"].list.type.extend(one.dtype.as_datatype_enum for one in spec)
    mapped.attr["preserve_cardinality"].b = True
    set_spec(mapped, result)
    return edited


def _way(graph: Any, batch: Any) -> list[Any]:
    """The nodes from right before a batch to the slices, which come last."""
    by_name = {node.name: node for node in graph.node}
    found = [batch]
    while found[-1] is batch or HANDS_ON.fullmatch(found[-1].op):
        above = source_of(found[-1], by_name)
        if above is None or len(readers(graph, above.name)) != 1:
            break
        found.append(above)
    if found[-1].op != SLICES:
        raise _StaysError(f"what {batch.name} puts together are no slices of arrays, as {found[-1].name} is on the way")
    return found[1:]


def _function(arrays: Sequence[tf.TensorSpec]) -> Any:
    """The definition of a function of some rows' indices and the whole arrays."""

    def gathered(rows: Any, *arrays: Any) -> list[Any]:
        return [tf.gather(one, rows) for one in arrays]

    traced = tf.function(gathered, autograph=False)
    return traced.get_concrete_function(tf.TensorSpec([None], tf.int64), *arrays).function_def
