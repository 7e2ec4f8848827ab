"""A step that calls ``tf.py_function`` outside of a graph, once for each batch.

The reports: resident memory grows with every call of ``tf.py_function`` that is made op by op, until the machine has no
more; ``tf.numpy_function`` in its place does not grow. tensorflow/tensorflow#35010, tensorflow/tensorflow#61344
"""

import numpy as np
import tensorflow as tf

ROWS, COLUMNS, BATCH = 2_048, 2_000, 64


def waves(rows):
    return np.cos(rows)


def make():
    table = np.random.default_rng(7).random((ROWS, COLUMNS), np.float32)
    weight = tf.Variable(tf.zeros((COLUMNS, 1)))

    @tf.function
    def update(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(rows, weight) - 1.0))
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    def step(rows):
        return update(tf.py_function(waves, [rows], tf.float32))

    return tf.data.Dataset.from_tensor_slices(table).batch(BATCH).prefetch(2), step
