"""Fixes as edits of a dataset's graph: small pure functions ``GraphDef -> GraphDef``, and a table of them by name.

An edited graph copies the data embedded in it (see :mod:`xttsbench.pipeline.graph`). Options come along; an
in-memory cache and the seeds of ``shuffle`` are shared with the original dataset, so the two are timed in processes of
their own and compared by :mod:`xttsbench.pipeline.equality`; variables and ``tf.random.Generator`` objects are copied
with the value that they have, tables with their contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from xttsbench.errors import InvalidInputError
from xttsbench.pipeline.construction import SOURCE
from xttsbench.pipeline.graph import dataset_inputs, dataset_nodes, read_graph


def from_graph(graph: Any, element_spec: Any, *, source: Any = None) -> Any:
    """A dataset from a graph; ``element_spec`` is that of the original.

    ``source`` is the original dataset. It is kept alive by the new one, and with it the Python functions, tables and
    caches that the graph only refers to; its options are set again, for Python code that reads ``options()``.
    """
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    dataset = dataset_ops._VariantDataset(variant, element_spec)
    if source is not None:
        setattr(dataset, SOURCE, source)
        dataset = dataset.with_options(source.options())
        setattr(dataset, SOURCE, source)
    return dataset


def parallel_map(graph: Any, *, calls: int = tf.data.AUTOTUNE) -> Any:
    """Every sequential ``map`` of the outer pipeline made parallel, order kept.

    A ``map`` inside the function of ``interleave`` or ``flat_map`` stays: there the outer op is the one to make
    parallel. The graph is returned unchanged where there is none.
    """
    edited = _copy(graph)
    for node in [node for node in edited.node if node.op == "MapDataset"]:
        count = _constant(edited, f"{node.name}/num_parallel_calls", calls)
        data = [name for name in node.input if not name.startswith("^")]
        control = [name for name in node.input if name.startswith("^")]
        del node.input[:]
        node.input.extend([*data, count, *control])
        node.op = "ParallelMapDatasetV2"
        node.attr.pop("force_synchronous", None)
        node.attr["deterministic"].s = b"true"
    return edited


def drop_inner_prefetch(graph: Any) -> Any:
    """Every prefetch of the outer pipeline taken out but the last one."""
    prefetches = [node.name for node in dataset_nodes(graph) if node.op == "PrefetchDataset"]
    return without_nodes(graph, prefetches[:-1])


def without_nodes(graph: Any, names: list[str]) -> Any:
    """A graph without the named dataset nodes; what read them reads their input instead."""
    edited = _copy(graph)
    by_name = {node.name: node for node in edited.node}
    bypass = {name: dataset_inputs(by_name[name], by_name)[0] for name in names}
    for node in edited.node:
        for number, name in enumerate(node.input):
            node.input[number] = _past(name, bypass)
    return edited


def apply(dataset: Any, name: str) -> Any:
    """The dataset with one fix, a name of :data:`FIXES` or ``thread-pool:<n>``, or with several joined by `` + ``.

    Raises:
        InvalidInputError: there is no such fix, or it would change nothing in this dataset.
    """
    first, _, others = name.partition(" + ")
    if others:
        return apply(apply(dataset, first), others)
    if name.startswith("thread-pool:"):
        return _thread_pool(dataset, name.removeprefix("thread-pool:"))
    if name not in FIXES:
        raise InvalidInputError(f"There is no fix named {name!r}. Use one of {', '.join(FIXES)}, thread-pool:<n>.")
    return FIXES[name](dataset)


def _parallel_map(dataset: Any) -> Any:
    graph = _graph(dataset, "parallel-map")
    if not any(node.op == "MapDataset" for node in dataset_nodes(graph)):
        raise InvalidInputError("The fix 'parallel-map' does not apply: the dataset has no sequential map.")
    return from_graph(parallel_map(graph), dataset.element_spec, source=dataset)


def _prefetch(dataset: Any) -> Any:
    try:
        ops = [node.op for node in dataset_nodes(read_graph(dataset)) if node.op != "OptionsDataset"]
    except tf.errors.OpError:  # no graph is needed to append an op
        ops = []
    if ops and ops[-1] == "PrefetchDataset":
        raise InvalidInputError("The fix 'prefetch' does not apply: the dataset ends in a prefetch already.")
    return dataset.prefetch(tf.data.AUTOTUNE)


def _drop_prefetch(dataset: Any) -> Any:
    graph = _graph(dataset, "drop-prefetch")
    count = sum(node.op == "PrefetchDataset" for node in dataset_nodes(graph))
    if count < 2:
        raise InvalidInputError(
            f"The fix 'drop-prefetch' does not apply: the dataset has {count} prefetch, not several."
        )
    return from_graph(drop_inner_prefetch(graph), dataset.element_spec, source=dataset)


FIXES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "parallel-map": _parallel_map,
    "prefetch": _prefetch,
    "drop-prefetch": _drop_prefetch,
}
"""Fixes by name; ``thread-pool:<n>`` is the one with a parameter."""


def _thread_pool(dataset: Any, size: str) -> Any:
    if not size.isdecimal() or int(size) < 1:
        raise InvalidInputError(f"thread-pool:<n> needs a positive whole number of threads; received {size!r}.")
    options = tf.data.Options()
    options.threading.private_threadpool_size = int(size)
    return dataset.with_options(options)


def _graph(dataset: Any, fix: str) -> Any:
    try:
        return read_graph(dataset)
    except tf.errors.OpError as error:
        raise InvalidInputError(
            f"The fix {fix!r} does not apply: the dataset's graph cannot be read ({error.message})."
        ) from error


def _past(name: str, bypass: Mapping[str, str]) -> str:
    while name in bypass:
        name = bypass[name]
    return name


def _constant(graph: Any, name: str, value: int) -> str:
    node = graph.node.add(name=name, op="Const")
    node.attr["dtype"].type = tf.int64.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))
    return name


def _copy(graph: Any) -> Any:
    edited = tf.compat.v1.GraphDef()
    edited.CopyFrom(graph)
    return edited
