"""Trains on batches that the script makes itself.

ARGS: ``class``, ``generator``, ``queue``, ``index``, ``inline``, ``dataset`` or ``raises``.
Each batch takes 20 ms to make, a step far less. ``dataset`` goes over a dataset in a generator of the script's.
"""

import queue
import sys
import threading
import time

import numpy as np
import tensorflow as tf

HOW, STEPS = sys.argv[1], 2000


def make(number):
    time.sleep(0.02)
    return np.full([16, 32], number % 7, np.float32), np.ones([16, 1], np.float32)


class Clips:
    def __init__(self):
        self.number = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.number += 1
        if HOW == "raises" and self.number == 3:
            raise ValueError("clip 3 cannot be read")
        return make(self.number)


def generated():
    for number in range(STEPS):
        yield make(number)


def from_dataset():
    yield from tf.data.Dataset.range(STEPS).map(
        lambda number: tf.numpy_function(make, [number], (tf.float32, tf.float32))
    )


weights = tf.Variable(tf.zeros([32, 1]))


@tf.function
def train_step(features, labels):
    features, labels = tf.ensure_shape(features, [16, 32]), tf.ensure_shape(labels, [16, 1])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((features @ weights - labels) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


if HOW in ("class", "generator", "dataset", "raises"):
    for _ in range(2):
        for x, y in {"generator": generated, "dataset": from_dataset}.get(HOW, Clips)():
            loss = train_step(x, y)
elif HOW == "queue":
    ready = queue.Queue(1)

    def fill():
        for number in range(STEPS):
            ready.put(make(number))

    threading.Thread(target=fill, daemon=True).start()
    for _ in range(STEPS):
        x, y = ready.get()
        loss = train_step(x, y)
elif HOW == "inline":
    for step in range(STEPS):
        loss = train_step(*make(step))
else:
    step = 0
    while step < STEPS:
        features = make(step)[0]
        x = features / 2.0
        y = np.ones([16, 1], np.float32)
        loss = train_step(x, y)
        step += 1
