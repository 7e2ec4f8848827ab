"""A step that calls ``tf.py_function`` op by op, inside of its gradient tape, once for each batch.

The reports: resident memory grows with every such call of ``tf.py_function``, until the machine has no more;
``tf.numpy_function`` in its place does not grow. tensorflow/tensorflow#35010, tensorflow/tensorflow#61344
"""

import numpy as np
import tensorflow as tf

ROWS, COLUMNS, BATCH = 2_048, 2_000, 64


def waves(rows):
    return np.cos(rows)


def make():
    table = np.random.default_rng(7).random((ROWS, COLUMNS), np.float32)
    weight = tf.Variable(tf.zeros((COLUMNS, 1)))

    def step(rows):
        with tf.GradientTape() as tape:
            waved = tf.py_function(waves, [rows], tf.float32)
            loss = tf.reduce_mean(tf.square(tf.matmul(waved, weight) - 1.0))
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    return tf.data.Dataset.from_tensor_slices(table).batch(BATCH).prefetch(2), step
