"""Fixes on real pipelines: same elements, options and Python functions intact, and faster where they should be."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.equality import same_elements
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.pipeline.read import inspect


def double(x):
    return x * 2


def call(x):
    return tf.numpy_function(double, [x], tf.int64)


def eager(x):
    return tf.py_function(double, [x], tf.int64)


def ones(n):
    return tf.ones([n % 7 + 1])


def generate():
    for i in range(30):
        yield i, np.full(i % 3, i)


def numbers():
    return tf.data.Dataset.range(40)


def lookup():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
    return tf.data.Dataset.from_tensor_slices(["a", "b", "c"]).map(table.lookup)


PIPELINES = {
    "numpy_function": lambda: numbers().map(call).batch(4),
    "py_function": lambda: numbers().map(eager).batch(4),
    "generator": lambda: tf.data.Dataset.from_generator(
        generate, output_signature=(tf.TensorSpec((), tf.int64), tf.TensorSpec((None,), tf.int64))
    ),
    "parallel_map": lambda: numbers().map(call, num_parallel_calls=2),
    "interleave": lambda: numbers().interleave(lambda i: tf.data.Dataset.range(i).map(call), cycle_length=3),
    "parallel_interleave": lambda: numbers().interleave(tf.data.Dataset.range, cycle_length=3, num_parallel_calls=2),
    "padded_batch": lambda: numbers().map(ones).padded_batch(4),
    "buckets": lambda: numbers().map(ones).bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3, 5], [2, 2, 2]),
    "cache": lambda: numbers().map(call).cache(),
    "shuffle": lambda: numbers().map(call).shuffle(8),
    "prefetch": lambda: numbers().prefetch(2).map(call).prefetch(2),
    "zip": lambda: tf.data.Dataset.zip((numbers(), numbers().map(call).concatenate(numbers()))),
    "table": lookup,
    "filter": lambda: numbers().filter(lambda x: x % 3 == 0).map(call),
    "ragged": lambda: numbers().map(lambda n: tf.RaggedTensor.from_row_lengths(tf.range(n), [n])),
    "strings": lambda: numbers().map(tf.strings.as_string),
}


@pytest.mark.parametrize("name", [name for name in PIPELINES if name not in {"generator", "interleave"}])
@pytest.mark.parametrize("fix", ["parallel-map", "prefetch"])
def test_a_fix_that_applies_keeps_every_element(name, fix):
    dataset = PIPELINES[name]()
    ops = [op.op for op in inspect(dataset).ops]
    applies = {
        "parallel-map": "MapDataset" in ops,
        "prefetch": ops[-1] != "PrefetchDataset",
    }
    if applies[fix]:
        assert same_elements(dataset, apply(dataset, fix), count=30) is True
    else:
        with pytest.raises(InvalidInputError, match="does not apply"):
            apply(dataset, fix)


def test_options_survive_a_round_trip():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 5
    options.deterministic = False
    options.autotune.enabled = False
    fixed = apply(numbers().map(call).with_options(options).batch(2), "parallel-map")
    pipeline = inspect(fixed)
    assert (pipeline.threadpool_size, pipeline.deterministic, pipeline.autotune) == (5, False, False)
    assert fixed.options().threading.private_threadpool_size == 5


def test_python_functions_outlive_the_original_dataset():
    def make():
        offset = np.int64(5)
        return apply(numbers().map(lambda x: tf.numpy_function(lambda y: y + offset, [x], tf.int64)), "parallel-map")

    fixed = make()
    gc.collect()
    assert [int(x) for x in fixed.take(3)] == [5, 6, 7]
