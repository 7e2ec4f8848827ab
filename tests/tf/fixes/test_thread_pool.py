"""A private thread pool as the option that ends the graph."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.thread_pool.rewrite import with_pool
from xttsbench.pipeline.read import inspect


def with_options(dataset):
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    options.threading.max_intra_op_parallelism = 3
    options.deterministic = False
    return dataset.with_options(options)


def test_a_pipeline_without_options_gets_some_at_its_end(yielded):
    dataset = tf.data.Dataset.range(9).batch(2)
    fixed = with_pool(dataset, threads=7)
    assert yielded(fixed) == yielded(dataset)
    assert fixed.options().threading.private_threadpool_size == 7
    assert inspect(fixed).threadpool_size == 7


@pytest.mark.parametrize("make", [with_options, lambda dataset: with_options(dataset).prefetch(1)])
def test_other_options_stay_and_a_smaller_pool_gives_way(make):
    fixed = with_pool(make(tf.data.Dataset.range(9).batch(2)), threads=7)
    options = fixed.options()
    assert (options.threading.private_threadpool_size, options.threading.max_intra_op_parallelism) == (7, 3)
    assert options.deterministic is False


def test_the_pool_runs_as_many_calls_as_it_has_threads():
    met = threading.Barrier(6)

    def wait(x):
        met.wait(timeout=60)  # none goes on before six are here
        return x

    dataset = tf.data.Dataset.range(12).map(lambda x: tf.numpy_function(wait, [x], tf.int64), num_parallel_calls=6)
    fixed = with_pool(dataset, threads=6)
    assert [int(x) for x in fixed] == list(range(12))


def test_a_pool_of_that_size_is_no_fix():
    dataset = with_pool(tf.data.Dataset.range(3), threads=4)
    with pytest.raises(
        InvalidInputError, match=r"'thread-pool:4' does not apply: .* a private pool of 4 threads already"
    ):
        with_pool(dataset, threads=4)
