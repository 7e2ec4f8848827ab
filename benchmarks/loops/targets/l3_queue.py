"""One thread fills a `queue.Queue` from storage that answers late: ahead of the step, but slower than it."""

import queue
import threading
import time

import numpy as np
import tensorflow as tf

STEPS = 1_500
ready = queue.Queue(maxsize=4)


def load(number):
    """A batch, by its number."""
    time.sleep(0.03)  # the storage
    draw = np.random.default_rng(number)
    return draw.normal(size=(64, 128)).astype(np.float32), draw.normal(size=(64, 1)).astype(np.float32)


def fill():
    """Put the batches in, one after another."""
    for number in range(STEPS):
        ready.put(load(number))


weights = tf.Variable(tf.zeros([128, 1]))


@tf.function
def train(features, targets):
    """One step of gradient descent."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((features @ weights - targets) ** 2)
    weights.assign_sub(0.01 * tape.gradient(loss, weights))
    return loss


threading.Thread(target=fill, daemon=True).start()
for _ in range(STEPS):
    features, targets = ready.get()
    loss = train(features, targets)
    time.sleep(0.01)  # the device
print(f"{float(loss):.3f}")
