"""A graph taken apart: without concurrency, and each dataset op of it over elements that are held.

Stages that run at the same time hide one another's cost, and threads that wait for a processor add to it. So parallel
ops become their sequential twins, and prefetches are taken out: the time of a run is then the sum of what its ops cost.

The pieces are built by importing parts of the graph into functions, so that nothing needs to be known of the user's
element structure: the tensors that pass between dataset ops are flat, and each op's node names their types.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.framework import op_def_registry

from xttsbench.pipeline import nodes

_TWINS: Final = {
    "ParallelMapDataset": "MapDataset",
    "ParallelMapDatasetV2": "MapDataset",
    "ParallelFilterDataset": "FilterDataset",
    "ParallelBatchDataset": "BatchDatasetV2",
    "ParallelInterleaveDatasetV2": "InterleaveDataset",
    "ParallelInterleaveDatasetV3": "InterleaveDataset",
    "ParallelInterleaveDatasetV4": "InterleaveDataset",
    "LegacyParallelInterleaveDatasetV2": "InterleaveDataset",
}
_CONCURRENT: Final = {*_TWINS, "PrefetchDataset"}
_SUFFIX: Final = "_xttsbench_sequential"  # TensorFlow keeps one function of a name per process
TRANSPARENT: Final = re.compile(
    r"^(Cache|Options|Prefetch|Repeat|Skip|Snapshot|Take|Save|AssertCardinality|Model)Dataset"
)
"""Ops that hand on the elements of their input, and that mean the whole epoch (or a file) rather than an element."""


def sequential_node(node: Any) -> None:
    """Turn a parallel dataset node of a ``GraphDef`` or a function into its sequential twin, in place."""
    twin = _TWINS.get(node.op)
    if twin is None:
        return
    after = op_def_registry.get(twin)
    wanted = {argument.name for argument in after.input_arg}
    nodes.set_inputs(node, [name for argument, name in nodes.named_inputs(node) if argument in wanted])
    node.op = twin
    known = {attribute.name for attribute in after.attr}
    for name in [name for name in node.attr if name not in known and not name.startswith("_")]:
        del node.attr[name]


def sequential(graph: Any) -> Any:
    """A copy of a graph in which no dataset op, in its functions neither, runs anything beside its reader.

    Prefetches in its functions are taken out; those of the outer pipeline stay (see :func:`bypassed`).
    """
    edited = nodes.copied(graph)
    changed = {f.signature.name for f in edited.library.function if any(n.op in _CONCURRENT for n in f.node_def)}
    if changed:
        renamed = with_callers(edited.library.function, changed)
        for function in edited.library.function:
            if function.signature.name in renamed:
                function.signature.name += _SUFFIX
            _without_prefetch(function)
            for node in function.node_def:
                sequential_node(node)
                rename_calls(node, renamed, _SUFFIX)
        for node in edited.node:
            rename_calls(node, renamed, _SUFFIX)
    for node in edited.node:
        sequential_node(node)
    return edited


def bypassed(graph: Any, kinds: re.Pattern[str]) -> Any:
    """A copy of a graph without the dataset ops of some kinds: their readers read their (first) input instead."""
    edited = nodes.copied(graph)
    by_name = {node.name: node for node in edited.node}
    past = {n.name: nodes.dataset_inputs(n, by_name)[0] for n in nodes.dataset_nodes(edited) if kinds.match(n.op)}
    nodes.redirect(edited.node, past)
    return edited


def _without_prefetch(function: Any) -> None:
    prefetches = [node for node in function.node_def if node.op == "PrefetchDataset"]
    past = {f"{node.name}:handle:0": node.input[0] for node in prefetches}
    nodes.redirect(function.node_def, past, function.ret)
    for node in prefetches:
        function.node_def.remove(node)


def with_callers(functions: Iterable[Any], changed: Collection[str]) -> set[str]:
    """The names of changed functions and of all that reach them."""
    calls = {f.signature.name: {c for n in f.node_def for c in (n.op, *nodes.called(n))} for f in functions}
    found = set(changed)
    while more := {name for name, reached in calls.items() if name not in found and reached & found}:
        found |= more
    return found


def rename_calls(node: Any, renamed: Collection[str], suffix: str) -> None:
    """Let a node that calls functions of some names call those with a suffix, in place."""
    if node.op in renamed:
        node.op += suffix
    for value in node.attr.values():
        if value.HasField("func") and value.func.name in renamed:
            value.func.name += suffix
        for function in value.list.func:
            if function.name in renamed:
                function.name += suffix


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
        large = [n for n in graph.node if n.op == "Const" and n.attr["value"].tensor.ByteSize() >= _FED_BYTES]
        with tf.device("/CPU:0"):
            self._fed = {node.name: tf.constant(nodes.array_of(node.attr["value"].tensor)) for node in large}
        self.names = tuple(node.name for node in nodes.dataset_nodes(graph))
        self._variants = dict(zip(self.names, self._import(list(self.names), {}), strict=True))

    def variant(self, name: str) -> Any:
        """The dataset (a variant tensor) that ends at an op, with all that it reads."""
        return self._variants[name]

    def cardinality(self, name: str) -> int:
        """Elements of the dataset that ends at an op; -1 infinite, -2 unknown."""
        return int(tf.raw_ops.DatasetCardinality(input_dataset=self._variants[name]).numpy())

    def inputs(self, name: str) -> tuple[str, ...]:
        """Names of the dataset ops that an op reads."""
        return tuple(nodes.dataset_inputs(self._by_name[name], self._by_name))

    def op(self, name: str) -> str:
        """Type of an op."""
        return str(self._by_name[name].op)

    def batch_size(self, name: str) -> int | None:
        """Elements that a batching op puts together, where that is constant."""
        return nodes.constant_input(self._by_name[name], "batch_size", self._by_name)

    def over(self, name: str, inputs: dict[str, Any]) -> Any:
        """An op over other datasets (variant tensors) in place of those that it reads, by their names."""
        return self._import([name], inputs)[0]

    def spec(self, name: str) -> Spec:
        """Types and shapes of an op's elements, flat: a ragged or nested component is a variant."""
        attributes = self._by_name[name].attr
        types = attributes["output_types" if "output_types" in attributes else "Toutput_types"].list.type
        shapes = map(tf.TensorShape, attributes["output_shapes"].list.shape)
        return tuple(tf.TensorSpec(*one) for one in zip(shapes, types, strict=True))

    def _import(self, names: list[str], replaced: dict[str, Any]) -> list[Any]:
        part = self._part(names, set(replaced))
        arguments = replaced | {node.name: self._fed[node.name] for node in part.node if node.name in self._fed}

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
            own = part.node.add()
            if name in replaced or name in self._fed:  # a stand-in for the importer to map away
                own.name, own.op = name, "Placeholder"
                kind = tf.variant if nodes.is_dataset(node) else tf.as_dtype(node.attr["dtype"].type)
                own.attr["dtype"].type = kind.as_datatype_enum
                continue
            own.CopyFrom(node)
            waiting.extend([*nodes.node_inputs(node), *(i[1:] for i in node.input if i.startswith("^"))])
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
    return without_rewrites(dataset_ops._VariantDataset(variant, spec))


def without_rewrites(dataset: Any) -> Any:
    """A dataset with autotune and the rewrites off."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)
