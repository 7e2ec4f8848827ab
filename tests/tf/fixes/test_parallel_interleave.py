"""Several inputs read at a time: the order stays, and the reading really overlaps."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.parallel.rewrite import FILES_AHEAD, parallel_interleave
from xttsbench.fixes.thread_pool.rewrite import with_pool
from xttsbench.pipeline.nodes import constant_input, dataset_nodes
from xttsbench.pipeline.read import read_graph


def several(i):
    """Between none and six numbers, told apart by their hundreds."""
    return tf.data.Dataset.range(i * 100, i * 100 + i % 7)


def numbers(count=12):
    return tf.data.Dataset.range(count)


def readers(graph):
    """Cycle, elements buffered, inputs ahead and calls of each parallel interleave of the newest version."""
    by_name = {node.name: node for node in graph.node}
    names = ("cycle_length", "buffer_output_elements", "prefetch_input_elements", "num_parallel_calls")
    return [
        tuple(constant_input(node, name, by_name) for name in names)
        for node in dataset_nodes(graph)
        if node.op == "ParallelInterleaveDatasetV4"
    ]


@pytest.mark.parametrize("calls", [-1, 1, 3, 20])
@pytest.mark.parametrize(("cycle", "block"), [(None, None), (1, 1), (1, 3), (3, 1), (3, 2), (8, 1), (20, 1)])
def test_an_interleave_keeps_its_order(cycle, block, calls, keeps):
    dataset = numbers().interleave(several, cycle_length=cycle, block_length=block)
    edited, _ = keeps(dataset, parallel_interleave, calls=calls)
    assert [node.name for node in dataset_nodes(edited)] == [node.name for node in dataset_nodes(read_graph(dataset))]
    assert len({node.name for node in edited.node}) == len(edited.node)


@pytest.mark.parametrize("calls", [-1, 1, 2, 20])
def test_a_flat_map_keeps_its_order(calls, keeps):
    dataset = numbers(30).flat_map(several).map(lambda x: {"x": x, "text": tf.strings.as_string(x)})
    edited, _ = keeps(dataset, parallel_interleave, calls=calls)
    wanted = FILES_AHEAD if calls == -1 else calls
    [(cycle, buffered, ahead, current)] = readers(edited)
    assert (cycle, max(ahead, 0) + current) == (1, wanted)
    assert buffered > 100 or wanted == 1


def test_inputs_longer_than_the_buffer_come_whole_and_in_order(built):
    wide = tf.zeros([1 << 20])  # 4 MB: eight in the buffer of each of eight inputs
    dataset = numbers(6).flat_map(
        lambda i: tf.data.Dataset.range(20).map(lambda k: wide + tf.cast(100 * i + k, tf.float32))
    )
    edited = parallel_interleave(read_graph(dataset), calls=8)
    assert readers(edited) == [(1, 8, 7, 1)]
    first = [float(x[0]) for x in built(edited, dataset)]
    assert first == [100 * i + k for i in range(6) for k in range(20)]


@pytest.mark.parametrize(
    ("cycle", "calls", "expected"),
    [
        (4, -1, (4, -1, -1, -1)),
        (4, 3, (4, -1, -1, 3)),
        (4, 4, (4, -1, -1, 4)),
        (4, 6, (4, 4096, 2, 4)),
        (1, -1, (1, 4096, FILES_AHEAD - 1, 1)),
    ],
)
def test_beyond_its_cycle_an_interleave_reads_ahead(cycle, calls, expected):
    edited = parallel_interleave(read_graph(numbers().interleave(several, cycle_length=cycle)), calls=calls)
    assert readers(edited) == [expected]


def generated():
    return tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=tf.TensorSpec((), tf.int64))


@pytest.mark.parametrize(
    "dataset",
    [
        numbers,
        generated,
        lambda: numbers().window(3).flat_map(lambda window: window.batch(3)),
        lambda: numbers().interleave(several, cycle_length=1, num_parallel_calls=1),
        lambda: numbers().interleave(several, cycle_length=4, num_parallel_calls=2),
    ],
)
def test_what_is_one_input_or_in_memory_or_parallel_is_refused(dataset):
    with pytest.raises(InvalidInputError, match=r"'parallel-interleave' does not apply: .* no interleave or flat_map"):
        parallel_interleave(read_graph(dataset()))


def test_generators_one_after_the_other_are_read_ahead(keeps):
    def generator(i):
        return tf.data.Dataset.from_generator(
            lambda n: (n * 10 + k for k in range(3)), output_signature=tf.TensorSpec((), tf.int64), args=(i,)
        )

    keeps(numbers(5).flat_map(generator), parallel_interleave)


def test_a_list_of_files_is_a_flat_map(tmp_path, keeps):
    paths = [str(tmp_path / f"{number}.tfrecord") for number in range(5)]
    for number, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for record in range(number * 3):
                writer.write(np.full(4, record, np.uint8).tobytes())
    edited, _ = keeps(tf.data.TFRecordDataset(paths).repeat(2).batch(4), parallel_interleave, calls=3)
    [(cycle, buffered, ahead, current)] = readers(edited)
    assert (cycle, ahead, current) == (1, 2, 1)
    assert buffered > 100


@pytest.mark.parametrize("kind", ["flat_map", "interleave"])
def test_so_many_inputs_are_read_at_a_time_and_no_more(kind, built):
    """Each input waits until four are being read; a fifth reader would be seen by the barrier's next round."""
    together, most, lock, met = [0], [0], threading.Lock(), threading.Barrier(4)

    def open_input(i):
        with lock:
            together[0] += 1
            most[0] = max(most[0], together[0])
        met.wait(timeout=60)
        with lock:
            together[0] -= 1
        return i

    def inside(i):
        return tf.data.Dataset.from_tensors(i).map(lambda x: tf.numpy_function(open_input, [x], tf.int64))

    dataset = numbers(16).flat_map(inside) if kind == "flat_map" else numbers(16).interleave(inside, cycle_length=1)
    fixed = with_pool(built(parallel_interleave(read_graph(dataset), calls=4), dataset), threads=16)
    assert [int(x) for x in fixed] == list(range(16))
    assert most == [4]


def test_an_error_in_an_input_comes_at_its_place(built):
    def inside(i):
        tf.debugging.assert_less(i, tf.constant(3, tf.int64))
        return tf.data.Dataset.range(i * 10, i * 10 + 2)

    dataset = numbers(6).flat_map(inside)

    def until_error(data):
        seen = []
        try:
            for x in data:
                seen.append(int(x))
        except tf.errors.InvalidArgumentError:
            return seen
        raise AssertionError("no input raised")

    assert (
        until_error(built(parallel_interleave(read_graph(dataset)), dataset))
        == until_error(dataset)
        == [0, 1, 10, 11, 20, 21]
    )
