"""What is read of the functions in a pipeline: what they read and pass on, draw, change, capture and cut."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.pipeline.read import inspect
from xttsbench.records.pipeline import Pipeline

pytestmark = pytest.mark.tf

VARIABLE = tf.Variable(2.0)
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [1]), -1)
GENERATOR = tf.random.Generator.from_seed(1)


def numbers(count=9):
    return tf.data.Dataset.range(count)


def triples():
    return numbers().map(lambda x: (x, tf.cast(x, tf.float32), tf.strings.as_string(x)))


def last(dataset):
    return inspect(dataset).ops[-1]


@tf.function
def swapped(a, b, c):
    return c, a * 2, b


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (lambda a, b, c: a > 3, (0,)),
        (lambda a, b, c: (a > 3) & (b < 2.0), (0, 1)),
        (lambda a, b, c: tf.strings.length(c) > 0, (2,)),
        (lambda a, b, c: True, ()),
        (lambda a, b, c: TABLE.lookup(tf.cast(a, tf.int32)) > 0, (0,)),
        (lambda a, b, c: swapped(a, b, c)[1] > 0, (0,)),
        (lambda a, b, c: tf.numpy_function(lambda v: v > 2, [b], tf.bool), (1,)),
    ],
)
def test_a_filter_reads_only_what_its_result_depends_on(predicate, expected):
    assert last(triples().filter(predicate)).reads == expected


def test_what_a_stateful_op_is_given_counts_as_read():
    def told(a, b, c):
        tf.print(c)
        return a > 3

    op = last(triples().filter(told))
    assert (op.reads, op.side_effects) == ((0, 2), True)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda a, b, c: (a, b, c), {0: 0, 1: 1, 2: 2}),
        (lambda a, b, c: (c, tf.identity(a)), {0: 2, 1: 0}),
        (lambda a, b, c: (a + 1, b, VARIABLE + 1.0), {1: 1}),
        (swapped, {0: 2, 2: 1}),
        (lambda a, b, c: {"z": a, "y": b * 1.0}, {1: 0}),
        (lambda a, b, c: VARIABLE.read_value(), {}),
    ],
)
@pytest.mark.parametrize("calls", [None, 2])
def test_components_that_a_map_hands_on_untouched(function, expected, calls):
    assert last(triples().map(function, num_parallel_calls=calls)).passes == expected


def test_captured_tensors_are_no_components():
    large = tf.constant(np.zeros((9, 20)))
    op = last(numbers().map(lambda x: (large, x, tf.gather(large, x))))
    assert (op.passes, op.reads) == ({1: 0}, (0,))


def draw_in_a_call(x):
    return tf.function(lambda: tf.random.normal([]))() + tf.cast(x, tf.float32)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (lambda: numbers().map(lambda x: tf.random.uniform([])), True),
        (lambda: numbers().map(lambda x: tf.random.uniform([], seed=5)), True),
        (lambda: numbers().map(draw_in_a_call), True),
        (lambda: numbers().map(lambda x: GENERATOR.uniform([])), True),
        (lambda: numbers().flat_map(lambda x: numbers().map(lambda y: tf.random.shuffle([y, x]))), True),
        (lambda: numbers().flat_map(lambda x: numbers().shuffle(3)), False),
        (lambda: numbers().map(lambda x: tf.random.stateless_uniform([], [x, x])), False),
        (lambda: numbers().map(lambda x: tf.timestamp()), True),
        (lambda: numbers().map(lambda x: x + 1), False),
        (lambda: numbers().shuffle(3), True),
        (lambda: numbers().shuffle(3, seed=1), True),
        (lambda: numbers().shuffle(3, reshuffle_each_iteration=False), True),
        (lambda: numbers().shuffle(3, seed=1, reshuffle_each_iteration=False), False),
        (tf.data.Dataset.random, True),
        (lambda: tf.data.Dataset.random(seed=4), False),
        (lambda: tf.data.Dataset.random(seed=4, rerandomize_each_iteration=True), True),
    ],
)
def test_what_differs_from_pass_to_pass_is_random(dataset, expected):
    assert last(dataset()).random is expected


def test_a_shuffle_in_an_inner_dataset_is_seen_there():
    (inner,) = [op for op in last(numbers().flat_map(lambda x: numbers().shuffle(3))).inner if op.random]
    assert inner.op == "ShuffleDatasetV3"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: tf.numpy_function(lambda v: v, [x], tf.int64), True),
        (lambda x: tf.py_function(lambda v: v, [x], tf.int64), True),
        (lambda x: tf.numpy_function(lambda v: v, [x], tf.int64, stateful=False), False),
        (lambda x: tf.io.write_file("/dev/null", tf.strings.as_string(x)), True),
        (lambda x: VARIABLE.assign_add(1.0), True),
        (lambda x: VARIABLE + 1.0, False),
        (lambda x: TABLE.lookup(tf.cast(x, tf.int32)), False),
        (lambda x: tf.io.read_file(tf.strings.as_string(x)), False),
    ],
)
def test_side_effects(function, expected):
    def run(x):
        with tf.control_dependencies([function(x)]):
            return x + 1

    assert last(numbers().map(run)).side_effects is expected


def test_what_is_captured_is_told():
    following, inner = iter(numbers()), numbers(3)

    def told(function):
        return last(numbers().map(function)).captures

    assert told(lambda x: VARIABLE + 1.0) == ("variable",)
    assert told(lambda x: TABLE.lookup(tf.cast(x, tf.int32))) == ("table",)
    assert told(lambda x: GENERATOR.uniform([])) == ("generator",)
    assert told(lambda x: next(following)) == ("iterator",)
    assert told(lambda x: x) == ()
    assert last(numbers().flat_map(inner.skip)).captures == ()
    assert last(numbers().flat_map(lambda x: numbers().map(lambda y: VARIABLE + 1.0))).captures == ("variable",)


@pytest.mark.parametrize("reader", [tf.data.TFRecordDataset, tf.data.TextLineDataset])
@pytest.mark.parametrize("compression", ["GZIP", "ZLIB", "", None])
def test_how_records_are_compressed(reader, compression):
    read = last(reader(["a", "b"], compression_type=compression))
    assert [one.compression for one in read.inner] == [compression or None]
    assert read.compression is None, "it is the reader's"


def test_files_and_cycles(tmp_path):
    assert last(numbers().cache()).filename == ""
    assert last(numbers().cache(str(tmp_path / "c"))).filename == str(tmp_path / "c")
    op = last(numbers().interleave(lambda i: numbers(), cycle_length=5, num_parallel_calls=2))
    assert (op.cycle_length, op.parallelism) == (5, 2)
    assert last(numbers().interleave(lambda i: numbers(), cycle_length=-1)).cycle_length == -1
    assert (
        last(numbers().interleave(lambda i: numbers(), num_parallel_calls=-1).batch(2).unbatch()).cycle_length is None
    )


def test_options_are_named_as_the_user_sets_them():
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    options.experimental_optimization.map_fusion = True
    options.deterministic = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    assert inspect(numbers().with_options(options).take(2)).options == {
        "threading.private_threadpool_size": "3",
        "experimental_optimization.map_fusion": "True",
        "deterministic": "False",
        "experimental_distribute.auto_shard_policy": "OFF",
    }
    assert inspect(numbers()).options == {}


def test_the_record_survives_json():
    pipeline = inspect(triples().filter(lambda a, b, c: a > 3).flat_map(lambda a, b, c: numbers().map(lambda x: x + a)))
    assert Pipeline.model_validate_json(pipeline.model_dump_json()) == pipeline
