"""Datasets that end early, with other seeds in each epoch, and with calls that are held up."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.fixes.graph.edit import from_graph
from xttsbench.fixes.graph.hazards import random_ops
from xttsbench.fixes.open_generator.rewrite import open_generators
from xttsbench.fixes.parallel.rewrite import parallel_map
from xttsbench.pipeline.altered import jittered, places_of, shortened
from xttsbench.pipeline.read import read_graph

pytestmark = pytest.mark.tf


def run(dataset, count, most=200, edit=lambda graph: graph):
    graph = read_graph(dataset)
    before = graph.SerializeToString()
    cut = from_graph(shortened(edit(graph), count), dataset.element_spec, source=dataset)
    assert graph.SerializeToString() == before
    return [tf.nest.map_structure(lambda x: np.asarray(x.numpy()).tolist(), one) for one in itertools.islice(cut, most)]


def test_a_source_ends_early_and_what_follows_stays():
    numbers = tf.data.Dataset.range(10**9)
    assert run(numbers.map(lambda x: x * 2).batch(2), 5) == [[0, 2], [4, 6], [8]]
    assert run(numbers.repeat(), 2, most=9) == [0, 1, 0, 1]
    assert run(numbers.repeat(3), 2, most=9) == [0, 1, 0, 1, 0, 1]
    assert sorted(run(numbers.shuffle(100, seed=1), 4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("full", [False, True])
def test_a_cache_on_disk_is_neither_written_nor_read(tmp_path, full):
    kept = tmp_path / "kept"
    dataset = tf.data.Dataset.range(6).map(lambda x: x + 1).cache(str(kept)).repeat(2)
    if full:
        assert len(list(dataset)) == 12
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(dataset, 2) == [1, 2, 1, 2]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert [int(one) for one in dataset.as_numpy_iterator()] == [1, 2, 3, 4, 5, 6] * 2


def test_elements_come_from_the_beginning_the_end_and_random_places():
    numbers = tf.data.Dataset.range(6000)
    (found,) = places_of(read_graph(numbers.batch(8)), 40).values()
    assert (found[0], found[-1]) == ((0, 10), (5990, 10))
    starts = [start for start, _ in found]
    assert len(starts) == 4
    assert 10 <= starts[1] <= 2990
    assert 3000 <= starts[2] <= 5980
    cut = shortened(read_graph(numbers), 40, places_of(read_graph(numbers), 40))
    taken = list(from_graph(cut, numbers.element_spec, source=numbers).as_numpy_iterator())
    assert taken == [start + i for start, size in found for i in range(size)]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda d: d, [(0, 75), (76, 24)]),
        (lambda d: d.take(90), [(0, 90)]),
        (lambda d: d.shuffle(8).take(90), None),  # what is left out may be unfit
        (lambda d: d.skip(20), None),
        (lambda d: tf.data.Dataset.zip(d, tf.data.Dataset.range(10**6)), None),
        (lambda d: tf.data.Dataset.zip(d, tf.data.Dataset.from_tensor_slices(tf.zeros([100]))), [(0, 75), (76, 24)]),
    ],
)
def test_places_are_those_of_what_the_pipeline_reads_and_of_all_that_is_zipped(make, expected):
    found = places_of(read_graph(make(tf.data.Dataset.range(100))), 99)
    assert {tuple(places) for places in found.values()} == ({tuple(expected)} if expected else set())


def test_every_source_is_cut():
    numbers, words = tf.data.Dataset.range(10**6), tf.data.Dataset.from_tensor_slices(["a", "b", "c"])
    assert run(tf.data.Dataset.zip(numbers, words), 2) == [(0, b"a"), (1, b"b")]
    assert run(numbers.concatenate(numbers), 2) == [0, 1, 0, 1]
    chosen = tf.data.Dataset.choose_from_datasets([numbers, numbers.map(lambda x: -x)], numbers.map(lambda x: x % 2))
    assert run(chosen, 4) == [0, 0, 1, -1]


def test_data_in_memory_and_structures():
    data = {"x": np.arange(30, dtype=np.float32).reshape(10, 3), "s": [str(i) for i in range(10)]}
    assert run(tf.data.Dataset.from_tensor_slices(data), 1) == [{"s": b"0", "x": [0.0, 1.0, 2.0]}]


def test_a_generator_is_cut_and_closed():
    closed = []

    def count():
        try:
            yield from range(10**9)
        finally:
            closed.append(True)

    dataset = tf.data.Dataset.from_generator(count, output_signature=tf.TensorSpec([], tf.int64))
    assert run(dataset.batch(2), 3) == [[0, 1], [2]]
    assert closed == [True]


@pytest.mark.parametrize("use", [lambda d: d, lambda d: d.enumerate().map(lambda i, x: x + i)])
def test_an_opened_generator_is_cut_where_the_generator_is(use):
    def load(number):
        return np.int64(number * 3)

    def rows():
        for number in range(100):
            yield load(number)

    made = use(tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec([], tf.int64)))
    assert run(made, 10) == run(open_generators(made, 2), 10)
    assert len(run(made, 10)) == 10


def test_files_share_the_elements(tmp_path):
    files = []
    for number in range(3):
        files.append(str(tmp_path / f"{number}.tfrecord"))
        with tf.io.TFRecordWriter(files[-1]) as writer:
            for record in range(50):
                writer.write(f"{number}/{record}".encode())
    expected = [f"{file}/{record}".encode() for file in range(3) for record in range(2)]
    assert run(tf.data.TFRecordDataset(files), 6) == expected
    named = tf.data.Dataset.from_tensor_slices(files)
    read = named.interleave(tf.data.TFRecordDataset, cycle_length=3, num_parallel_calls=2)
    assert sorted(run(read, 6)) == expected
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{i}\n" for i in range(50)))
    assert run(tf.data.TextLineDataset(str(lines)), 3) == [b"0", b"1", b"2"]


def test_ranges_that_a_function_opens():
    opened = tf.data.Dataset.range(2).flat_map(lambda x: tf.data.Dataset.range(10**9).map(lambda y: y + x * 100))
    assert run(opened, 4) == [0, 1, 100, 101]


def test_a_fixed_pipeline_is_cut_in_the_same_place():
    dataset = tf.data.Dataset.range(10**6).map(lambda x: x + 1).batch(4)
    assert run(dataset, 10, edit=parallel_map) == run(dataset, 10)


def mapped(function, calls=8):
    options = tf.data.Options()
    options.threading.private_threadpool_size = 8
    rows = tf.data.Dataset.range(60).map(lambda i: tf.numpy_function(function, [i], tf.int64), num_parallel_calls=calls)
    return rows.with_options(options)


def taken(dataset, seed=0, **limits):
    with jittered(read_graph(dataset), seed, **limits) as count:
        found = [int(x) for x in dataset]
    return count, found


def test_a_counter_gives_itself_away():
    counts = iter(range(10**6))
    count, found = taken(mapped(lambda i: np.int64(next(counts))))
    assert count == 1
    assert found != sorted(found)  # numbers were handed out in another order than the elements are in


def test_a_function_of_its_argument_gives_the_same():
    assert taken(mapped(lambda i: i * 3)) == (1, [3 * i for i in range(60)])
    assert taken(mapped(lambda i: i * 3, calls=None)) == (1, [3 * i for i in range(60)])


def test_the_whole_delay_is_bounded_and_ends_with_the_block():
    dataset = mapped(lambda i: i, calls=None)
    began = time.perf_counter()
    taken(dataset, most_s=30.0, total_s=0.05)
    assert time.perf_counter() - began < 15.0  # one call alone might have taken 30 s
    function = []
    dataset = mapped(lambda i: function.append(time.perf_counter()) or i, calls=None)
    with jittered(read_graph(dataset), 0, most_s=30.0, total_s=30.0):
        pass
    began = time.perf_counter()
    assert len(list(dataset)) == 60
    assert time.perf_counter() - began < 15.0


def test_py_functions_are_held_up_and_generators_are_not():
    eager = tf.data.Dataset.range(9).map(lambda i: tf.py_function(lambda x: x + 1, [i], tf.int64))
    assert taken(eager) == (1, list(range(1, 10)))
    generated = tf.data.Dataset.from_generator(lambda: iter(range(5)), output_signature=tf.TensorSpec([], tf.int64))
    assert taken(generated) == (0, list(range(5)))


@pytest.mark.parametrize("make", [tf.numpy_function, tf.py_function])
def test_a_function_that_is_held_up_is_read_as_the_user_wrote_it(make):
    def noisy(i):
        return np.int64(i + np.random.uniform())

    dataset = tf.data.Dataset.range(9).map(lambda i: make(noisy, [i], tf.int64))
    graph = read_graph(dataset)
    with jittered(graph, 0):
        (said,) = random_ops(dataset, graph)
    assert "noisy()" in said
    assert "held_up" not in said
