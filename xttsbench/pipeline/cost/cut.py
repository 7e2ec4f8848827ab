"""A pipeline's graph cut at its ops: the dataset that ends at each op, and each op over other elements than its own.

The pieces are built by importing parts of the graph into functions, so that nothing needs to be known of the user's
element structure: the tensors that pass between dataset ops are flat, and each op's node names their types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from xttsbench.pipeline.graph.read import constant_input, dataset_inputs, dataset_nodes, is_dataset, node_inputs

_FED_BYTES: Final = 2**20
"""Constants from this size on are handed to the imported function instead of being copied into its graph."""

Spec = tuple[tf.TensorSpec, ...]


class Cut:
    """The pieces of one graph. It holds no iterator, so it runs nothing of the user's."""

    def __init__(self, graph: Any) -> None:
        """Take a ``GraphDef`` as ``DatasetToGraphV2`` gives it.

        Raises:
            tf.errors.OpError, ValueError: TensorFlow does not take the graph apart.
        """
        self._by_name = {node.name: node for node in graph.node}
        self._library = graph.library
        self._fed = _large_constants(graph)
        self.names = tuple(node.name for node in dataset_nodes(graph))
        self._variants = dict(zip(self.names, self._import(list(self.names), {}), strict=True))

    def variant(self, name: str) -> Any:
        """The dataset (a variant tensor) that ends at an op, with all that it reads."""
        return self._variants[name]

    def cardinality(self, name: str) -> int:
        """Elements of the dataset that ends at an op; -1 infinite, -2 unknown."""
        return int(tf.raw_ops.DatasetCardinality(input_dataset=self._variants[name]).numpy())

    def inputs(self, name: str) -> tuple[str, ...]:
        """Names of the dataset ops that an op reads."""
        return tuple(dataset_inputs(self._by_name[name], self._by_name))

    def op(self, name: str) -> str:
        """Type of an op."""
        return str(self._by_name[name].op)

    def batch_size(self, name: str) -> int | None:
        """Elements that a batching op puts together, where that is constant."""
        return constant_input(self._by_name[name], "batch_size", self._by_name)

    def over(self, name: str, inputs: dict[str, Any]) -> Any:
        """An op over other datasets (variant tensors) in place of those that it reads, by their names."""
        return self._import([name], inputs)[0]

    def spec(self, name: str) -> Spec:
        """Types and shapes of an op's elements, flat: a ragged or nested component is a variant."""
        attributes = self._by_name[name].attr
        types = attributes["output_types" if "output_types" in attributes else "Toutput_types"].list.type
        shapes = attributes["output_shapes"].list.shape
        return tuple(
            tf.TensorSpec(tf.TensorShape(shape), tf.as_dtype(kind)) for kind, shape in zip(types, shapes, strict=True)
        )

    def _import(self, names: list[str], replaced: dict[str, Any]) -> list[Any]:
        part = self._part(names, set(replaced))
        fed = {name: value for name, value in self._fed.items() if name in {node.name for node in part.node}}
        arguments = {**replaced, **fed}

        def build(*placeholders: Any) -> Any:
            given = {f"{name}:0": tensor for name, tensor in zip(arguments, placeholders, strict=True)}
            return tf.graph_util.import_graph_def(
                part, input_map=given, return_elements=[f"{name}:0" for name in names], name=""
            )

        signature = [tf.TensorSpec(value.shape, value.dtype) for value in arguments.values()]
        with tf.device("/CPU:0"):
            function = tf.compat.v1.wrap_function(build, signature)
            found = function(*arguments.values())
        return list(found) if isinstance(found, list | tuple) else [found]

    def _part(self, names: Sequence[str], replaced: set[str]) -> Any:
        """The nodes that the named ones need, without those behind the replaced ones."""
        part = tf.compat.v1.GraphDef()
        part.library.CopyFrom(self._library)
        waiting, seen = list(names), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._by_name:
                continue
            seen.add(name)
            node = self._by_name[name]
            copied = part.node.add()
            if name in replaced or name in self._fed:  # a stand-in for the importer to map away
                copied.name, copied.op = name, "Placeholder"
                kind = tf.variant if is_dataset(node) else tf.as_dtype(node.attr["dtype"].type)
                copied.attr["dtype"].type = kind.as_datatype_enum
                continue
            copied.CopyFrom(node)
            waiting.extend([*node_inputs(node), *(i[1:] for i in node.input if i.startswith("^"))])
        return part


def windowed(variant: Any, spec: Spec, size: int) -> Any:
    """A dataset of windows of ``size`` elements: one ``next`` draws that many within TensorFlow and holds them.

    Autotune and the rewrites are off. An element is one dataset (a variant tensor) per component.
    """
    scalars = [tf.TensorShape([])] * len(spec)
    windows = tf.raw_ops.WindowDataset(
        input_dataset=variant,
        size=size,
        shift=size,
        stride=1,
        drop_remainder=False,
        output_types=[tf.variant] * len(spec),
        output_shapes=scalars,
    )
    return dataset(windows, tuple(tf.TensorSpec([], tf.variant) for _ in spec))


def dataset(variant: Any, spec: Spec) -> Any:
    """A Python dataset of flat tuples over a variant tensor, with autotune and the rewrites off."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return dataset_ops._VariantDataset(variant, spec).with_options(options)


def _large_constants(graph: Any) -> dict[str, Any]:
    large = [n for n in graph.node if n.op == "Const" and n.attr["value"].tensor.ByteSize() >= _FED_BYTES]
    with tf.device("/CPU:0"):
        return {node.name: tf.constant(tf.make_ndarray(node.attr["value"].tensor)) for node in large}
