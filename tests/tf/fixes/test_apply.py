"""Fixes on real pipelines: same elements, options and Python functions intact, and faster where they should be."""

from __future__ import annotations

import gc
import itertools
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.tf.equality import same_elements
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph import apply
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.pipeline.read import inspect, read_graph


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


@pytest.mark.parametrize("name", PIPELINES)
def test_a_round_trip_keeps_every_element(name):
    dataset = PIPELINES[name]()
    copy = from_graph(read_graph(dataset), dataset.element_spec, source=dataset)
    assert copy.element_spec == dataset.element_spec
    assert same_elements(dataset, copy, count=30) is True


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


def test_parallel_map_changes_every_sequential_map_and_nothing_else():
    dataset = PIPELINES["prefetch"]().map(lambda x: x + 1, num_parallel_calls=2)
    before, after = inspect(dataset).ops, inspect(apply(dataset, "parallel-map")).ops
    assert [op.op for op in after] == [
        op.op.replace("MapDataset", "ParallelMapDatasetV2") if op.op == "MapDataset" else op.op for op in before
    ]
    changed = after[2]
    assert (changed.parallelism, changed.deterministic) == (-1, "true")
    assert changed.python_functions == before[2].python_functions


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


def test_a_blocking_map_gets_faster():
    def wait(x):
        time.sleep(0.02)
        return x

    dataset = tf.data.Dataset.range(48).map(lambda x: tf.numpy_function(wait, [x], tf.int64))
    fixed = apply(apply(dataset, "parallel-map"), "thread-pool:16")
    assert inspect(fixed).threadpool_size == 16

    def seconds(data):
        start = time.perf_counter()
        assert sum(1 for _ in data) == 48
        return time.perf_counter() - start

    assert seconds(dataset) > 2 * seconds(fixed)


@pytest.mark.parametrize(
    ("dataset", "fix", "message"),
    [
        (numbers, "parallel-map", "no sequential map"),
        (lambda: numbers().prefetch(1), "prefetch", "ends in a prefetch already"),
        (numbers, "thread-pool:0", "needs a positive whole number up to .* received '0'"),
        (numbers, "thread-pool:many", "received 'many'"),
        (numbers, "faster", "no fix named 'faster'"),
        (
            lambda: numbers().map(call).apply(tf.data.experimental.copy_to_device("/cpu:0")),
            "parallel-map",
            "cannot be read",
        ),
    ],
)
def test_a_fix_that_does_not_apply_says_why(dataset, fix, message):
    with pytest.raises(InvalidInputError, match=message):
        apply(dataset(), fix)


def test_a_changed_bit_is_seen_and_a_random_original_is_not_judged():
    floats = numbers().map(lambda x: tf.cast(x, tf.float32))
    assert same_elements(floats, floats.map(lambda x: x + 1e-6), count=10) is False
    assert same_elements(floats, floats.take(5), count=10) is False
    assert same_elements(floats, floats.map(lambda x: tf.cast(x, tf.float64)), count=10) is False
    assert same_elements(floats.map(lambda x: x / 0.0), floats.map(lambda x: x / 0.0), count=3) is True
    noisy = floats.map(lambda x: x + tf.random.uniform([]))
    assert same_elements(noisy, noisy, count=10) is None
    assert same_elements(numbers().window(2), numbers().window(2), count=3) is None


def test_a_function_whose_order_matters_is_caught():
    counter = itertools.count()

    def numbered(x):
        own = next(counter) % 40
        time.sleep(0.002 * (own % 2))
        return x + own

    dataset = numbers().map(lambda x: tf.numpy_function(numbered, [x], tf.int64)).cache()
    fixed = apply(apply(dataset, "parallel-map"), "thread-pool:8")
    changed = dataset.map(lambda x: x + 1)
    assert same_elements(dataset, changed, count=40) is False
    assert same_elements(dataset, fixed, count=40) is not None
