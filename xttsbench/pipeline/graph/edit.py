"""What every edit of a graph does: copy it, add a constant under a free name, give a node other inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def copied(graph: Any) -> Any:
    """A graph to edit; the one that was given stays as it is."""
    edited = tf.compat.v1.GraphDef()
    edited.CopyFrom(graph)
    return edited


def constant(graph: Any, name: str, value: int | str | bool) -> str:
    """Add an int64, string or boolean scalar to a graph or function, in place; its name, ``name`` if that is free."""
    name, nodes = free_name(graph, name), _nodes(graph)
    node = nodes.add(name=name, op="Const")
    kind = tf.string if isinstance(value, str) else tf.bool if isinstance(value, bool) else tf.int64
    tensor = tf.make_tensor_proto(value, kind)
    node.attr["dtype"].type = tensor.dtype
    node.attr["value"].tensor.CopyFrom(tensor)
    return name


def free_name(graph: Any, name: str) -> str:
    """``name``, with a number where the graph or function has a node of that name already."""
    taken = {node.name for node in _nodes(graph)}
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def data_inputs(node: Any) -> list[str]:
    """The inputs of a node as it refers to them, control inputs left out."""
    return [name for name in node.input if not name.startswith("^")]


def set_inputs(node: Any, names: Sequence[str]) -> None:
    """Give a node other inputs, in place; its control inputs stay."""
    control = [name for name in node.input if name.startswith("^")]
    del node.input[:]
    node.input.extend([*names, *control])


def _nodes(graph: Any) -> Any:
    return graph.node if hasattr(graph, "node") else graph.node_def
