"""A loop of short steps, and two seconds of Python that belong to none of them. Usage: spins_afterwards.py [STEPS]."""

import sys
import time

import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
weight = tf.Variable(tf.ones((200, 200)))


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.tanh(batch @ weight) - batch))
    weight.assign_sub(1e-3 * tape.gradient(loss, weight))
    return loss


def evaluate():
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        pass


for batch in tf.data.Dataset.from_tensors(tf.ones((2000, 200))).repeat(steps):
    loss = train_step(batch)
evaluate()
