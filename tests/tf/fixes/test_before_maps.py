"""A filter or a shuffle put before the maps in front of it: the same elements, and the work is done for those alone."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tf.fixes.datasets import elements, ops
from xttsbench.errors import InvalidInputError
from xttsbench.fixes.before_maps.rewrite import filter_first
from xttsbench.fixes.graph.edit import from_graph, redirect
from xttsbench.pipeline.nodes import dataset_nodes
from xttsbench.pipeline.read import read_graph


class Counted:
    """A Python function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return np.float32(x) * 0.5

    def shaped(self, x):
        return tf.ensure_shape(tf.numpy_function(self, [x], tf.float32), [])


def moved(dataset):
    return from_graph(filter_first(read_graph(dataset)), dataset.element_spec, source=dataset)


def a_pair(work):
    return tf.data.Dataset.range(40).map(lambda i: (i, work.shaped(i))).filter(lambda i, _: i % 4 == 0)


def a_dictionary(work):
    def load(i):
        return {"work": work.shaped(i), "name": tf.strings.as_string(i), "at": {"index": i}}

    return tf.data.Dataset.range(40).map(load).filter(lambda one: one["at"]["index"] % 4 == 0)


def swapped_components(work):
    both = tf.data.Dataset.range(40).map(lambda i: (tf.strings.as_string(i), i))
    return both.map(lambda text, i: (i, work.shaped(i), text)).filter(lambda i, *_: i % 4 == 0).batch(3)


def several_maps(work):
    first = tf.data.Dataset.range(40).map(lambda i: (i, i * 2))
    second = first.map(lambda i, double: (double, work.shaped(double), i), num_parallel_calls=2)
    return second.map(lambda double, value, i: (value + 1.0, i)).filter(lambda _, i: i % 4 == 0)


def a_parallel_map(work):
    return (
        tf.data.Dataset.range(40)
        .map(lambda i: (work.shaped(i), i), num_parallel_calls=3)
        .filter(lambda _, i: i % 4 == 0)
        .prefetch(2)
    )


def a_captured_tensor(work):
    wanted = tf.Variable(tf.range(0, 40, 4, dtype=tf.int64))
    pairs = tf.data.Dataset.range(40).map(lambda i: (work.shaped(i), i))
    return pairs.filter(lambda _, i: tf.reduce_any(tf.equal(wanted, i)))


def a_captured_table(work):
    keys = tf.range(0, 40, 4, dtype=tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.ones_like(keys)), 0)
    return tf.data.Dataset.range(40).map(lambda i: (work.shaped(i), i)).filter(lambda _, i: table.lookup(i) > 0)


def a_compiled_predicate(work):
    @tf.function
    def small(numbers):
        return tf.reduce_all(numbers % 4 == 0)

    @tf.function
    def wanted(value, i):
        return small(i)

    return tf.data.Dataset.range(40).map(lambda i: (work.shaped(i), i)).filter(wanted)


def a_predicate_with_branches(work):
    def wanted(_, i):
        return tf.cond(i < 20, lambda: i % 4 == 0, lambda: (i + 4) % 4 == 0)

    return tf.data.Dataset.range(40).map(lambda i: (work.shaped(i), i)).filter(wanted)


PIPELINES = (
    a_pair,
    a_dictionary,
    swapped_components,
    several_maps,
    a_parallel_map,
    a_captured_tensor,
    a_captured_table,
    a_compiled_predicate,
    a_predicate_with_branches,
)


@pytest.mark.parametrize("make", PIPELINES)
def test_the_same_elements_and_the_work_for_the_kept_ones_only(make):
    work = Counted()
    original = make(work)
    expected = elements(original)
    assert work.calls == 40
    fixed = moved(original)
    work.calls = 0
    assert elements(fixed) == expected
    assert elements(fixed) == expected
    assert work.calls == 20
    assert fixed.element_spec == original.element_spec


def test_only_the_maps_that_hand_it_through_are_passed():
    work = Counted()
    numbers = tf.data.Dataset.range(20).map(lambda i: i * 3)
    original = numbers.map(lambda i: (i, work.shaped(i))).filter(lambda i, _: i > 30)
    fixed = moved(original)
    assert ops(fixed) == ["RangeDataset", "MapDataset", "FilterDataset", "MapDataset"]
    expected = elements(original)
    work.calls = 0
    assert elements(fixed) == expected
    assert work.calls == 9


def test_the_names_of_all_nodes_stay():
    graph = read_graph(a_pair(Counted()))
    assert [node.name for node in filter_first(graph).node] == [node.name for node in graph.node]


def test_the_second_filter_goes_first_where_the_first_cannot():
    pairs = tf.data.Dataset.range(20).map(lambda i: (i * 2, i))
    summed = pairs.filter(lambda double, _: double > 4).map(lambda double, i: (double + i, i))
    original = summed.filter(lambda _, i: i > 9)
    fixed = moved(original)
    assert ops(fixed)[-3:] == ["FilterDataset", "FilterDataset", "MapDataset"]
    assert elements(fixed) == elements(original)


def with_random_map():
    return tf.data.Dataset.range(9).map(lambda i: (tf.random.uniform([]), i)).filter(lambda _, i: i > 3)


def with_counter():
    counter = tf.Variable(0, dtype=tf.int64)
    return tf.data.Dataset.range(9).map(lambda i: (counter.assign_add(1), i)).filter(lambda _, i: i > 3)


def with_python_predicate():
    def wanted(_, i):
        return tf.ensure_shape(tf.numpy_function(lambda x: x > 3, [i], tf.bool), [])

    return tf.data.Dataset.range(9).map(lambda i: (i * 2, i)).filter(wanted)


def with_random_predicate():
    return tf.data.Dataset.range(9).map(lambda i: (i * 2, i)).filter(lambda _, i: tf.random.uniform([]) < 0.5)


def with_two_readers():
    pairs = tf.data.Dataset.range(9).map(lambda i: (i * 2, i))
    return tf.data.Dataset.zip((pairs, pairs.filter(lambda _, i: i > 3)))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: tf.data.Dataset.range(9).map(lambda i: i), "no filter"),
        (lambda: tf.data.Dataset.range(9).filter(lambda i: i > 3).map(lambda i: i), "no map comes right before"),
        (lambda: tf.data.Dataset.range(9).map(lambda i: i * 2).filter(lambda i: i > 3), "computes"),
        (with_random_map, "RandomUniform"),
        (with_counter, "AssignAdd"),
        (with_python_predicate, "PyFunc"),
        (with_random_predicate, "RandomUniform"),
    ],
)
def test_a_filter_that_has_to_stay_is_refused_with_the_reason(make, why):
    with pytest.raises(InvalidInputError, match=why):
        filter_first(read_graph(make()))


def test_a_map_that_others_read_is_not_passed():
    graph = read_graph(with_two_readers())
    first, second = (node.name for node in dataset_nodes(graph) if node.op == "MapDataset")
    redirect(graph, second, first)
    with pytest.raises(InvalidInputError, match="read by other ops"):
        filter_first(graph)


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 5), st.integers(0, 4), st.lists(st.sampled_from(["swap", "add", "keep"]), min_size=1, max_size=4))
def test_any_row_of_maps_yields_the_same(divisor, rest, kinds):
    maps = {"swap": lambda a, b: (b, a), "add": lambda a, b: (a + 1, b), "keep": lambda a, b: (a, b)}
    original = tf.data.Dataset.range(30).map(lambda i: (i * 7, i))
    for kind in kinds:
        original = original.map(maps[kind])
    original = original.filter(lambda _, b: b % divisor == rest)
    try:
        fixed = moved(original)
    except InvalidInputError:
        assert kinds[-1] != "keep"
        return
    assert elements(fixed) == elements(original)
