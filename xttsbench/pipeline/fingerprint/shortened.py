"""A dataset whose sources end early, so that whole epochs can be seen, and more than one of them.

The same cut is made in a pipeline and in its fixed copy: sources keep their names, and what is inside the functions
that open files, ranges or generators is no fix's business. What comes after the sources (shuffle, cache) stays, but
for a repetition without an end: it repeats twice, since samples that are never all seen cannot be told to be the same.
A cache on disk is one in memory here: its file would be read later as if it held the whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.graph.library import FunctionLibrary, called
from xttsbench.pipeline.graph.nodes import constant_input, dataset_inputs, dataset_nodes, node_inputs, text_inputs

_OPENS: Final = re.compile(r"(FlatMap|Interleave|ParallelInterleave|LegacyParallelInterleave)Dataset(V\d+)?")
"""Ops whose function makes a dataset for each element."""
_READERS: Final = re.compile(r"(TFRecord|TextLine|FixedLengthRecord|Range|Generator)Dataset(V\d+)?")
"""Sources inside functions that go on for long; slices of an element are as long as the element says."""
_STRINGS: Final = re.compile(r"(TFRecord|TextLine|FixedLengthRecord|MatchingFiles)Dataset(V\d+)?")
"""Sources that name no type: each element is one string."""


_ROUNDS: Final = 2
"""Of what repeats for ever: what is drawn anew in each of them shows in two."""


def shortened(graph: Any, count: int) -> Any:
    """The graph with at most ``count`` elements of each source; where files are read, of all of them together.

    A dataset node without dataset inputs is a source. In functions of ``flat_map`` and ``interleave`` (readers of
    files, generators and ranges are opened there) the readers are cut as well, each to its share of ``count``, at least
    one element.
    """
    edited = tf.compat.v1.GraphDef()
    edited.CopyFrom(graph)
    by_name = {node.name: node for node in edited.node}
    nodes = dataset_nodes(edited)
    sources = [node for node in nodes if not dataset_inputs(node, by_name) and _signature(node) is not None]
    opened = [_length(node, by_name) for node in sources]
    known = [min(length, count) for length in opened if length is not None]
    share = max(1, -(-count // max(1, *known))) if known and len(known) == len(sources) else count
    _cut_sources(edited, sources, count)
    _end_repetitions(edited, nodes)
    _keep_in_memory(edited, nodes)
    library = FunctionLibrary(edited.library.function)
    for function in library.functions([name for node in nodes if _OPENS.fullmatch(node.op) for name in called(node)]):
        _cut_readers(function, share)
    return edited


def _length(node: Any, by_name: Mapping[str, Any]) -> int | None:
    """Elements of a source that holds its tensors or counts; ``None`` where that cannot be read."""
    if node.op == "TensorDataset":
        return 1
    if node.op == "RangeDataset":
        bounds = [constant_input(node, name, by_name) for name in ("start", "stop", "step")]
        known = [bound for bound in bounds if bound is not None]
        return len(range(*known)) if len(known) == 3 and known[2] else None
    if node.op != "TensorSliceDataset":
        return None
    names = node_inputs(node)
    first = by_name.get(names[0]) if names else None
    for _ in range(20):
        if first is None or first.op != "Identity":
            break
        first = by_name.get(node_inputs(first)[0])
    if first is None or first.op != "Const":
        return None
    dimensions = first.attr["value"].tensor.tensor_shape.dim
    return int(dimensions[0].size) if dimensions else None


def _cut_sources(graph: Any, sources: list[Any], count: int) -> None:
    taken = {}
    names = {node.name for node in graph.node}
    for source in sources:
        name = _free(f"{source.name}/shortened", names)
        taken[source.name] = name
        names.update((name, f"{name}/count"))
    for node in graph.node:
        for number, reference in enumerate(node.input):
            if reference.split(":")[0] in taken:
                node.input[number] = taken[reference.split(":")[0]]
    for source in sources:
        name = taken[source.name]
        _constant(graph.node.add(), f"{name}/count", count)
        _take(graph.node.add(), name, source.name, f"{name}/count", source)


def _end_repetitions(graph: Any, nodes: list[Any]) -> None:
    """Have what repeats for ever repeat twice."""
    by_name = {node.name: node for node in graph.node}
    names = set(by_name)
    for node in nodes:
        forever = node.op == "ForeverRepeatDataset"
        if not forever and (node.op != "RepeatDataset" or (constant_input(node, "count", by_name) or 0) >= 0):
            continue
        name = _free(f"{node.name}/rounds", names)
        names.add(name)
        _constant(graph.node.add(), name, _ROUNDS)
        data, *others = node.input
        node.op = "RepeatDataset"
        del node.input[:]
        node.input.extend([data, name, *(other for other in others if other.startswith("^"))])


def _keep_in_memory(graph: Any, nodes: list[Any]) -> None:
    """Have caches on disk keep their elements in memory, in a store that nobody shares."""
    by_name = {node.name: node for node in graph.node}
    names = set(by_name)
    for node in nodes:
        if not node.op.startswith("CacheDataset") or text_inputs(node, "filename", by_name) == ("",):
            continue
        data, *others = node.input
        control = [other for other in others if other.startswith("^")]
        text = graph.node.add(name=_free(f"{node.name}/no_file", names), op="Const")
        text.attr["dtype"].type = tf.string.as_datatype_enum
        text.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("", tf.string))
        inputs = [data, text.name]
        if node.op == "CacheDatasetV2":
            store = graph.node.add(name=_free(f"{node.name}/own_store", names), op="DummyMemoryCache")
            inputs.append(store.name)
        names.update(inputs[1:])
        del node.input[:]
        node.input.extend([*inputs, *control])


def _cut_readers(function: Any, count: int) -> None:
    """Put a ``take`` after each reader of a function's body, and its name where the reader's was."""
    readers = [node for node in function.node_def if _READERS.fullmatch(node.op) and _signature(node) is not None]
    names = {node.name for node in function.node_def}
    for reader in readers:
        name = _free(f"{reader.name}/shortened", names)
        names.update((name, f"{name}/count"))
        was, now = f"{reader.name}:handle:0", f"{name}:handle:0"
        for node in function.node_def:
            for number, reference in enumerate(node.input):
                if reference == was:
                    node.input[number] = now
        for key, reference in list(function.ret.items()):
            if reference == was:
                function.ret[key] = now
        _constant(function.node_def.add(), f"{name}/count", count)
        _take(function.node_def.add(), name, was, f"{name}/count:output:0", reader)


def _take(node: Any, name: str, dataset: str, count: str, source: Any) -> None:
    node.name, node.op = name, "TakeDataset"
    node.input.extend([dataset, count])
    signature = _signature(source)
    if signature is not None:
        node.attr["output_types"].list.type.extend(signature[0])
        node.attr["output_shapes"].list.shape.extend(signature[1])


def _signature(source: Any) -> tuple[list[int], list[Any]] | None:
    """Types and shapes of a source's elements, ``None`` where nothing tells; readers of files yield strings."""
    for key in ("output_types", "Toutput_types"):
        if key in source.attr:
            types = list(source.attr[key].list.type)
            unknown = [tf.TensorShape(None).as_proto() for _ in types]
            return types, list(source.attr["output_shapes"].list.shape) or unknown
    if _STRINGS.fullmatch(source.op):
        return [tf.string.as_datatype_enum], [tf.TensorShape([]).as_proto()]
    return None


def _constant(node: Any, name: str, value: int) -> None:
    node.name, node.op = name, "Const"
    node.attr["dtype"].type = tf.int64.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))


def _free(name: str, taken: set[str]) -> str:
    number = 0
    while (found := name if not number else f"{name}_{number}") in taken:
        number += 1
    return found
