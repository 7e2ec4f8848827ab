"""Items come in order, one ahead and no more, and an error where its item is due."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from xttsbench.training.stream import Ahead


def test_the_order_is_the_source_s_and_it_ends_after_the_count():
    asked = []

    def source():
        for number in count():
            asked.append(number)
            yield number

    assert list(Ahead(source(), 5)) == [0, 1, 2, 3, 4]
    assert asked == [0, 1, 2, 3, 4]


def test_one_item_is_taken_while_another_is_used_and_not_two():
    taken = threading.Semaphore(0)
    asked = []

    def source():
        for number in count():
            asked.append(number)
            taken.release()
            yield number

    ahead = Ahead(source(), 10)
    assert taken.acquire(timeout=10)  # the first, before anything was asked for
    assert next(ahead) == 0
    assert taken.acquire(timeout=10)  # the second, while the first is used
    assert not taken.acquire(timeout=0.1)
    assert asked == [0, 1]


def test_an_error_comes_in_its_place_and_ends_it():
    def source():
        yield 1
        raise OSError("the disk is gone")

    ahead = Ahead(source(), 5)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)


def test_nothing_is_asked_for_where_nothing_is_wanted():
    assert list(Ahead(iter([1]), 0)) == []
