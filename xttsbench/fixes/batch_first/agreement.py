"""Whether a map yields the same on batches as on single elements: both orders run on a few elements of the pipeline."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.graph.edit import data_inputs, free_name, set_inputs
from xttsbench.fixes.graph.splice import ending_at, set_spec
from xttsbench.pipeline.cost.cut import TRANSPARENT, Cut, bypassed, dataset, sequential

_ELEMENTS: Final = 5
_BATCH: Final = 3
"""Elements of a batch: there is a whole one and a smaller one after it, whatever the pipeline's own size."""
_LEFT_OUT: Final = re.compile(f"{TRANSPARENT.pattern}|^Shuffle")
_RELATIVE: Final = 1e-3
_ABSOLUTE: Final = 1e-5
"""Floats may differ by so much: what is summed in another order is rounded otherwise. The caller compares exactly."""


def agree(graph: Any, edited: Any, source: str, mapped: str, batch: str) -> bool:
    """Whether map and batch yield the same in both orders, on the first elements that come to them.

    Caches, shuffles and the like before them are left out, so that none is filled by this.

    Args:
        graph: with the map before the batch.
        edited: the same with the batch before the map.
        source: name of the op that the first of the two reads.
        mapped: name of the map.
        batch: name of the batch.

    Returns:
        ``True`` also where no elements come, so that there is nothing to compare.

    Raises:
        tf.errors.OpError, ValueError: the pipeline fails on these elements, or cannot be taken apart.
    """
    before = Cut(sequential(bypassed(ending_at(graph, mapped), _LEFT_OUT)))
    (reached,) = before.inputs(mapped)
    elements = list(itertools.islice(dataset(before.variant(reached), before.spec(reached)), _ELEMENTS))
    if not elements:
        return True
    held = tf.data.Dataset.from_tensor_slices(tuple(tf.stack(parts) for parts in zip(*elements, strict=True)))
    old = _batches(graph, source, (mapped, batch), batch, held)
    new = _batches(edited, source, (batch, mapped), batch, held)
    return len(old) == len(new) and all(
        _close(one, other) for pair in zip(old, new, strict=True) for one, other in zip(*pair, strict=True)
    )


def _batches(graph: Any, source: str, order: Sequence[str], batch: str, held: Any) -> list[list[Any]]:
    cut = Cut(_in_threes(ending_at(graph, order[-1]), batch))
    variant, name = held._variant_tensor, source
    for following in order:
        variant, name = cut.over(following, {name: variant}), following
    spec = tuple(tf.TensorSpec(None, part.dtype) for part in cut.spec(name))
    return [[part.numpy() for part in element] for element in dataset(variant, spec)]


def _in_threes(graph: Any, name: str) -> Any:
    """The graph, edited in place, in which the named batch has three elements and the last may have fewer."""
    node = next(one for one in graph.node if one.name == name)
    spec = [
        tf.TensorSpec(tf.TensorShape([None]).concatenate(tf.TensorShape(shape)[1:]), tf.as_dtype(kind))
        for kind, shape in zip(node.attr["output_types"].list.type, node.attr["output_shapes"].list.shape, strict=True)
    ]
    set_spec(node, spec)
    inputs = data_inputs(node)
    inputs[1] = _constant(graph, f"{name}/three", _BATCH, tf.int64)
    inputs[3 if node.op == "ParallelBatchDataset" else 2] = _constant(graph, f"{name}/whole", False, tf.bool)
    set_inputs(node, inputs)
    return graph


def _constant(graph: Any, name: str, value: Any, kind: tf.DType) -> str:
    node = graph.node.add(name=free_name(graph, name), op="Const")
    node.attr["dtype"].type = kind.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, kind))
    return str(node.name)


def _close(old: Any, new: Any) -> bool:
    old, new = np.asarray(old), np.asarray(new)
    if old.shape != new.shape or old.dtype != new.dtype:
        return False
    if old.dtype.kind in "fcV":  # bfloat16 is of kind V
        first, second = old.astype(np.complex128), new.astype(np.complex128)
        return bool(np.allclose(first, second, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True))
    return bool(np.array_equal(old, new))
