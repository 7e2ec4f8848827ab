"""Order given up: the ops and the option say so, and the elements are the same but for their order."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.parallel.rewrite import any_order, parallel_map
from xttsbench.pipeline.read import inspect, read_graph


def test_every_parallel_op_and_the_option_give_the_order_up(yielded, built):
    dataset = (
        tf.data.Dataset.range(6)
        .interleave(lambda i: tf.data.Dataset.range(i * 10, i * 10 + 4), cycle_length=3, num_parallel_calls=2)
        .map(lambda x: x + 1, num_parallel_calls=2, deterministic=True)
        .map(lambda x: x + 1)
    )
    graph = read_graph(dataset)
    before = graph.SerializeToString(deterministic=True)
    edited = any_order(graph)
    assert graph.SerializeToString(deterministic=True) == before
    fixed = built(edited, dataset)
    described = inspect(fixed)
    assert [op.deterministic for op in described.ops[1:4]] == ["false", "false", None]
    assert described.deterministic is False
    assert fixed.options().deterministic is False
    assert [sorted(epoch) for epoch in yielded(fixed)] == [sorted(epoch) for epoch in yielded(dataset)]
    with pytest.raises(InvalidInputError, match="keeps no order as it is"):
        any_order(edited)


def test_a_late_element_no_longer_holds_the_others_up(built):
    others = threading.Event()

    def late(x):
        if x == 0:
            others.wait(timeout=60)
        return x

    options = tf.data.Options()
    options.threading.private_threadpool_size = 4
    dataset = tf.data.Dataset.range(8).map(lambda x: tf.numpy_function(late, [x], tf.int64)).with_options(options)
    fixed = built(any_order(parallel_map(read_graph(dataset), calls=3)), dataset)
    seen = []
    for x in fixed:
        seen.append(int(x))
        if len(seen) == 3:
            others.set()
    assert sorted(seen) == list(range(8))
    assert seen.index(0) >= 3


def test_what_runs_in_turn_has_its_order_for_nothing():
    with pytest.raises(InvalidInputError, match="no op of the dataset runs in parallel"):
        any_order(read_graph(tf.data.Dataset.range(3).map(lambda x: x)))
