"""Filters made parallel: the elements and their order stay, and calls run at a time."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.graph.apply import apply
from xttsbench.fixes.graph.hazards import hazards
from xttsbench.fixes.parallel_filter.rewrite import parallel_filter
from xttsbench.pipeline.graph.read import inspect, read_graph
from xttsbench.records.fix_set import FixSet


def odd(x):
    return tf.numpy_function(lambda y: y % 2 == 1, [x], tf.bool)


def pipeline():
    least = tf.constant(5, tf.int64)
    return tf.data.Dataset.range(40).filter(odd).map(lambda x: {"x": x}).filter(lambda one: one["x"] > least).batch(4)


@pytest.mark.parametrize("wanted", [-1, 1, 5])
def test_every_filter_gets_its_calls_and_the_elements_stay(wanted, yielded, built):
    dataset = pipeline()
    graph = read_graph(dataset)
    before = graph.SerializeToString(deterministic=True)
    fixed = built(parallel_filter(graph, calls=wanted), dataset)
    assert graph.SerializeToString(deterministic=True) == before
    assert [op.parallelism for op in inspect(fixed).ops if op.op == "ParallelFilterDataset"] == [wanted, wanted]
    assert yielded(fixed) == yielded(dataset)


def test_predicates_run_at_a_time():
    waiting = threading.Barrier(4)

    def met(x):
        waiting.wait(timeout=60)  # none goes on before four are here
        return x % 2 == 0

    options = tf.data.Options()
    options.threading.private_threadpool_size = 8
    numbers = tf.data.Dataset.range(8).filter(lambda x: tf.numpy_function(met, [x], tf.bool)).with_options(options)
    assert [int(x) for x in apply(numbers, "parallel-filter:4")] == [0, 2, 4, 6]


def test_without_a_filter_it_does_not_apply():
    with pytest.raises(InvalidInputError, match="'parallel-filter' does not apply: the dataset has no sequential"):
        apply(tf.data.Dataset.range(3), "parallel-filter")


def test_a_predicate_that_remembers_is_an_objection():
    seen = set()

    def unseen(x):
        new = int(x) not in seen
        seen.add(int(x))
        return new

    dataset = tf.data.Dataset.range(3).filter(lambda x: tf.numpy_function(unseen, [x], tf.bool))
    (told,) = hazards(dataset, read_graph(dataset), FixSet.parse("parallel-filter"))
    assert told.startswith("parallel-filter: calls that run at once would share state: ")
    assert hazards(pipeline(), read_graph(pipeline()), FixSet.parse("parallel-filter")) == ()
