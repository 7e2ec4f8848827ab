"""Batches made before maps: the same batches, fewer calls, and a reason where a function has to see single elements."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tf.fixes.datasets import elements, ops
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.batch_first.rewrite import batch_first
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.pipeline.read import inspect, read_graph


class Counted:
    """A Python function that counts its calls and keeps what it was given."""

    def __init__(self) -> None:
        self.calls = 0
        self.given = []

    def __call__(self, *arguments):
        self.calls += 1
        self.given.append([(type(one), getattr(one, "shape", None)) for one in arguments])
        return np.full(3, arguments[0], np.float32)


def batched(dataset):
    return from_graph(batch_first(read_graph(dataset)), dataset.element_spec, source=dataset)


def numbers(count=23):
    return tf.data.Dataset.range(count)


def images(count=11):
    values = np.arange(count * 4 * 6 * 3).reshape(count, 4, 6, 3) % 251
    return tf.data.Dataset.from_tensor_slices((values.astype(np.uint8), np.arange(count)))


def arithmetic():
    return numbers().map(lambda i: tf.cast(i % 7, tf.float32) * 0.5 + 1.0).batch(4)


def a_table():
    keys = tf.strings.as_string(tf.range(20))
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.range(20) * 3), -1)
    return numbers().map(lambda i: table.lookup(tf.strings.as_string(i)) + 1).batch(4, drop_remainder=True)


def a_variable():
    scale = tf.Variable([1.0, 2.0, 3.0])
    return numbers().map(lambda i: tf.cast(i, tf.float32) * scale).batch(4)


def a_captured_tensor():
    table = tf.random.stateless_normal([30, 5], [1, 2])
    return numbers().map(lambda i: tf.gather(table, i)).batch(4)


def several_maps():
    pairs = numbers().map(lambda i: i + 1).map(lambda i: (i, i * 2))
    return pairs.map(lambda a, b: {"sum": a + b, "first": a}).batch(5)


def parallel_maps():
    fetched = numbers().map(lambda i: (i, i * 2), num_parallel_calls=2)
    return fetched.map(lambda a, b: a - b, num_parallel_calls=tf.data.AUTOTUNE).batch(5, num_parallel_calls=2)


def pictures():
    def prepare(picture, label):
        values = tf.image.flip_left_right(tf.cast(picture, tf.float32) / 255.0)
        values = tf.transpose(values, [1, 0, 2]) - tf.reduce_mean(values)
        return values[1:, :2], tf.one_hot(label, 11)

    return images().map(prepare).batch(4)


def reductions_that_a_batch_would_mix():
    rows = tf.data.Dataset.from_tensor_slices(tf.random.stateless_normal([12, 4], [3, 4]))
    return rows.map(lambda row: (row / tf.reduce_max(row), tf.sort(row), tf.reverse(row, [0]), row[0])).batch(4)


def a_constant_as_wide_as_the_batch():
    return numbers(12).map(lambda i: i * tf.constant([1, 10, 100, 1000], tf.int64)).batch(4)


def a_result_without_the_element():
    return numbers(10).map(lambda i: (i, tf.constant([1.0, 2.0]))).batch(4)


def branches():
    return numbers().map(lambda i: tf.cond(i % 2 == 0, lambda: i * 10, lambda: -i)).batch(4)


def a_call_inside():
    @tf.function
    def double(x):
        return x * 2

    return numbers().map(lambda i: double(i) + 1).batch(4)


def records_of_bytes():
    rows = [np.arange(3, dtype=np.float32) + i for i in range(9)]
    return (
        tf.data.Dataset.from_tensor_slices([row.tobytes() for row in rows])
        .map(lambda text: tf.reshape(tf.io.decode_raw(text, tf.float32), [3]))
        .batch(2)
    )


def parsed_examples():
    def example(i):
        feature = {
            "value": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i + 0.5])),
            "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n%d" % i])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    described = {"value": tf.io.FixedLenFeature([2], tf.float32), "name": tf.io.FixedLenFeature([], tf.string)}
    texts = tf.data.Dataset.from_tensor_slices([example(i) for i in range(9)])
    return texts.map(lambda text: tf.io.parse_single_example(text, described)).batch(4)


def with_others_in_between():
    pairs = numbers().map(lambda i: (i, i * 2)).prefetch(2).take(20)
    return pairs.map(lambda a, b: a + b).repeat(2).shuffle(8, 3, reshuffle_each_iteration=False).batch(6)


PIPELINES = (
    with_others_in_between,
    arithmetic,
    a_table,
    a_variable,
    a_captured_tensor,
    several_maps,
    parallel_maps,
    pictures,
    reductions_that_a_batch_would_mix,
    a_constant_as_wide_as_the_batch,
    a_result_without_the_element,
    branches,
    a_call_inside,
    records_of_bytes,
    parsed_examples,
)


@pytest.mark.parametrize("make", PIPELINES)
def test_the_same_batches_from_maps_that_run_once_for_a_batch(make):
    original = make()
    fixed = batched(original)
    assert fixed.element_spec == original.element_spec
    order = [op for op in ops(fixed) if "Batch" in op or "Map" in op]
    assert "Batch" in order[0]
    assert all("Map" in op for op in order[1:])
    for one, other in zip(elements(original), elements(fixed), strict=True):
        for old, new in zip(one, other, strict=True):
            if np.asarray(old).dtype.kind == "f":
                np.testing.assert_allclose(old, new, rtol=1e-6)
            else:
                assert old == new


def test_the_names_of_all_nodes_stay():
    graph = read_graph(several_maps())
    assert [node.name for node in batch_first(graph).node] == [node.name for node in graph.node]


def test_one_call_into_python_does_the_rows_of_a_batch_in_order():
    work = Counted()

    def load(i):
        return tf.ensure_shape(tf.numpy_function(work, [i, tf.fill([2], i), tf.strings.as_string(i)], tf.float32), [3])

    original = numbers(10).map(load).batch(4)
    expected = elements(original)
    as_given = list(work.given)
    fixed = batched(original)
    work.given.clear()
    assert elements(fixed) == expected
    assert work.given == as_given
    assert fixed.element_spec == original.element_spec
    (function,) = inspect(fixed).python_functions
    assert function.kind == "numpy_function"


def test_python_inside_a_compiled_function_is_called_once_for_each_row():
    work = Counted()

    @tf.function
    def load(i):
        return tf.ensure_shape(tf.numpy_function(work, [i], tf.float32), [3]) + 1.0

    original = numbers(10).map(lambda i: (load(i), i)).batch(4)
    expected = elements(original)
    fixed = batched(original)
    work.calls = 0
    assert elements(fixed) == expected
    assert work.calls == 10


def test_python_is_not_called_in_the_order_of_a_shuffle():
    work = Counted()
    rows = numbers(8).map(lambda i: tf.ensure_shape(tf.numpy_function(work, [i], tf.float32), [3]))
    with pytest.raises(InvalidInputError, match="no map comes right before"):
        batch_first(read_graph(rows.shuffle(4, seed=1).batch(4)))
    repeated = rows.repeat(2).batch(4)
    assert elements(batched(repeated)) == elements(repeated)
    assert work.calls == 32


def test_the_function_for_batches_outlives_the_rewrite():
    work = Counted()
    original = numbers(8).map(lambda i: tf.ensure_shape(tf.numpy_function(work, [i], tf.float32), [3])).batch(4)
    fixed = batched(original)
    gc.collect()
    assert len(elements(fixed)) == len(elements(fixed)) == 2


def test_strings_and_several_results_come_back_from_python():
    def name(i):
        return f"row {i}", np.array([b"a\0", b"bcd"][: 1 + int(i) % 1]), np.int64(i) * 2

    def load(i):
        text, parts, number = tf.numpy_function(name, [i], [tf.string, tf.string, tf.int64])
        return tf.ensure_shape(text, []), tf.ensure_shape(parts, [1]), tf.ensure_shape(number, [])

    original = numbers(7).map(load).batch(3)
    assert elements(batched(original)) == elements(original)


def test_a_wrong_type_from_python_is_still_an_error():
    def wrong(i):
        return np.float64(i)

    original = numbers(4).map(lambda i: tf.ensure_shape(tf.numpy_function(wrong, [i], tf.float32), [])).batch(2)
    for dataset in (original, batched(original)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="double"):
            elements(dataset)


def test_what_cannot_work_on_batches_stays_before_them_and_the_rest_goes_after():
    def load(i):
        return tf.ensure_shape(tf.py_function(lambda x: x * 2, [i], tf.int64), [])

    original = numbers(9).map(load).map(lambda i: i + 1).batch(4)
    fixed = batched(original)
    assert ops(fixed) == ["RangeDataset", "MapDataset", "BatchDatasetV2", "MapDataset"]
    assert elements(fixed) == elements(original)


def python_for_its_effect():
    def load(i):
        tf.numpy_function(print, [i], [])
        return i * 2

    return numbers().map(load).batch(4)


def with_counter():
    counter = tf.Variable(0, dtype=tf.int64)
    return numbers().map(lambda i: counter.assign_add(1) + i).batch(4)


def of_unlike_shapes():
    texts = numbers().map(lambda i: tf.range(i % 3))
    return texts.map(tf.reduce_sum).batch(4)


def ragged_rows():
    rows = numbers().map(lambda i: tf.RaggedTensor.from_row_lengths([i], [1]))
    return rows.map(lambda row: row).batch(4)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: numbers().map(lambda i: i), "makes no batches"),
        (lambda: numbers().batch(4).map(lambda i: i + 1), "no map comes right before"),
        (lambda: numbers().map(lambda i: i).filter(lambda i: i > 3).batch(4), "no map comes right before"),
        (lambda: numbers().map(lambda _: tf.random.uniform([])).batch(4), "RandomUniform"),
        (with_counter, "AssignAdd"),
        (python_for_its_effect, "effect alone"),
        (of_unlike_shapes, "differ in shape"),
        (lambda: numbers().map(lambda i: tf.py_function(abs, [i], tf.int64)).batch(4), "EagerPyFunc"),
        (ragged_rows, "differ in shape"),
    ],
)
def test_what_cannot_be_moved_is_refused_with_the_reason(make, why):
    with pytest.raises(InvalidInputError, match=why):
        batch_first(read_graph(make()))


def test_a_cache_before_the_map_is_not_filled_by_looking(tmp_path):
    work = Counted()
    kept = numbers(12).map(lambda i: i + 1).cache(str(tmp_path / "kept")).map(lambda i: i * 2).batch(4)
    assert elements(batched(kept)) == elements(kept)
    original = numbers(12).map(lambda i: tf.ensure_shape(tf.numpy_function(work, [i], tf.float32), [3]))
    batch_first(read_graph(original.map(lambda row: row * 2).batch(4)))
    assert work.calls == 0  # Python is not called by the rewrite


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["add", "scale", "pair", "norm", "stack"]), min_size=1, max_size=4), st.integers(1, 5))
def test_any_row_of_maps_yields_the_same(kinds, size):
    maps = {
        "add": lambda x: x + 1.0,
        "scale": lambda x: x * tf.constant(0.5),
        "pair": lambda x: tf.concat([x, x], axis=0),
        "norm": lambda x: x - tf.reduce_mean(x),
        "stack": lambda x: tf.reshape(x, [-1])[:2],
    }
    original = tf.data.Dataset.from_tensor_slices(tf.random.stateless_normal([11, 2], [5, 6]))
    for kind in kinds:
        original = original.map(maps[kind])
    original = original.batch(size)
    fixed = batched(original)
    assert fixed.element_spec == original.element_spec
    for old, new in zip(original, fixed, strict=True):
        np.testing.assert_allclose(old, new, rtol=1e-5, atol=1e-6)
