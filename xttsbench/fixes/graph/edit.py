"""What every rewrite does to a graph: copy it, add a constant under a free name, give a node other inputs, or refuse.

Only the outer pipeline is edited, never the functions of the graph: TensorFlow keeps one function of a name in a
process, so that an edited one would need another name wherever it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from xttsbench.errors import InvalidInputError


def copied(graph: Any) -> Any:
    """A graph to edit; the one that was given stays as it is."""
    edited = tf.compat.v1.GraphDef()
    edited.CopyFrom(graph)
    return edited


def does_not_apply(fix: str, why: str) -> InvalidInputError:
    """The error of a fix that fits nothing in the dataset, or would change nothing; ``why`` ends the sentence."""
    return InvalidInputError(f"The fix {fix!r} does not apply: {why}. Leave it out, or name another one.")


def constant(graph: Any, name: str, value: int) -> str:
    """Add an int64 scalar to a graph, in place; the name that it got, ``name`` where that was free."""
    name = free_name(graph, name)
    node = graph.node.add(name=name, op="Const")
    node.attr["dtype"].type = tf.int64.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))
    return name


def free_name(graph: Any, name: str) -> str:
    """``name``, with a number where the graph has a node of that name already."""
    taken = {node.name for node in graph.node}
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
