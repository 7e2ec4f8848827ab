"""Targets of this benchmark's own: what misled the diagnosis on a machine that lost time, and arms of known speed."""

import time

import numpy as np
import tensorflow as tf


def _weights(size):
    return tf.constant(np.random.default_rng(0).standard_normal([size, size]).astype(np.float32) / size)


def lengths_vary():
    """compute: a compiled step on batches of many lengths, which take as long as they are."""
    lengths = tf.constant(np.random.default_rng(1).integers(4, 25, 997) * 32, tf.int64)
    dataset = tf.data.Dataset.range(1_000_000).map(lambda i: tf.ones([lengths[i % 997], 256])).prefetch(2)
    weights = _weights(256)

    @tf.function(input_signature=[tf.TensorSpec([None, 256], tf.float32)])
    def step(batch):
        for _ in range(24):
            batch = tf.tanh(batch @ weights)
        return tf.reduce_sum(batch)

    return dataset, step


def work_in_the_loop():
    """host: a compiled step, and as much work of the loop's own after it, in Python."""
    weights = _weights(256)
    dataset = tf.data.Dataset.from_tensors(tf.ones([256, 256])).repeat().prefetch(2)

    @tf.function
    def train(batch):
        for _ in range(12):
            batch = tf.tanh(batch @ weights)
        return tf.reduce_sum(batch)

    def step(batch):
        train(batch)
        total = 0.0
        for value in range(150_000):
            total += value * 0.5
        return total

    return dataset, step


def few_batches():
    """inconclusive: a dataset that ends after three batches, so that starting it over is what was measured."""

    def step(batch):
        time.sleep(0.01)
        return tf.reduce_sum(batch)

    return tf.data.Dataset.range(3).map(lambda i: tf.ones([4])), step


def computes(work=39):
    """An arm: a compiled step that computes, in proportion to ``work``."""
    weights = _weights(256)
    dataset = tf.data.Dataset.from_tensors(tf.ones([128, 256])).repeat().prefetch(2)

    @tf.function
    def step(batch):
        loss = tf.reduce_mean(batch)  # the same for all arms, so that none is refused for its losses
        for _ in tf.range(2 * work):
            batch = tf.tanh(batch @ weights)
        return loss + tf.minimum(tf.abs(tf.reduce_sum(batch)), 1e-12)

    return dataset, step


def sleeps(ms=13.0):
    """An arm: a step that only waits."""
    dataset = tf.data.Dataset.from_tensors(tf.ones([4, 8])).repeat().prefetch(2)

    def step(batch):
        time.sleep(ms / 1e3)
        return float(batch[0, 0])

    return dataset, step
