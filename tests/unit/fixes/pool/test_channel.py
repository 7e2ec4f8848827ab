"""The channel by itself: what goes in comes out, by either way, and as a copy."""

from __future__ import annotations

import multiprocessing
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from xttsbench.fixes.pool.work import LARGE_BYTES, Channel, anonymous_file

NUMBERS = st.one_of(
    arrays.integer_dtypes(), arrays.unsigned_integer_dtypes(), arrays.floating_dtypes(), arrays.complex_number_dtypes()
)


@pytest.fixture(scope="module")
def sides():
    left, right = multiprocessing.Pipe()
    block = anonymous_file()
    both = Channel(left, block), Channel(right, os.dup(block))
    yield both
    for side in both:
        side.close()


def crossed(sides, message):
    """A message as the other side gets it; the sender runs beside, for a socket holds only so much."""
    sender = threading.Thread(target=sides[0].send, args=(message,))
    sender.start()
    received = sides[1].receive()
    sender.join()
    return received


@settings(deadline=None, max_examples=60)
@given(value=arrays.arrays(NUMBERS, arrays.array_shapes(min_dims=0, min_side=0)))
def test_an_array_keeps_its_type_shape_and_values(sides, value):
    received = crossed(sides, value)
    assert received.dtype == value.dtype
    assert received.shape == value.shape
    assert received.tobytes() == value.tobytes()


@settings(deadline=None, max_examples=20)
@given(
    sizes=st.lists(
        st.sampled_from([0, 1, LARGE_BYTES // 4 - 1, LARGE_BYTES // 4, LARGE_BYTES // 4 + 1, 3 * LARGE_BYTES]),
        max_size=5,
    )
)
def test_small_and_large_arrays_in_one_message(sides, sizes):
    message = [np.arange(size, dtype=np.float32) + number for number, size in enumerate(sizes)]
    for sent, received in zip(message, crossed(sides, message), strict=True):
        np.testing.assert_array_equal(sent, received)


@pytest.mark.parametrize("length", [0, 10, LARGE_BYTES, 20 * LARGE_BYTES])
def test_strings_of_any_length(sides, length):
    message = {"text": b"\x00" * length, "more": np.array([b"a\x00", b"bb"], object)}
    received = crossed(sides, message)
    assert received["text"] == message["text"]
    assert received["more"].tolist() == [b"a\x00", b"bb"]


def test_what_was_received_does_not_change_with_the_next_message(sides):
    first = crossed(sides, np.full(LARGE_BYTES, 1.0))
    crossed(sides, np.full(LARGE_BYTES, 2.0))
    assert set(first.tolist()) == {1.0}
    first[:] = 3.0  # and it is the receiver's own
    assert first.sum() == 3.0 * LARGE_BYTES


def test_arrays_that_are_not_contiguous(sides):
    whole = np.arange(400_000.0).reshape(400, 1000)
    for value in (whole.T, whole[::2, ::3], np.asfortranarray(whole)):
        np.testing.assert_array_equal(crossed(sides, value), value)


def test_a_side_that_is_gone_is_the_end():
    left, right = multiprocessing.Pipe()
    block = anonymous_file()
    one, other = Channel(left, block), Channel(right, os.dup(block))
    other.close()
    with pytest.raises((EOFError, OSError)):
        one.receive()
    with pytest.raises(BrokenPipeError):
        one.send("nobody is there")
    one.close()
    one.close()  # twice is once


def test_nothing_is_sent_of_what_cannot_be_pickled(sides):
    with pytest.raises(TypeError):
        sides[0].send(threading.Lock())
    assert crossed(sides, "the next one") == "the next one"
