"""Hashes of samples: the same in Python and in a graph, for each sample alone, whatever its batch."""

import numpy as np
import pytest
import tensorflow as tf

from xttsbench.worker.script.sample_hashes import BITS, hashes, hashes_in_graph, leaves_of

RNG = np.random.default_rng(0)
BATCHES = {
    "floats": tf.constant(RNG.normal(size=(8, 40, 3)), tf.float32),
    "halves": tf.constant(RNG.normal(size=(8, 400)), tf.float16),
    "doubles": tf.constant(RNG.normal(size=(8, 70))),
    "pixels": tf.constant(RNG.integers(0, 255, (8, 28, 28, 1)), tf.uint8),
    "labels": tf.constant(RNG.integers(0, 1 << 40, 8), tf.int64),
    "pair": (tf.constant(RNG.normal(size=(8, 5)), tf.float32), tf.constant(RNG.integers(0, 9, 8), tf.int32)),
}


@pytest.mark.parametrize("name", list(BATCHES))
def test_a_graph_has_the_same_hashes(name: str) -> None:
    leaves = leaves_of(BATCHES[name])
    found = hashes(leaves)
    assert len(set(found.tolist())) == 8
    assert ((found >= 0) & (found < 1 << BITS)).all()
    assert (tf.function(hashes_in_graph)(leaves).numpy() == found).all()


def test_a_sample_has_its_hash_in_any_batch_and_padding() -> None:
    batch = BATCHES["floats"]
    own = hashes([batch])
    assert (hashes([tf.gather(batch, [3, 1])]) == own[[3, 1]]).all()
    assert (hashes([tf.pad(batch, [[0, 0], [0, 25], [0, 0]])]) == own).all()


def test_a_batch_without_samples_has_no_hashes() -> None:
    empty = tf.zeros([0, 5])
    assert hashes([empty]).size == 0
    assert tf.function(hashes_in_graph)([empty]).shape == (0,)


def test_text_and_flags_tell_no_samples_apart() -> None:
    assert leaves_of((tf.constant(["a"]), tf.constant([True]), tf.constant(1.0))) == []
