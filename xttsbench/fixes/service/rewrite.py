"""A dataset's graph with a part of it on workers of the tf.data service, which run on this machine."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from xttsbench.fixes.graph.edit import add_functions, does_not_apply, end, ending_at, flat_spec, from_graph
from xttsbench.fixes.service.leaving import SPLITS, leaving
from xttsbench.pipeline.nodes import copied, dataset_nodes, node_inputs, node_of, redirect
from xttsbench.pipeline.read import described, read_graph
from xttsbench.records.pipeline import kind_of_op
from xttsbench.service import Cluster, loopback

_CUT: Final = ("Take", "Skip", "Concatenate")
_open = contextlib.ExitStack()
"""Clusters of this process, which end with it."""


def served(graph: Any, *, workers: int, after: str | None = None) -> Any:
    """The graph whose ops up to ``after`` run on so many workers; by default all that can leave.

    The workers are started with the first dataset that asks for as many, and end with this process.

    Raises:
        InvalidInputError: nothing can leave, or what would cross is no plain tensor.
    """
    return moved(graph, workers, f"service:{workers}", after)


def moved(graph: Any, cluster: Cluster | int, fix: str, after: str | None = None, *, endless: bool = False) -> Any:
    """The graph whose ops up to ``after``, by default all that can leave, run on that cluster, or on so many workers.

    ``endless`` repeats what leaves, on the workers; ``fix`` is named in messages.

    Raises:
        InvalidInputError: nothing can leave, or what would cross is no plain tensor.
    """
    if after is None:
        found = leaving(described(graph))
        if found.after is None:
            raise does_not_apply(fix, found.refused or "nothing can leave")
        after = found.after
    before = ending_at(graph, after)
    spec = flat_spec(end(before), fix)
    if any(one.dtype in (tf.variant, tf.resource) for one in spec):
        raise does_not_apply(fix, f"elements of {after} are ragged, sparse or nested, and cross only as plain tensors")
    variant = tf.raw_ops.DatasetFromGraph(graph_def=before.SerializeToString())
    dataset = dataset_ops._VariantDataset(variant, spec if len(spec) > 1 else spec[0])
    if endless:
        dataset = dataset.repeat()
    policy = tf.data.experimental.service.ShardingPolicy.DYNAMIC
    target = (started(cluster) if isinstance(cluster, int) else cluster).target
    # What crosses a loopback, or a network of 10 Gbit/s, is compressed for nothing: it costs processor time.
    distribute = tf.data.experimental.service.distribute(policy, target, compression=None)
    return _replaced(graph, after, dataset.apply(distribute))


@functools.cache
def started(workers: int) -> Cluster:
    """The service of this process with so many workers."""
    return _open.enter_context(loopback(workers))


def listed(graph: Any) -> Any:
    """The graph whose sources hold what is left of them where they were cut, since a worker would cut its own share."""
    taken: list[str] = []
    for node in dataset_nodes(graph):
        inputs = [one for one in node_inputs(node) if one in {other.name for other in dataset_nodes(graph)}]
        if kind_of_op(node.op) in (_CUT if inputs else SPLITS) and set(inputs) <= set(taken):
            taken.append(node.name)
    read = {one for node in graph.node if node.name in taken for one in node_inputs(node)}
    for name in [one for one in taken if one not in read]:
        before = ending_at(graph, name)
        if kind_of_op(end(before).op) in SPLITS:
            continue
        spec = flat_spec(end(before), "service")
        elements = list(from_graph(before, spec))
        columns = tuple(tf.stack([one[number] for one in elements]) for number in range(len(spec)))
        graph = _replaced(graph, name, tf.data.Dataset.from_tensor_slices(columns))
    return graph


def _replaced(graph: Any, name: str, dataset: Any) -> Any:
    """A copy of the graph in which a dataset stands in the place of a node and all that feeds that alone."""
    edited, new = copied(graph), read_graph(dataset)
    for node in new.node:
        node.input[:] = [f"^{name}/by/{node_of(one)}" if one[0] == "^" else f"{name}/by/{one}" for one in node.input]
        node.name = f"{name}/by/{node.name}"
    result = end(new).name
    redirect(edited.node, {name: result})
    edited.node.extend(node for node in new.node if node.op != "_Retval")
    add_functions(edited, new.library.function)
    kept = _leading_to({node.name: node for node in edited.node}, [n.name for n in edited.node if n.op == "_Retval"])
    for node in [one for one in edited.node if one.name not in kept]:
        edited.node.remove(node)
    return edited


def _leading_to(by_name: dict[str, Any], ends: list[str]) -> Collection[str]:
    """Names of some nodes and of all that they read or wait for."""
    found, waiting = set[str](), ends
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += map(node_of, by_name[name].input)
    return found
