"""Targets for comparisons, whose speeds are known waits: the tests name them, pytest does not collect them."""

import os
import signal
import threading
import time

import numpy as np
import tensorflow as tf

import xttsbench


def waits(ms=10.0, offset=0.0, act=None, batch=4, with_lengths=True):
    """A dataset whose batches take ``ms`` milliseconds each; ``act`` is done in the load of its tenth batch."""

    def load(index):
        time.sleep(ms / 1e3)
        if index == 10:
            _do(act)
        return np.full([batch, 8, 2], index % 7 + offset, np.float32)

    def element(index):
        mel = tf.ensure_shape(tf.numpy_function(load, [index], tf.float32), [batch, 8, 2])
        ids = tf.cast(index, tf.int32) * batch + tf.range(batch)
        return {"id": ids, "mel": mel, "mel_length": tf.constant([8, 6, 4, 2][:batch], tf.int32)}

    dataset = tf.data.Dataset.range(1_000_000).map(element)
    return xttsbench.Workload(dataset, frames="mel", lengths="mel_length") if with_lengths else dataset


def steps(ms=10.0, shapes=1):
    """Batches of some shapes that are ready, and a step that waits."""
    dataset = tf.data.Dataset.range(1_000_000).map(lambda i: tf.ones([4, 8 + i % shapes])).prefetch(2)

    @tf.function
    def count(batch):
        return tf.reduce_sum(batch)

    def step(batch):
        time.sleep(ms / 1e3)
        return count(batch)

    return dataset, step


def spins():
    """Batches that are ready, while another thread computes without end."""

    def spin():
        while True:
            np.sort(numbers)

    numbers = np.random.default_rng(0).random(1_000_000)
    threading.Thread(target=spin, daemon=True).start()
    return tf.data.Dataset.range(1_000_000).batch(2)


def _do(act):
    if act == "raise":
        raise ValueError("the tenth batch is broken")
    if act == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "hang":
        time.sleep(3600)
