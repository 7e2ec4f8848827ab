"""Targets for ``xttsbench optimize``: each can be mended in one way and in no other, or not at all.

The tests copy this file before they use it, for a patch is made of it; pytest does not collect it.
"""

import itertools
import os
import threading
import time

import numpy as np
import tensorflow as tf

_inside = threading.Lock()


def _slow_row(index):
    time.sleep(0.004)
    return np.full([16], float(index % 1000), np.float32)


def _computed_row(index):
    """Some 4 ms of Python, which hold the interpreter lock."""
    total = 0
    for number in range(50_000):
        total += number * number % 7
    return np.full([16], float(index % 1000 + total % 2), np.float32)


def _late_row(index):
    """Another value in some later rows, where it is called a second time before the first call has returned."""
    alone = _inside.acquire(blocking=False)
    time.sleep(0.004)
    if alone:
        _inside.release()
    return np.full([16], float(index % 1000) + float(200 <= index < 400 and not alone), np.float32)


def _lonely_row(index):
    """Takes the process with it where it is called a second time before the first call has returned."""
    if not _inside.acquire(blocking=False):
        os._exit(3)
    try:
        time.sleep(0.0025)
        return np.full([16], float(index % 1000), np.float32)
    finally:
        _inside.release()


def _hanging_row(index):
    """Waits for ever where it is called a second time before the first call has returned."""
    if not _inside.acquire(blocking=False):
        time.sleep(3600)
    try:
        time.sleep(0.0025)
        return np.full([16], float(index % 1000), np.float32)
    finally:
        _inside.release()


def sleeps():
    """Eight sleeps of 4 ms for each batch, one after the other."""

    def load(index):
        return tf.ensure_shape(tf.numpy_function(_slow_row, [index], tf.float32), [16])

    rows = tf.data.Dataset.range(1_000_000).map(load)
    return rows.batch(8)


def sleeps_without_end():
    """The same for more rows than any memory or disk holds, so that only more calls at a time help."""

    def load(index):
        return tf.ensure_shape(tf.numpy_function(_slow_row, [index], tf.float32), [16])

    rows = tf.data.Dataset.range(10**14).map(load)
    return rows.batch(8)


def waits_outside_python():
    """32 ms for each batch in an op that waits, of which no other fix has several calls: they are of one source."""
    from tensorflow.python.data.experimental.ops.testing import sleep

    rows = tf.data.Dataset.range(10**9).apply(sleep(4000))
    return rows.map(lambda x: x * 2).batch(8)


def computes():
    """Eight rows that Python computes, under a lock that no thread beside helps with."""

    def load(index):
        return tf.ensure_shape(tf.numpy_function(_computed_row, [index], tf.float32), [16])

    return tf.data.Dataset.range(1_000_000).map(load).batch(8)


def dies_in_parallel():
    """20 ms of input for each batch, which may be kept, but whose function does not outlive a second call beside it."""
    return tf.data.Dataset.range(320).map(lambda i: tf.numpy_function(_lonely_row, [i], tf.float32)).batch(8)


def hangs_in_parallel():
    """The same, with a function that never returns from a second call beside the first."""
    return tf.data.Dataset.range(320).map(lambda i: tf.numpy_function(_hanging_row, [i], tf.float32)).batch(8)


def late_fault():
    """A function whose parallel calls give other values, beyond what is read of the beginning."""
    rows = tf.data.Dataset.range(100_000).map(lambda i: tf.numpy_function(_late_row, [i], tf.float32))
    return rows.map(lambda x: tf.ensure_shape(x, [16])).batch(8)


def rows_in_memory(batch=4096):
    """200,000 rows of 64 floats with their labels, each cut out, shuffled and copied into its batch by itself."""
    rows = np.random.default_rng(0).normal(size=(200_000, 64)).astype(np.float32)
    labels = np.arange(200_000, dtype=np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((rows, labels))
    dataset = dataset.shuffle(200_000)
    return dataset.batch(batch, drop_remainder=True)


def _ready():
    rows = np.random.default_rng(0).normal(size=(64, 8, 16)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(rows).repeat().prefetch(2)


def _network():
    return [tf.Variable(tf.random.stateless_normal([16, 16], [number, 0]) * 0.1) for number in range(10)]


def _trained(batch, layers, rate):
    """The loss, after one step of gradient descent."""
    with tf.GradientTape() as tape:
        hidden = batch
        for layer in layers:
            hidden = tf.nn.tanh(tf.matmul(hidden, layer) + hidden)
        loss = tf.reduce_mean(hidden**2)
    for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
        layer.assign_sub(rate * gradient)
    return loss


def xla_for_every_length():
    """A step that XLA compiles for each of many lengths, behind a function that is no tf.function itself."""
    rows = tf.data.Dataset.range(10**9).map(lambda i: tf.ones([4, 16 + (i * 37) % 3989, 16]) * 0.1)
    weights = tf.Variable(tf.ones([16, 16]) * 0.01)

    @tf.function(jit_compile=True, reduce_retracing=True)
    def train(batch):
        hidden = batch
        for _ in range(4):
            hidden = tf.tanh(hidden @ weights)
        return tf.reduce_mean(hidden)

    def step(batch):
        loss = train(batch)
        return loss

    return rows.prefetch(2), step


def eager_step():
    """A small network, trained op by op: one graph of it trains the same in a fraction of the time."""
    layers = _network()

    def step(batch):
        return _trained(batch, layers, 0.01)

    return _ready(), step


def eager_step_with_a_schedule():
    """The same with a learning rate that Python counts down: a graph would keep that of its first step."""
    layers = _network()
    steps = tf.Variable(0.0)
    rates = iter(1.0 / number for number in itertools.count(1))

    def step(batch):
        steps.assign_add(1.0)
        return _trained(batch, layers, next(rates))

    return _ready(), step
