"""Targets and a script whose pieces take seconds; ``python tiny.py`` is the script."""

import time

import numpy as np
import tensorflow as tf


def waits(ms=3.0):
    """Batches that take ``ms`` milliseconds each."""

    def load(index):
        time.sleep(ms / 1e3)
        return np.full([8, 8], index % 7, np.float32)

    return tf.data.Dataset.range(1_000_000).map(
        lambda index: tf.ensure_shape(tf.numpy_function(load, [index], tf.float32), [8, 8])
    )


def small(ms=3.0):
    """The same with a step that computes a little."""
    weights = tf.Variable(tf.ones([8, 8]))

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * batch)
        weights.assign_sub(1e-9 * tape.gradient(loss, weights))
        return loss

    return waits(ms), step


if __name__ == "__main__":
    data, trains = small()
    for batch in data.take(300):
        trains(batch)
