"""What a rewrite that moves ops or puts one in between asks of a graph: what flows there, and who reads whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.graph.edit import copied, does_not_apply
from xttsbench.pipeline.graph.nodes import dataset_nodes, is_dataset, node_inputs

_LINES: Final = (
    "TFRecordDataset",
    "TFRecordDatasetV2",
    "TextLineDataset",
    "FixedLengthRecordDataset",
    "FixedLengthRecordDatasetV2",
)
"""Ops whose elements are scalar strings, and that therefore say nothing of their type in an attribute."""


def flat_spec(node: Any, fix: str) -> tuple[tf.TensorSpec, ...]:
    """The element of a dataset node, flat: a ragged, sparse or nested component is a variant.

    Raises:
        InvalidInputError: the graph does not say what the node's elements are; ``fix`` is named in the message.
    """
    if node.op in _LINES:
        return (tf.TensorSpec([], tf.string),)
    types = next((node.attr[key].list.type for key in ("output_types", "Toutput_types") if key in node.attr), None)
    if types is None or "output_shapes" not in node.attr:
        raise does_not_apply(fix, f"the graph does not say what the elements of {node.name} are")
    shapes = node.attr["output_shapes"].list.shape
    return tuple(
        tf.TensorSpec(tf.TensorShape(shape), tf.as_dtype(kind)) for kind, shape in zip(types, shapes, strict=True)
    )


def set_spec(node: Any, spec: Sequence[tf.TensorSpec]) -> None:
    """Say of a dataset node that its elements are of that specification, in place."""
    for key in ("output_types", "output_shapes"):
        node.attr[key].list.Clear()
    node.attr["output_types"].list.SetInParent()
    node.attr["output_shapes"].list.SetInParent()
    node.attr["output_types"].list.type.extend(one.dtype.as_datatype_enum for one in spec)
    node.attr["output_shapes"].list.shape.extend(one.shape.as_proto() for one in spec)


def readers(graph: Any, name: str) -> list[Any]:
    """The nodes that read the named one, among those that lead to the result; one that reads twice is there twice."""
    leading = {node.name for node in dataset_nodes(graph)}
    found = []
    for node in graph.node:
        if node.name in leading or node.op == "_Retval":
            found.extend([node] * node_inputs(node).count(name))
    return found


def redirect(graph: Any, old: str, new: str, *, but: str | None = None) -> None:
    """Let every node that reads ``old`` read ``new`` instead, in place, but for the one of that name."""
    for node in graph.node:
        for number, name in enumerate(node.input):
            if node.name != but and name.split(":")[0] == old:
                node.input[number] = new


def source_of(node: Any, by_name: Mapping[str, Any]) -> Any | None:
    """The dataset node that a node reads first; ``None`` where its first input is no dataset."""
    inputs = node_inputs(node)
    source = by_name.get(inputs[0]) if inputs else None
    return source if source is not None and is_dataset(source) else None


def ending_at(graph: Any, name: str) -> Any:
    """A copy of a graph whose result is the dataset that ends at the named node."""
    edited = copied(graph)
    for node in edited.node:
        if node.op == "_Retval":
            node.input[0] = name
    return edited
