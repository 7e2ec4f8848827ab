"""A cache put into a graph: the work runs once, and nothing is shared."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.ops import readers

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.cache.rewrite import cached
from xttsbench.fixes.graph.edit import from_graph
from xttsbench.pipeline.nodes import dataset_nodes, redirect
from xttsbench.pipeline.read import read_graph


class Counted:
    """A Python function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x * 10

    def shaped(self, x):
        return tf.ensure_shape(tf.numpy_function(self, [x], tf.int64), [])


def named(graph, op):
    """The name of the only node of that type."""
    (found,) = [node.name for node in dataset_nodes(graph) if node.op == op]
    return found


def with_cache(dataset, op):
    graph = read_graph(dataset)
    return from_graph(cached(graph, named(graph, op)), dataset.element_spec, source=dataset)


def values(dataset):
    return [tf.nest.map_structure(lambda part: np.asarray(part).tolist(), one) for one in dataset.as_numpy_iterator()]


def test_what_ran_before_the_cache_runs_once():
    work = Counted()
    original = tf.data.Dataset.range(6).map(work.shaped).repeat(2).batch(3)
    expected = values(original)
    fixed = with_cache(original, "MapDataset")
    work.calls = 0
    assert [values(fixed) for _ in range(3)] == [expected] * 3
    assert work.calls == 6
    assert fixed.element_spec == original.element_spec


def test_two_datasets_of_one_graph_do_not_share_a_cache_in_memory():
    work = Counted()
    original = tf.data.Dataset.range(4).map(work.shaped)
    graph = read_graph(original)
    edited = cached(graph, named(graph, "MapDataset"))
    first, second = (from_graph(edited, original.element_spec, source=original) for _ in range(2))
    assert values(first) == values(second)
    assert work.calls == 8


def test_a_further_edit_of_the_cached_dataset_keeps_its_cache():
    work = Counted()
    original = tf.data.Dataset.range(4).map(work.shaped)
    fixed = with_cache(original, "MapDataset")
    again = from_graph(read_graph(fixed), original.element_spec, source=fixed)
    assert values(again) == values(again) == [0, 10, 20, 30]
    assert work.calls == 4


def test_elements_with_several_components_strings_and_ragged_rows_come_back():
    original = tf.data.Dataset.range(5).map(
        lambda i: {"text": tf.strings.as_string(i), "rows": (tf.RaggedTensor.from_row_lengths(tf.range(i), [i]), i)}
    )
    fixed = with_cache(original, "MapDataset")
    for _ in range(2):
        elements = list(fixed)
        assert [one["text"].numpy() for one in elements] == [b"0", b"1", b"2", b"3", b"4"]
        assert [one["rows"][0].to_list() for one in elements] == [[list(range(i))] for i in range(5)]


def test_records_of_files_which_name_no_type_can_be_cached(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        writer.write(b"one")
        writer.write(b"two")
    fixed = with_cache(readers._TFRecordDataset(str(tmp_path / "records"), "", None).batch(2), "TFRecordDataset")
    assert values(fixed) == values(fixed) == [[b"one", b"two"]]


def test_a_cache_in_memory_that_serves_nothing_any_more_is_taken_out():
    work = Counted()
    never_full = tf.data.Dataset.range(8).map(work.shaped).cache().take(4)
    fixed = with_cache(never_full, "TakeDataset")
    assert sum(node.op == "CacheDatasetV2" for node in dataset_nodes(read_graph(fixed))) == 1
    assert values(fixed) == values(fixed) == [0, 10, 20, 30]
    assert work.calls <= 8  # the first epoch alone


def test_a_cache_before_a_repeat_still_serves_the_first_pass():
    work = Counted()
    original = tf.data.Dataset.range(4).map(work.shaped).cache().repeat(3).batch(2)
    fixed = with_cache(original, "BatchDatasetV2")
    assert values(fixed) == values(fixed)
    assert work.calls == 4


def test_what_is_cached_on_disk_already_stays(tmp_path):
    original = tf.data.Dataset.range(4).cache(str(tmp_path / "mine")).map(lambda x: x + 1)
    graph = read_graph(original)
    edited = cached(graph, named(graph, "MapDataset"))
    assert sum(node.op == "CacheDatasetV2" for node in dataset_nodes(edited)) == 2


def test_the_names_of_all_nodes_stay():
    graph = read_graph(tf.data.Dataset.range(4).map(lambda x: x + 1).batch(2))
    edited = cached(graph, named(graph, "MapDataset"))
    assert {node.name for node in graph.node} < {node.name for node in edited.node}


@pytest.mark.parametrize(
    ("make", "op", "why"),
    [
        (lambda: tf.data.Dataset.range(4).repeat().batch(2).map(lambda x: x), "MapDataset", "never ends"),
        (lambda: tf.data.Dataset.range(4).map(lambda x: x).cache(), "MapDataset", "cached already"),
        (lambda: tf.data.Dataset.range(4).map(lambda x: x).cache(), "CacheDatasetV2", "cached already"),
    ],
)
def test_a_cache_that_helps_nothing_is_refused(make, op, why):
    graph = read_graph(make())
    with pytest.raises(InvalidInputError, match=why):
        cached(graph, named(graph, op))


def test_an_op_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(InvalidInputError, match="RangeDataset"):
        cached(read_graph(tf.data.Dataset.range(4)), "MapDataset/_9")


def test_two_readers_share_a_cache():
    numbers = tf.data.Dataset.range(4).map(lambda x: x)
    both = tf.data.Dataset.zip((numbers, numbers))
    graph = read_graph(both)
    first, second = (node.name for node in dataset_nodes(graph) if node.op == "MapDataset")
    redirect(graph.node, {second: first})
    fixed = from_graph(cached(graph, first), both.element_spec, source=both)
    assert values(fixed) == values(fixed) == [(i, i) for i in range(4)]


def test_a_shuffle_after_the_cache_still_shuffles_anew():
    original = tf.data.Dataset.range(32).map(lambda x: x).shuffle(32)
    fixed = with_cache(original, "MapDataset")
    orders = [values(fixed) for _ in range(3)]
    assert all(sorted(order) == list(range(32)) for order in orders)
    assert any(one != other for one, other in itertools.pairwise(orders))


SEEDED = {
    "shuffle": lambda ds, f: ds.shuffle(8, seed=1).map(f).batch(3),
    "a small buffer": lambda ds, f: ds.shuffle(3, seed=1).map(f),
    "the same order each time": lambda ds, f: ds.shuffle(8, seed=1, reshuffle_each_iteration=False).map(f),
    "repeat": lambda ds, f: ds.repeat(3).map(f).batch(3),
    "for ever": lambda ds, f: ds.repeat().map(f).take(20),
    "both": lambda ds, f: ds.shuffle(8, seed=1).repeat().map(f, num_parallel_calls=2).take(20),
    "the other way round": lambda ds, f: ds.repeat().shuffle(16, seed=1).prefetch(2).map(f).take(20),
    "with options": lambda ds, f: ds.shuffle(8, seed=1).with_options(tf.data.Options()).map(f),
    "after a cache": lambda ds, f: ds.cache().repeat().map(f).take(20),
}


@pytest.mark.parametrize("name", SEEDED)
def test_shuffles_and_repeats_before_a_map_shuffle_and_repeat_after_its_cache(name):
    work = Counted()
    source = SEEDED[name](tf.data.Dataset.range(8), work.shaped)
    (op,) = (node.name for node in dataset_nodes(read_graph(source)) if "Map" in node.op)
    edited = cached(read_graph(source), op)
    fixed = from_graph(edited, source.element_spec, source=source)
    work.calls = 0
    given = [values(fixed) for _ in range(3)]
    assert work.calls == 8
    source = SEEDED[name](tf.data.Dataset.range(8), work.shaped)
    assert given == [values(source) for _ in range(3)]
    assert sum(node.op == "CacheDatasetV2" for node in dataset_nodes(edited)) == 1


def test_a_shuffle_hands_on_what_the_map_makes_of_the_elements():
    original = tf.data.Dataset.range(5).shuffle(5).repeat(2).map(lambda i: (tf.strings.as_string(i), tf.fill([2], i)))
    fixed = with_cache(original, "MapDataset")
    assert sorted(str(one) for one in values(fixed)) == sorted(str(one) for one in values(original))
