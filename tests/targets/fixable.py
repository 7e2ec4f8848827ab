"""Targets for `xttsbench optimize`: each can be mended in one way and in no other, or not at all.

The tests copy this file before they use it, so that what a patch is made for is nobody else's; pytest does not collect
it.
"""

import itertools
import os
import threading
import time

import numpy as np
import tensorflow as tf

_calls = itertools.count()
_inside = threading.Lock()


def _slow_row(index):
    time.sleep(0.004)
    return np.full([16], float(index % 1000), np.float32)


def _numbered_row(index):
    time.sleep(0.004)
    return np.full([16], float(next(_calls) % 1000), np.float32)


def _lonely_row(index):
    """Takes the process with it where it is called a second time before the first one has returned."""
    if not _inside.acquire(blocking=False):
        os._exit(3)
    try:
        time.sleep(0.0025)
        return np.full([16], float(index % 1000), np.float32)
    finally:
        _inside.release()


def _load_with(function):
    return lambda index: tf.ensure_shape(tf.numpy_function(function, [index], tf.float32), [16])


def sleeps():
    """Eight sleeps of 4 ms for each batch, one after the other, with nothing ahead of the step."""
    return tf.data.Dataset.range(1_000_000).map(lambda index: load(index)).batch(8)


def load(index):
    return tf.ensure_shape(tf.numpy_function(_slow_row, [index], tf.float32), [16])


def counts_its_calls():
    """The same sleeps, and what a row holds is how many there were before it: no call may be moved."""
    return tf.data.Dataset.range(1_000_000).map(_load_with(_numbered_row)).batch(8)


def dies_in_parallel():
    """20 ms of input for each batch, which may be prefetched, and whose function never outlives a parallel call."""
    return tf.data.Dataset.range(1_000_000).map(_load_with(_lonely_row)).batch(8)


def _ready():
    rows = np.random.default_rng(0).normal(size=(64, 8, 16)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(rows).repeat().prefetch(2)


def _network():
    return [tf.Variable(tf.random.stateless_normal([16, 16], [number, 0]) * 0.1) for number in range(10)]


def _loss_of(batch, layers, rate):
    with tf.GradientTape() as tape:
        hidden = batch
        for layer in layers:
            hidden = tf.nn.tanh(tf.matmul(hidden, layer) + hidden)
        loss = tf.reduce_mean(hidden**2)
    for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
        layer.assign_sub(rate * gradient)
    return loss


def eager_step():
    """A small network, trained op by op: one graph of it trains the same in a fraction of the time."""
    layers = _network()

    def step(batch):
        return _loss_of(batch, layers, 0.01)

    return _ready(), step


def eager_step_with_a_schedule():
    """The same with a learning rate that Python counts down: a graph would keep that of its first step."""
    layers = _network()
    steps = [0]

    def step(batch):
        steps[0] += 1
        return _loss_of(batch, layers, 1.0 / steps[0])

    return _ready(), step


def eager_step_that_keeps_a_log():
    """The same with a list of the steps that were taken: a graph would append to it once."""
    layers = _network()
    log = []

    def step(batch):
        log.append(len(log))
        return _loss_of(batch, layers, 0.01)

    return _ready(), step
