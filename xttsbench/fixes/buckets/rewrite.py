"""Buckets by length in place of a padded batch: TensorFlow's own op for them, made beside the graph and put into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.graph.edit import (
    add_functions,
    does_not_apply,
    ending_at,
    flat_spec,
    from_graph,
    is_endless,
    redirect,
    set_spec,
    source_of,
)
from xttsbench.pipeline.nodes import (
    constant,
    constant_input,
    copied,
    data_inputs,
    dataset_nodes,
    free_name,
    named_inputs,
    set_inputs,
)
from xttsbench.pipeline.read import read_graph

_FIX: Final = "buckets"
_BOUNDARIES: Final = tuple(sorted({round(2 ** (half / 2)) for half in range(4, 41)}))
"""Lengths at which a bucket ends and the next begins, 4 to a million: within a bucket the longest element is at most
41 % longer than the shortest. Buckets that no element falls into cost nothing."""


def buckets(graph: Any) -> Any:
    """The graph with its last ``padded_batch`` as buckets by length, all of the same batch size.

    An element is as long as the longest of its components whose first dimension varies. Where the dataset ends, each
    bucket yields what it has left, a smaller batch.

    Raises:
        InvalidInputError: nothing is padded to a length that varies; or a last, smaller batch is dropped, which would
            be one of each bucket.
    """
    by_name = {node.name: node for node in graph.node}
    padding = [node for node in dataset_nodes(graph) if node.op == "PaddedBatchDatasetV2"]
    above = source_of(padding[-1], by_name) if padding else None
    if above is None:
        raise does_not_apply(_FIX, "no op of the dataset pads its batches")
    batch, size = padding[-1], constant_input(padding[-1], "batch_size", by_name)
    spec = flat_spec(above, _FIX)
    shapes, values = (_constants(batch, name, by_name) for name in ("padded_shapes", "padding_values"))
    if size is None or len(shapes) != len(spec) or len(values) != len(spec):
        raise does_not_apply(_FIX, f"the size, shapes or padding of {batch.name} are no constants")
    if any(one.dtype in (tf.variant, tf.resource) or one.shape.rank is None for one in spec):
        raise does_not_apply(_FIX, f"{above.name} yields components that are no plain tensors")
    varied = [
        number
        for number, (one, shape) in enumerate(zip(spec, shapes, strict=True))
        if one.shape.rank and one.shape[0] is None and int(shape[0]) < 0
    ]
    if not varied:
        raise does_not_apply(_FIX, f"{batch.name} pads no first dimension to the longest of its batch")
    drops = bool(constant_input(batch, "drop_remainder", by_name))
    if drops and not is_endless(graph, batch.name):
        raise does_not_apply(_FIX, f"{batch.name} drops a last, smaller batch, which would be one of each bucket")
    made = from_graph(ending_at(graph, above.name), spec).bucket_by_sequence_length(
        lambda *parts: tf.reduce_max([tf.shape(parts[number])[0] for number in varied]),
        bucket_boundaries=list(_BOUNDARIES),
        bucket_batch_sizes=[size] * (len(_BOUNDARIES) + 1),
        padded_shapes=tuple(tf.TensorShape([None if part < 0 else int(part) for part in shape]) for shape in shapes),
        padding_values=tuple(tf.constant(value, one.dtype) for value, one in zip(values, spec, strict=True)),
        drop_remainder=drops,
    )
    return _in_place_of(graph, batch, above, read_graph(made))


def _constants(node: Any, argument: str, by_name: Mapping[str, Any]) -> list[Any]:
    found = [constant(reference, by_name) for name, reference in named_inputs(node) if name == argument]
    return [one for one in found if one is not None]


def _in_place_of(graph: Any, batch: Any, above: Any, made: Any) -> Any:
    """The graph with the buckets of another one, their functions and what these capture, where a batch was."""
    edited = copied(graph)
    others = {node.name: node for node in made.node}
    add_functions(edited, made.library.function)
    group = next(node for node in made.node if node.op.startswith("GroupByWindow"))
    node = edited.node.add()
    node.CopyFrom(group)
    node.name = free_name(edited, f"{batch.name}/buckets")
    inputs = [above.name]
    for reference in data_inputs(group)[1:]:
        captured = edited.node.add()
        captured.CopyFrom(others[reference.split(":")[0]])
        captured.name = free_name(edited, f"{node.name}/captured")
        inputs.append(captured.name)
        if captured.op != "Const":
            raise does_not_apply(_FIX, f"the buckets refer to {captured.op}, which is no constant")
    set_inputs(node, inputs)
    set_spec(node, flat_spec(batch, _FIX))
    redirect(edited, batch.name, node.name)
    return edited
