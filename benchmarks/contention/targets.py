"""Targets whose input and step want the same two processors, behind buffers of every depth, in processes too."""

import multiprocessing

import numpy as np
import tensorflow as tf

HELD = 16  # Batches that loaders in processes keep ready


def _step(size):
    """Two branches of equal length, one for each of two processors."""

    @tf.function
    def step(batch):
        left = tf.zeros([size]) + tf.cast(tf.reshape(batch, [-1])[0], tf.float32)
        right = left + 1.0
        for _ in range(6):  # not in the graph: branches of a loop in the graph take turns
            left = tf.sort(tf.sin(left * 1.7 + tf.range(tf.cast(size, tf.float32))))
            right = tf.sort(tf.sin(right * 1.3 + tf.range(tf.cast(size, tf.float32))))
        return tf.reduce_sum(left) + tf.reduce_sum(right)

    return step


def slow_map(prefetch=2, element=200_000, step=60_000):
    """A map that computes, in turn; ``prefetch`` is -1 for AUTOTUNE."""

    def make(index):
        return tf.sort(tf.sin(tf.range(float(element)) * (1.0 + tf.cast(index % 7, tf.float32))))

    return tf.data.Dataset.range(10**8).map(make).prefetch(prefetch), _step(step)


def in_processes(workers=1, element=200_000, step=60_000):
    """A generator that takes what loaders in processes make; their queue holds :data:`HELD` batches."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue(HELD)

    def load(seed):
        numbers = np.random.default_rng(seed)
        while True:
            queue.put(np.sort(numbers.random(element, dtype=np.float32))[:64])

    def batches():
        loaders = [context.Process(target=load, args=(seed,), daemon=True) for seed in range(workers)]
        for loader in loaders:
            loader.start()
        while True:
            yield queue.get()

    return tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec([64], tf.float32)), _step(step)
