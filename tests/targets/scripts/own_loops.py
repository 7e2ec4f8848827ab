"""Trains on batches of its own making, which may depend on what the step did before.

ARGS: ``plain``, a loader with a state of its own; ``weights``, one that reads the model's weights. Each batch takes
20 ms to make, a step about as long.
"""

import sys
import time

import numpy as np
import tensorflow as tf

HOW = sys.argv[1]
weights = tf.Variable(tf.zeros([32, 1]))


class Clips:
    def __init__(self):
        self.made = 0

    def __iter__(self):
        for _ in range(200):
            time.sleep(0.02)
            self.made += 1
            x = np.full([16, 32], self.made % 7, np.float32)
            if HOW == "weights":
                x = x + weights.numpy()[0, 0]
            yield x, np.ones([16, 1], np.float32)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - y) ** 2)
    weights.assign_sub(0.001 * tape.gradient(loss, weights))
    return loss


clips = Clips()
for _ in range(20):
    for x, y in clips:
        loss = train_step(x, y)
        time.sleep(0.02)  # the device
