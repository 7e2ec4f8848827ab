"""A compiled step that takes its time, on data in memory that are ready: there is nothing to mend."""

import time

import numpy as np
import tensorflow as tf

weight = tf.Variable(tf.ones([16, 16]))


def compute(value):
    time.sleep(0.02)
    return value


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(batch @ weight))
    weight.assign_sub(1e-3 * tape.gradient(loss, weight))
    return tf.ensure_shape(tf.numpy_function(compute, [loss], tf.float32), [])


rows = np.random.default_rng(1).normal(size=(512, 16)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(rows).batch(8).prefetch(2)
for _ in range(10):
    for batch in dataset:
        train_step(batch)
