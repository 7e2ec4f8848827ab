"""Generators for ``xttsbench optimize``: one whose elements can be made beside one another, and one whose cannot.

The tests copy this file before they use it, for a patch is made of it; pytest does not collect it.
"""

import time

import numpy as np
import tensorflow as tf

ITEMS = list(range(400))


def load(number):
    """Waits, as reading a file over the network does."""
    time.sleep(0.004)
    return np.full([16], float(number), np.float32)


def rows():
    """In another order in each epoch."""
    rng = np.random.default_rng(3)
    for epoch in range(1_000):
        for index in rng.permutation(len(ITEMS)):
            row = load(ITEMS[index])
            yield row, epoch


def waits():
    """Eight rows of 4 ms for each batch, one after the other."""
    signature = (tf.TensorSpec([16], tf.float32), tf.TensorSpec([], tf.int64))
    return tf.data.Dataset.from_generator(rows, output_signature=signature).batch(8)


def means():
    """Each element builds on the one before."""
    mean = np.zeros([16], np.float32)
    while True:
        for item in ITEMS:
            mean = 0.9 * mean + 0.1 * load(item)
            yield mean


def remembers():
    """The same waits, in an order that nothing may change."""
    return tf.data.Dataset.from_generator(means, output_signature=tf.TensorSpec([16], tf.float32)).batch(8)
