"""Stamps inside graphs, read while they go on and after more of them than are kept."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.worker.script.graph_clock import (
    Calls,
    GraphClock,
    GraphTimestamp,
    StepInterval,
    covered_ns,
    merged,
    steps_of_call,
    steps_of_requests,
)


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


def test_replicas_that_wait_at_the_same_time_count_once() -> None:
    assert covered_ns([GraphTimestamp(0, 4), GraphTimestamp(1, 5), GraphTimestamp(8, 9)], 0, 10) == 6


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=8), st.integers(0, 100))
def test_a_union_is_what_counting_moments_gives(pairs: list[tuple[int, int]], end: int) -> None:
    stamps = [GraphTimestamp(min(pair), max(pair)) for pair in pairs]
    moments = {at for stamp in stamps for at in range(stamp.began_ns, min(stamp.ended_ns, end))}
    assert covered_ns(stamps, 0, end) == len(moments)


def test_a_call_of_one_step_waits_for_its_own_request_alone() -> None:
    waits = [GraphTimestamp(-5, -1, 4, 8), GraphTimestamp(1, 4, 4, 8), GraphTimestamp(11, 12, 4, 8)]
    assert steps_of_call(0, 10, waits, [GraphTimestamp(9, 9)]) == [StepInterval(0, 10, 3, 4, 8)]


def test_in_a_group_what_was_asked_for_during_the_step_before_is_no_wait_until_that_ends() -> None:
    # Steps of 5, batches of 8 that are asked for as the step before begins: 3 of the 8 remain.
    waits = [GraphTimestamp(0, 8, 4), GraphTimestamp(8, 16, 4), GraphTimestamp(16, 24, 4)]
    ends = [GraphTimestamp(13, 13), GraphTimestamp(21, 21), GraphTimestamp(29, 29)]
    pieces = steps_of_call(0, 30, waits, ends)
    assert [piece.wait_ns for piece in pieces] == [8, 3, 3]
    assert [piece.ended_ns - piece.began_ns for piece in pieces] == [13, 8, 9]
    assert [piece.batch_size for piece in pieces] == [4, 4, 4]


def test_an_epochs_end_within_a_call_is_waited_for_and_adds_no_clips() -> None:
    assert steps_of_call(0, 10, [GraphTimestamp(0, 1, -1), GraphTimestamp(2, 3, 4)], []) == [
        StepInterval(0, 10, 2, 4, 0)
    ]


def test_steps_inside_a_graph_go_from_request_to_request_and_the_last_to_the_end_of_its_call() -> None:
    requests = [GraphTimestamp(0, 3), GraphTimestamp(8, 11), GraphTimestamp(16, 17, -1)]
    pieces = steps_of_requests(requests, Calls([(0, 18)]))
    assert [(piece.ended_ns - piece.began_ns, piece.wait_ns) for piece in pieces] == [(8, 3), (8, 3)]


def test_the_last_request_of_a_call_that_has_not_returned_is_kept_back() -> None:
    pieces = steps_of_requests([GraphTimestamp(0, 3), GraphTimestamp(8, 11)], Calls([]))
    assert [piece.began_ns for piece in pieces] == [0]


def test_time_between_two_calls_belongs_to_no_step() -> None:
    pieces = steps_of_requests([GraphTimestamp(1, 2), GraphTimestamp(101, 102)], Calls([(0, 5), (100, 105)]))
    assert [piece.ended_ns - piece.began_ns for piece in pieces] == [4, 4]


def test_parts_of_replicas_make_one_batch() -> None:
    assert merged([[GraphTimestamp(0, 2, 4, 8), GraphTimestamp(9, 10, 4, 8)], [GraphTimestamp(1, 3, 3, 6)]]) == [
        GraphTimestamp(0, 3, 7, 14)
    ]
