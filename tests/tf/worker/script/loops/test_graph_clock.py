"""Stamps inside graphs, read while they go on and after more of them than are kept."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from xttsbench.worker.script.loops.graph_clock import GraphClock


def test_what_was_overwritten_before_it_was_read_is_counted() -> None:
    clock = GraphClock(lambda _: None)
    iterator: Any = iter(tf.data.Dataset.from_tensors(tf.zeros([3, 2])).repeat())

    @tf.function
    def run(steps: Any) -> None:
        for _ in tf.range(steps):
            clock.around_request(lambda: next(iterator))

    run(tf.constant(10))
    ((site, stamps),) = clock.drain()
    assert (len(stamps), clock.lost) == (10, 0)
    assert [(one.batch_size, one.elements) for one in stamps] == [(3, 6)] * 10
    run(tf.constant(10_000))
    ((_, newest),) = clock.drain()
    assert site.lost == clock.lost == 10_000 - len(newest) > 0
    assert stamps[-1].ended_ns <= newest[0].began_ns
    assert sorted(newest, key=lambda one: one.began_ns) == newest
