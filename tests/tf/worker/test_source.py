"""Batches from a live dataset, epoch after epoch, and from memory, round and round."""

from __future__ import annotations

import pytest
import tensorflow as tf

from xttsbench.worker.source import CachedBatches, ExhaustedError, LiveBatches


def take(source, count):
    return [(int(source.next()), source.epoch) for _ in range(count)]


def test_batches_are_counted_from_the_begin_of_their_epoch():
    source = LiveBatches(tf.data.Dataset.range(2))
    assert source.batch == -1
    assert [(source.next().numpy(), source.epoch, source.batch) for _ in range(5)] == [
        (0, 0, 0),
        (1, 0, 1),
        (0, 1, 0),
        (1, 1, 1),
        (0, 2, 0),
    ]


def test_batches_in_memory_keep_the_index_that_they_were_given():
    source = CachedBatches([tf.constant(7), tf.constant(8)], [3, 9])
    assert [(int(source.next()), source.batch) for _ in range(3)] == [(7, 3), (8, 9), (7, 3)]
    unknown = CachedBatches([tf.constant(7)])
    unknown.next()
    assert unknown.batch == -1


def test_a_dataset_begins_again_at_its_end():
    assert take(LiveBatches(tf.data.Dataset.range(2)), 5) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]


def test_shuffling_goes_on_in_the_next_epoch():
    source = LiveBatches(tf.data.Dataset.range(50).shuffle(50, seed=1))
    first, second = ([int(source.next()) for _ in range(50)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


def test_an_empty_dataset_is_exhausted_and_does_not_spin():
    source = LiveBatches(tf.data.Dataset.range(0))
    with pytest.raises(ExhaustedError):
        source.next()
    assert source.epoch == 1


def test_a_dataset_that_can_be_read_once_is_exhausted_after_it():
    numbers = iter(range(3))
    dataset = tf.data.Dataset.from_generator(lambda: numbers, output_signature=tf.TensorSpec([], tf.int64))
    source = LiveBatches(dataset)
    assert take(source, 3) == [(0, 0), (1, 0), (2, 0)]
    with pytest.raises(ExhaustedError):
        source.next()


def test_cached_batches_go_round():
    source = CachedBatches([tf.constant(7), tf.constant(8)])
    assert take(source, 5) == [(7, 0), (8, 0), (7, 1), (8, 1), (7, 2)]
