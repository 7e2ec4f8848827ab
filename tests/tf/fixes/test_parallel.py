"""Maps, filters and batches made parallel, another number of calls, and the order given up."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf

from xttsbench.fixes.parallel.rewrite import parallel_map
from xttsbench.pipeline.nodes import constant_input, dataset_nodes
from xttsbench.pipeline.read import read_graph


def squared(x):
    return tf.numpy_function(lambda y: y * y, [x], tf.int64)


def raised(x):
    return tf.numpy_function(lambda y: y + 1, [x], tf.int64)


def pipeline():
    scale = tf.constant(3, tf.int64)
    numbers = tf.data.Dataset.range(30).map(squared).filter(lambda x: x % 2 == 0)
    return numbers.map(lambda x: {"x": x, "scaled": scale * x}).batch(4).prefetch(2)


def calls(graph):
    by_name = {node.name: node for node in graph.node}
    return [
        constant_input(node, "num_parallel_calls", by_name)
        for node in dataset_nodes(graph)
        if node.op == "ParallelMapDatasetV2"
    ]


@pytest.mark.parametrize("wanted", [-1, 1, 5])
def test_each_map_gets_its_calls_and_the_elements_stay(wanted, keeps):
    dataset = pipeline()
    edited, _ = keeps(dataset, parallel_map, calls=wanted)
    assert calls(edited) == [wanted, wanted]
    assert [node.name for node in dataset_nodes(edited)] == [node.name for node in dataset_nodes(read_graph(dataset))]
    assert len({node.name for node in edited.node}) == len(edited.node)


def test_the_number_of_calls_is_the_most_that_run_at_a_time(built):
    together, waiting = [], threading.Barrier(4)

    def met(x):
        waiting.wait(timeout=60)  # none goes on before four are here
        together.append(x)
        return x

    options = tf.data.Options()
    options.threading.private_threadpool_size = 8
    dataset = tf.data.Dataset.range(16).map(lambda x: tf.numpy_function(met, [x], tf.int64)).with_options(options)
    edited = built(parallel_map(read_graph(dataset), calls=4), dataset)
    assert [int(x) for x in edited] == list(range(16))
    assert sorted(together) == list(range(16))


def test_an_option_that_gives_up_the_order_does_not_reach_a_map_that_kept_it(built):
    options = tf.data.Options()
    options.deterministic = False
    dataset = tf.data.Dataset.range(30).map(squared).with_options(options)
    edited = parallel_map(read_graph(dataset), calls=4)
    assert [int(x) for x in built(edited, dataset)] == [x * x for x in range(30)]


def test_a_map_inside_of_a_function_stays_and_the_function_too(keeps):
    dataset = tf.data.Dataset.range(4).flat_map(lambda i: tf.data.Dataset.range(i).map(squared)).map(squared)
    edited, _ = keeps(dataset, parallel_map)
    assert edited.library == read_graph(dataset).library
