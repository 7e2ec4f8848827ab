"""A step of 100 ms and more that runs op by op, on batches that take so many milliseconds each: the one argument."""

import sys
import time

import tensorflow as tf

MAKING_S = float(sys.argv[1]) / 1000


def load(index):
    time.sleep(MAKING_S)
    return index


def make(index):
    index = tf.numpy_function(load, [index], tf.int64)
    index.set_shape([])
    return tf.ones([8, 16]) * tf.cast(index % 9, tf.float32)


weight = tf.Variable(tf.ones([16, 1]))
for epoch in range(1000):
    for batch in tf.data.Dataset.range(40).map(make).prefetch(1):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((batch @ weight - 1.0) ** 2)
            time.sleep(0.1)
        gradient = tape.gradient(loss, weight)
        weight.assign_sub(1e-4 * gradient)
    print("epoch", epoch, "loss", float(loss), flush=True)
