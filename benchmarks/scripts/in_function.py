"""The whole epoch in one tf.function, on an input that is late. Usage: in_function.py [STEPS]."""

import sys
import time

import numpy as np
import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
tf.random.set_seed(1)


def read(index):
    time.sleep(0.02)
    return np.random.default_rng(int(index)).normal(size=(32, 64)).astype("float32")


dataset = tf.data.Dataset.range(steps).map(
    lambda index: tf.ensure_shape(tf.numpy_function(read, [index], tf.float32), (32, 64))
)
weights = tf.Variable(tf.random.normal((64, 64), seed=1))


@tf.function
def train(data):
    loss = 0.0
    for batch in data:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(batch @ weights) - batch))
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


print("loss", repr(float(train(dataset))))
