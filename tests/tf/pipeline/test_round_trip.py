"""A graph that is read and made a dataset again yields the same elements: each kind of op, and random compositions.

So does every pipeline of the benchmark's corpus, and its tuned version: one case of each kind of graph in the normal
run, all of them among the slow tests. The corpus sleeps and computes by design, so few batches are compared.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tf.equality import same_elements
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.pipeline.read import inspect, read_graph

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "diagnosis"))
sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks" / "diagnosis" / "corpus"))

import child
import known

pytestmark = pytest.mark.tf

Data = tf.data.Dataset
STATIC = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
VARIABLE = tf.Variable(3, dtype=tf.int64)


def numbers(count=20):
    return Data.range(count)


def double(x):
    return tf.numpy_function(lambda a: a * 2, [x], tf.int64)


def generate():
    for i in range(12):
        yield {"a": i, "b": np.ones(i % 3, np.float32)}


GENERATED = {"a": tf.TensorSpec((), tf.int64), "b": tf.TensorSpec((None,), tf.float32)}


def shared():
    source = numbers(8).map(lambda x: x + 1)
    return Data.zip((source, source.map(double)))


def captured():
    other = numbers(6).batch(2)
    return numbers(4).flat_map(other.skip)


def captured_tensor():
    table = tf.constant(np.random.default_rng(0).random((20, 1000)))
    return numbers().map(lambda i: tf.gather(table, i))


MADE = {
    "generator": lambda: Data.from_generator(generate, output_signature=GENERATED).padded_batch(3),
    "generator_arguments": lambda: Data.from_generator(
        lambda n: iter(range(n)), args=(5,), output_signature=GENERATED["a"]
    ),
    "generators_interleaved": lambda: numbers(3).interleave(
        lambda i: Data.from_generator(lambda n: iter(range(n)), args=(i,), output_signature=GENERATED["a"]),
        cycle_length=2,
        num_parallel_calls=2,
    ),
    "autotuned_interleave": lambda: numbers(6).interleave(
        lambda i: Data.range(i).map(double), cycle_length=-1, num_parallel_calls=-1, deterministic=True
    ),
    "flat_maps": lambda: numbers(6).flat_map(lambda i: Data.range(i).flat_map(Data.range)),
    "zip_of_structures": lambda: Data.zip({"a": numbers(5), "b": (numbers(6), numbers(7).batch(2))}),
    "shared_source": shared,
    "captured_dataset": captured,
    "captured_tensor": captured_tensor,
    "choose": lambda: Data.choose_from_datasets([numbers(5), numbers(6).map(double)], numbers(8).map(lambda x: x % 2)),
    "sample": lambda: Data.sample_from_datasets([numbers(5), numbers(6).map(double)], [0.3, 0.7], seed=4),
    "shuffle_once": lambda: numbers().shuffle(10, seed=3, reshuffle_each_iteration=False).repeat(2),
    "group_by_window": lambda: numbers().group_by_window(
        lambda x: x % 3, lambda k, w: w.batch(2).map(lambda z: z + k), window_size_func=lambda k: k + 2
    ),
    "padded": lambda: (
        numbers()
        .map(lambda k: (tf.range(k % 5), tf.strings.as_string(k)))
        .padded_batch(4, padded_shapes=([8], []), padding_values=(np.int64(-1), "x"), drop_remainder=True)
    ),
    "ragged": lambda: numbers().map(lambda k: tf.range(k % 5)).ragged_batch(4).unbatch(),
    "sparse": lambda: numbers().map(lambda k: tf.sparse.from_dense(tf.one_hot(k, 25))).batch(3),
    "windows": lambda: (
        Data.zip((numbers(), numbers())).window(4, 2).flat_map(lambda a, b: Data.zip((a.batch(4), b.batch(4))))
    ),
    "scan": lambda: numbers().scan(np.int64(0), lambda s, x: (s + x, s)).take_while(lambda x: x < 50),
    "rebatch": lambda: numbers().batch(6).rebatch([2, 3]),
    "unique": lambda: numbers().map(lambda x: x % 4).unique().enumerate(5),
    "shard": lambda: numbers().shard(3, 1).skip(1).take(3),
    "tables": lambda: Data.from_tensor_slices(["a", "b", "c"]).map(STATIC.lookup),
    "variable": lambda: numbers().map(lambda x: x * VARIABLE),
    "branch": lambda: numbers().map(lambda x: tf.cond(x > 3, lambda: double(x), lambda: x)),
    "loop": lambda: numbers(6).map(lambda x: tf.while_loop(lambda i: i < x, lambda i: i + 2, [np.int64(0)])[0]),
    "reduce_in_map": lambda: numbers(6).map(lambda x: Data.range(x + 1).reduce(np.int64(0), lambda a, b: a + b)),
    "ignored_errors": lambda: (
        numbers(6).map(lambda x: tf.debugging.check_numerics(1.0 / tf.cast(x, tf.float32), "infinite")).ignore_errors()
    ),
    "random_numbers": lambda: Data.random(seed=4).take(5),
    "version_1": lambda: tf.compat.v1.data.Dataset.range(5).map(lambda x: x + 1).batch(2),
    "empty": lambda: numbers(0).batch(2),
    "infinite": lambda: numbers(4).repeat().batch(3),
    "parallel_batch": lambda: numbers().batch(3, num_parallel_calls=2),
    "nothing_beside": lambda: numbers(4).map(lambda x: (x, None)),
    "structure": lambda: numbers(4).map(lambda x: {"a": {"b": x, "c": (x, x)}}),
    "python_filter": lambda: numbers(9).filter(lambda x: tf.numpy_function(lambda a: a % 2 == 0, [x], tf.bool)),
}


def again(dataset):
    return from_graph(read_graph(dataset), dataset.element_spec, source=dataset)


@pytest.mark.parametrize("name", MADE)
def test_each_kind_of_op_survives(name):
    dataset = MADE[name]()
    copy = again(dataset)
    assert copy.element_spec == dataset.element_spec
    assert same_elements(dataset, copy, count=25) is True
    assert [op.op for op in inspect(copy).ops] == [op.op for op in inspect(dataset).ops]


def test_readers_snapshots_and_caches_on_disk_survive(tmp_path):
    text, records, raw = tmp_path / "a.txt", tmp_path / "a.tfrecord", tmp_path / "a.npy"
    text.write_text("a b\nc\nd e\n")
    np.save(raw, np.arange(50, dtype=np.float32))
    with tf.io.TFRecordWriter(str(records)) as writer:
        for i in range(9):
            writer.write(b"x%d" % i)
    for dataset in (
        tf.data.TFRecordDataset([str(records)] * 2, num_parallel_reads=2),
        tf.data.TextLineDataset(str(text)).map(lambda s: STATIC.lookup(tf.strings.split(s))),
        tf.data.FixedLengthRecordDataset(str(raw), 4, header_bytes=128),
        tf.data.experimental.CsvDataset(str(text), [tf.string]),
        Data.list_files(str(tmp_path / "a.*"), shuffle=False).map(tf.io.read_file),
        numbers().map(double).cache(str(tmp_path / "cache")),
        numbers().map(double).snapshot(str(tmp_path / "snapshot")),
    ):
        assert same_elements(dataset, again(dataset), count=25) is True


def test_what_cannot_make_the_trip_says_why():
    dataset = numbers().apply(tf.data.experimental.prefetch_to_device("/cpu:0"))
    with pytest.raises(tf.errors.OpError, match="does not support serialization"):
        again(dataset)
    assert "does not support serialization" in inspect(dataset).unserialisable


def lengths(x):
    """One element at least: TensorFlow 2.21 itself crashes where ``unbatch`` meets rows of none."""
    return tf.range(tf.math.floormod(tf.reduce_sum(x), 4) + 1)


STEPS = {
    "map": lambda d, n: d.map(lambda x: x + n),
    "parallel_map": lambda d, n: d.map(lambda x: x * n, num_parallel_calls=n),
    "python_map": lambda d, n: d.map(lambda x: tf.ensure_shape(double(x), x.shape)),
    "filter": lambda d, n: d.filter(lambda x: tf.reduce_sum(x) % (n + 1) != 0),
    "batch_unbatch": lambda d, n: d.batch(n).unbatch(),
    "padded_batch": lambda d, n: d.map(lengths).padded_batch(n).unbatch().map(tf.reduce_sum),
    "buckets": lambda d, n: (
        d.map(lengths).bucket_by_sequence_length(lambda x: tf.shape(x)[0], [2], [n, n + 1]).map(tf.reduce_sum)
    ),
    "shuffle": lambda d, n: d.shuffle(n, seed=n, reshuffle_each_iteration=False),
    "repeat": lambda d, n: d.repeat(2),
    "take": lambda d, n: d.take(3 * n),
    "skip": lambda d, n: d.skip(n),
    "flat_map": lambda d, n: d.flat_map(lambda x: Data.from_tensors(x).repeat(2)),
    "interleave": lambda d, n: d.interleave(lambda x: Data.range(2).map(lambda y: x + y), cycle_length=n),
    "parallel_interleave": lambda d, n: d.interleave(
        lambda x: Data.range(n).map(double), cycle_length=2, num_parallel_calls=2, deterministic=True
    ),
    "zip": lambda d, n: Data.zip((d, d.map(lambda x: x - n))).map(lambda a, b: a + b),
    "concatenate": lambda d, n: d.concatenate(d.take(n)),
    "cache": lambda d, n: d.cache(),
    "prefetch": lambda d, n: d.prefetch(n),
    "scan": lambda d, n: d.scan(np.int64(n), lambda s, x: (s + x, s)),
    "window": lambda d, n: d.window(n, shift=1).flat_map(lambda w: w.batch(n)).map(tf.reduce_sum),
    "options": lambda d, n: d.with_options(_options(n)),
}


def _options(threads):
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    return options


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 4)), min_size=1, max_size=6))
def test_any_composition_survives(steps):
    dataset = numbers(12)
    for name, number in steps:
        dataset = STEPS[name](dataset, number)
    pipeline, copy = inspect(dataset), again(dataset)
    assert copy.element_spec == dataset.element_spec
    assert same_elements(dataset, copy, count=20) is True
    assert [op.model_dump(exclude={"location"}) for op in inspect(copy).ops] == [
        op.model_dump(exclude={"location"}) for op in pipeline.ops
    ]
    known = {op.name for op in pipeline.ops}
    assert all(set(op.inputs) <= known for op in pipeline.ops)


SAMPLE = (
    "gil_map_in_turn",
    "generator_that_waits",
    "interleave_in_turn",
    "cacheable_before_augmentation",
    "tiny_elements",
    "padded_to_the_longest",
    "traced_for_every_length",
    "not_cached_and_in_turn",
    "keras_in_memory",
)
BATCHES = 3
ALL = [pytest.param(case, id=case.name, marks=() if case.name in SAMPLE else pytest.mark.slow) for case in known.CASES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("corpus")


def test_the_sample_is_of_the_corpus():
    assert set(SAMPLE) <= {case.name for case in known.CASES}


@pytest.mark.filterwarnings("ignore")  # a corpus of faults: TensorFlow warns of some of them
@pytest.mark.parametrize("case", ALL)
def test_graph_and_back_and_tuned_yield_the_same(case, folder):
    found = child.trip(case, folder, BATCHES)
    assert found == {"round_trip": True} | ({} if case.healthy else {"tuned_is_the_same": True})
