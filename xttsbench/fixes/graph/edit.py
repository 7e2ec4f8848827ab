"""Edits of graphs shared by all rewrites: copy, follow the data flow, add and move ops, make a dataset, refuse.

Only the outer pipeline is edited, never the functions of the graph: TensorFlow keeps one function of a name in a
process, so that an edited one would need another name wherever it is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.data.ops import options as options_lib

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph.at_exit import end_iterators_at_exit
from xttsbench.pipeline.nodes import (
    copied,
    dataset_nodes,
    graph_options,
    is_dataset,
    node_inputs,
)
from xttsbench.pipeline.places import SOURCE
from xttsbench.pipeline.read import read_graph
from xttsbench.pipeline.source import Registered, display_name, locate

_LINES: Final = re.compile(r"(TFRecord|TextLine|FixedLengthRecord)Dataset(V2)?")
"""Ops whose elements are scalar strings, and that therefore say nothing of their type in an attribute."""


def from_graph(graph: Any, element_spec: Any, *, source: Any = None) -> Any:
    """A dataset from a graph; ``element_spec`` is that of the original.

    ``source`` is the original dataset. It is kept alive by the new one, and with it the Python functions, tables and
    caches that the graph only refers to; the options in the graph are set again, for Python code that reads
    ``options()``.
    """
    end_iterators_at_exit()
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    dataset = dataset_ops._VariantDataset(variant, element_spec)
    if source is not None:
        setattr(dataset, SOURCE, source)
        options = options_lib.Options()
        options._from_proto(graph_options(graph))
        dataset = dataset.with_options(options)
        setattr(dataset, SOURCE, source)
    return dataset


def graph_of(dataset: Any, fix: str) -> Any:
    """The dataset's graph.

    Raises:
        InvalidInputError: it cannot be read, so that the fix does not apply.
    """
    try:
        return read_graph(dataset)
    except tf.errors.OpError as error:
        why = f"the dataset's graph cannot be read ({first_sentence(error)})"
        raise InvalidInputError(f"The fix {fix!r} does not apply: {why}") from error


def first_sentence(error: Any) -> str:
    """The first line of an error of TensorFlow's, without the place in its own graph, as a sentence."""
    text = error.message.strip().partition("\n")[0].rpartition("}} ")[2]
    return text if text.endswith(".") else f"{text}."


def named(registered: Registered) -> str:
    """A Python function of a dataset in a message, by its name, file and line."""
    place, name = locate(registered.user), display_name(registered.user)
    return name if place.file is None else f"{name} ({place.file}:{place.line})"


def does_not_apply(fix: str, why: str) -> InvalidInputError:
    """The error of a fix that fits nothing in the dataset, or would change nothing; ``why`` ends the sentence."""
    return InvalidInputError(f"The fix {fix!r} does not apply: {why}. Leave it out, or name another one.")


def flat_spec(node: Any, fix: str) -> tuple[tf.TensorSpec, ...]:
    """The element of a dataset node, flat: a ragged, sparse or nested component is a variant.

    Raises:
        InvalidInputError: the graph does not say what the node's elements are; ``fix`` is named in the message.
    """
    if _LINES.fullmatch(node.op):
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
        node.attr[key].list.SetInParent()
    node.attr["output_types"].list.type.extend(one.dtype.as_datatype_enum for one in spec)
    node.attr["output_shapes"].list.shape.extend(one.shape.as_proto() for one in spec)


def readers(graph: Any, name: str) -> list[Any]:
    """The nodes that read the named one, among those that lead to the result; one that reads twice is there twice."""
    ends = [node for node in graph.node if node.op == "_Retval"]
    return [node for node in (*dataset_nodes(graph), *ends) for one in node_inputs(node) if one == name]


def source_of(node: Any, by_name: Mapping[str, Any]) -> Any | None:
    """The dataset node that a node reads first; ``None`` where its first input is no dataset."""
    source = by_name.get(next(iter(node_inputs(node)), ""))
    return source if source is not None and is_dataset(source) else None


def ending_at(graph: Any, name: str) -> Any:
    """A copy of a graph whose result is the dataset that ends at the named node."""
    edited = copied(graph)
    _result(edited).input[0] = name
    return edited


def is_endless(graph: Any, name: str) -> bool:
    """Whether the dataset that ends at the named node never does, as far as TensorFlow knows."""
    variant = tf.raw_ops.DatasetFromGraph(graph_def=ending_at(graph, name).SerializeToString())
    return int(tf.raw_ops.DatasetCardinality(input_dataset=variant)) == tf.data.INFINITE_CARDINALITY


def add_functions(graph: Any, functions: Iterable[Any]) -> None:
    """Put functions into a graph's library, in place, but for those of whose names it has one."""
    known = {function.signature.name for function in graph.library.function}
    graph.library.function.extend(one for one in functions if one.signature.name not in known)


def end(graph: Any) -> Any:
    """The dataset node whose elements the graph yields."""
    last = node_inputs(_result(graph))[0]
    return next(node for node in graph.node if node.name == last)


def _result(graph: Any) -> Any:
    return next(node for node in graph.node if node.op == "_Retval")
