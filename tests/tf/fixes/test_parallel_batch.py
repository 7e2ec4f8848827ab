"""Batches put together in parallel."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.parallel.rewrite import parallel_batch
from xttsbench.pipeline.read import inspect, read_graph


def rows(**batch):
    slices = tf.data.Dataset.from_tensor_slices({"x": np.arange(66).reshape(22, 3), "y": [str(i) for i in range(22)]})
    return slices.batch(2, drop_remainder=True).batch(4, **batch)


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("calls", [-1, 3])
def test_batches_and_the_last_smaller_one_are_the_same(calls, drop_remainder, yielded, built):
    dataset = rows(drop_remainder=drop_remainder)
    graph = read_graph(dataset)
    before = graph.SerializeToString(deterministic=True)
    edited = parallel_batch(graph, calls=calls)
    assert graph.SerializeToString(deterministic=True) == before
    ops = inspect(dataset, edited).ops
    assert [(op.op, op.parallelism, op.deterministic) for op in ops[1:]] == [
        ("ParallelBatchDataset", calls, "true")
    ] * 2
    assert [op.name for op in ops] == [op.name for op in inspect(dataset, graph).ops]
    fixed = built(edited, dataset)
    assert fixed.element_spec == dataset.element_spec
    assert yielded(fixed) == yielded(dataset)


def test_ragged_rows_become_the_same_batches(yielded, built):
    ragged = tf.data.Dataset.range(9).map(lambda n: tf.RaggedTensor.from_row_lengths(tf.range(n), [n]))
    dataset = ragged.batch(4)
    assert yielded(built(parallel_batch(read_graph(dataset)), dataset)) == yielded(dataset)


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: tf.data.Dataset.range(9).padded_batch(4),
        lambda: tf.data.Dataset.range(9).batch(4, num_parallel_calls=2),
        lambda: tf.data.Dataset.range(9),
    ],
)
def test_without_a_sequential_batch_it_is_refused(dataset):
    with pytest.raises(InvalidInputError, match="'parallel-batch' does not apply: the dataset has no sequential batch"):
        parallel_batch(read_graph(dataset()))
