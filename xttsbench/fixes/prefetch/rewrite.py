"""Prefetches: one more at the end, or fewer in the middle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from xttsbench.fixes.graph.added import appended
from xttsbench.fixes.graph.edit import copied, does_not_apply
from xttsbench.pipeline.graph.nodes import dataset_inputs, dataset_nodes


def append_prefetch(graph: Any, *, elements: int = tf.data.AUTOTUNE) -> Any:
    """A prefetch of so many elements after everything but the options that end the pipeline.

    Raises:
        InvalidInputError: the pipeline ends in a prefetch already.
    """
    if ends_in_prefetch(graph):
        raise does_not_apply(
            "prefetch", "the dataset ends in a prefetch already (buffer:<n> has the last one hold n elements)"
        )
    edited = copied(graph)
    appended(edited, "PrefetchDataset", fix="prefetch", inputs={"buffer_size": elements}, within_options=True)
    return edited


def ends_in_prefetch(graph: Any) -> bool:
    """Whether a prefetch is the last op, options apart."""
    ops = [node.op for node in dataset_nodes(graph) if node.op != "OptionsDataset"]
    return ops[-1:] == ["PrefetchDataset"]


def drop_inner_prefetch(graph: Any) -> Any:
    """Every prefetch of the outer pipeline taken out but the last one.

    Raises:
        InvalidInputError: there are not several.
    """
    prefetches = [node.name for node in dataset_nodes(graph) if node.op == "PrefetchDataset"]
    if len(prefetches) < 2:
        raise does_not_apply("drop-prefetch", f"the dataset has {len(prefetches)} prefetch, not several")
    return without_nodes(graph, prefetches[:-1])


def without_nodes(graph: Any, names: Iterable[str]) -> Any:
    """A graph without the named dataset nodes; what read them reads their input instead."""
    edited = copied(graph)
    by_name = {node.name: node for node in edited.node}
    bypass = {name: dataset_inputs(by_name[name], by_name)[0] for name in names}
    for node in edited.node:
        for number, name in enumerate(node.input):
            node.input[number] = _past(name, bypass)
    return edited


def _past(name: str, bypass: Mapping[str, str]) -> str:
    while name in bypass:
        name = bypass[name]
    return name
