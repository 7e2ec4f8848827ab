"""Targets with faults beside the bottleneck, each of which a rule must name."""

import random
import time

import numpy as np
import tensorflow as tf


def _sleeping_row(index):
    time.sleep(0.02)
    return np.full([16], float(index), np.float32)


def _light_step():
    weights = tf.Variable(tf.ones([16, 16]))

    @tf.function
    def step(batch):
        weights.assign_add(1e-6 * tf.matmul(batch, batch, transpose_a=True))
        return tf.reduce_sum(weights)

    return step


def waits_in_turn():
    """thread-pool: 32 calls that sleep are asked for, on a pool with one thread a core."""
    rows = tf.data.Dataset.range(1_000_000).map(
        lambda i: tf.ensure_shape(tf.numpy_function(_sleeping_row, [i], tf.float32), [16]), num_parallel_calls=32
    )
    return rows.batch(8).prefetch(2), _light_step()


def takes_turns():
    """no-prefetch: TensorFlow's own prefetch is off and none is written, so step and input take turns."""
    rows = tf.data.Dataset.range(1_000_000).map(lambda i: tf.numpy_function(_sleeping_row, [i], tf.float32))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return rows.with_options(options), lambda batch: time.sleep(0.02)


def long_and_short():
    """padding-waste, redundant-prefetch, length-variance: few long rows among short ones, prefetched over and over."""

    def row(index):
        length = tf.where(index % 16 == 0, 64 + 32 * (index // 16 % 8), 8)
        return tf.ones([length, 32])

    rows = tf.data.Dataset.range(1_000_000).map(row).prefetch(64).prefetch(64).padded_batch(16).prefetch(8).prefetch(2)
    return rows, lambda batch: time.sleep(4e-5 * batch.shape[1])


def stumbles():
    """stragglers: one batch in twenty, at random, takes far longer."""
    chance = random.Random(0)

    def load(index):
        time.sleep(0.15 if chance.random() < 0.05 else 0.004)
        return np.float32(index)

    rows = tf.data.Dataset.range(1_000_000).map(lambda i: tf.numpy_function(load, [i], tf.float32))
    return rows.prefetch(1), lambda batch: time.sleep(0.006)


def fuses():
    """xla-untried: a long chain of elementwise ops, which XLA makes one pass over memory."""
    start = tf.Variable(tf.random.normal([1_000_000], seed=1))

    @tf.function
    def step(batch):
        values = start + tf.reduce_mean(batch)
        for number in range(24):
            values = values * 1.0001 + 0.5 * number - values * 0.1
        return tf.reduce_sum(values)

    return tf.data.Dataset.from_tensors(tf.ones([8])).repeat().prefetch(2), step


def with_nan():
    """nan-batch: one component of the batches holds NaN."""
    rows = tf.data.Dataset.range(1_000_000).map(lambda i: (tf.fill([4], float("nan")), i))
    return rows.batch(2).prefetch(1)
