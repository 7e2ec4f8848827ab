"""Digests of the batches of a timed run: every byte counts, and what is kept is bounded."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.worker.contents import ContentLook, digest

BATCHES = {
    "float": tf.range(12.0),
    "half": tf.cast(tf.range(12), tf.float16),
    "bfloat16": tf.cast(tf.range(12), tf.bfloat16),
    "bool": tf.constant([True, False]),
    "scalar": tf.constant(3, tf.int64),
    "string": tf.constant(["a", "bc"]),
    "nested": {"x": tf.range(3), "y": (tf.zeros([2, 2]), tf.constant("z"))},
    "ragged": tf.ragged.constant([[1, 2], [3]]),
    "empty": tf.zeros([0, 4]),
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_same_batch_has_the_same_digest_and_another_one_another(name):
    batch = BATCHES[name]
    assert digest(batch) == digest(tf.nest.map_structure(tf.identity, batch)) > 0
    others = {digest(other) for key, other in BATCHES.items() if key != name}
    assert digest(batch) not in others


def test_a_wrong_value_in_a_long_half_precision_row_and_in_padding_is_seen():
    row = np.zeros([2, 16_000], np.float16)
    wrong = row.copy()
    wrong[1, 15_000] = 1e-4
    assert digest(tf.constant(row)) != digest(tf.constant(wrong))
    wrong[1, 15_000] = -0.0
    assert digest(tf.constant(row)) != digest(tf.constant(wrong))


@pytest.mark.parametrize("place", [0, 4_321, 1 << 19, (1 << 20) - 1])
def test_every_byte_of_a_large_component_counts(place):
    row, wrong = np.zeros(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    wrong[place] = 1e-30
    assert digest(tf.constant(row)) != digest(tf.constant(wrong))


def test_values_of_a_large_component_that_change_places_are_seen():
    rows = np.arange(512 * 1024, dtype=np.float32).reshape(512, 1024)
    for a, b in ((0, 1), (0, 256), (3, 511)):
        swapped = rows.copy()
        swapped[[a, b]] = rows[[b, a]]
        assert digest(tf.constant(rows)) != digest(tf.constant(swapped))


def test_what_a_fast_run_keeps_is_a_part_of_what_a_slow_one_does_and_no_more_than_there_is_room_for():
    batch, fast, slow = tf.zeros([1024]), ContentLook(held_bytes=40_960), ContentLook(held_bytes=40_960)
    for look, each in ((fast, 50), (slow, 10)):
        for number in range(500):
            look.see(0, number, batch, 0)
            if number % each == each - 1:
                look.digest()
    fast, slow = fast.record(), slow.record()
    assert (fast.seen, slow.seen) == (500, 500)
    assert slow.batches == tuple(range(500))
    assert fast.batches[:11] == (*range(10), 50)
    assert set(range(400, 500, 8)) <= set(fast.batches)
