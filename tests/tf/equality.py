"""Whether two pipelines yield the same elements, bit for bit: the condition under which a fix may win."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from xttsbench.fixes.graph.edit import from_graph
from xttsbench.pipeline.nodes import copied, dataset_nodes, node_inputs, redirect
from xttsbench.pipeline.read import read_graph


def same_elements(original: Any, fixed: Any, *, count: int) -> bool | None:
    """Compare the first ``count`` elements: structure, dtype, shape and every bit.

    ``shuffle`` and caches are taken out of both first. Else nearly every pipeline would differ from itself, and the
    fixed one would be served from the original's cache; so a changed shuffle is not seen, nor meant to be. ``None``
    where the original differs from itself in two passes (random augmentation) or holds what cannot be compared
    (nested datasets). Three passes are made: two of the original, one of the other.
    """
    original, fixed = _comparable(original), _comparable(fixed)
    try:
        first = list(_bits(original, count))
        if first != list(_bits(original, count)):
            return None
        return first == list(_bits(fixed, count))
    except _IncomparableError:
        return None


class _IncomparableError(TypeError):
    """A component has no bits to compare."""


def _comparable(dataset: Any) -> Any:
    try:
        graph = read_graph(dataset)
    except tf.errors.OpError:
        return dataset
    removable = [node.name for node in dataset_nodes(graph) if node.op.startswith(("ShuffleDataset", "CacheDataset"))]
    if not removable:
        return dataset
    edited = copied(graph)
    by_name = {node.name: node for node in edited.node}
    for name in removable:
        redirect(edited.node, {name: node_inputs(by_name[name])[0]})
    return from_graph(edited, dataset.element_spec, source=dataset)


def _bits(dataset: Any, count: int) -> Iterator[tuple[Any, ...]]:
    """Per element: type, shape and bytes of every component, ragged and sparse ones taken apart."""
    for element in itertools.islice(dataset, count):
        components: list[Any] = []
        for component in tf.nest.flatten(element, expand_composites=True):
            if component is None:
                components.append(("None", (), b""))
                continue
            if not isinstance(component, tf.Tensor) or component.dtype in (tf.variant, tf.resource):
                raise _IncomparableError
            array = np.asarray(component.numpy())
            data = tuple(array.ravel()) if array.dtype == object else array.tobytes()
            components.append((component.dtype.name, array.shape, data))
        yield tuple(components)
