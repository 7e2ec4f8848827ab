"""Calls that are held up at random: state gives itself away, and nothing else changes."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.pipeline.fingerprint.jitter import jittered
from xttsbench.pipeline.graph.read import read_graph

pytestmark = pytest.mark.tf


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
