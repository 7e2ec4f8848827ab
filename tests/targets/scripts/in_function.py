"""A loop inside a tf.function: ``for``, ``next`` or ``once`` (one request a call), and the batches."""

import sys
import time

import tensorflow as tf

HOW, BATCHES = sys.argv[1], int(sys.argv[2])
weight = tf.Variable(tf.ones([8, 1]))


def slow(index):
    time.sleep(0.008)
    return index


def produce(index):
    index = tf.numpy_function(slow, [index], tf.int64)
    index.set_shape([])
    return tf.ones([4, 8]) * tf.cast(index % 7, tf.float32)


def compute(value):
    time.sleep(0.005)
    return value


def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((batch @ weight - 1.0) ** 2)
    weight.assign_sub(1e-4 * tape.gradient(loss, weight))
    return tf.ensure_shape(tf.numpy_function(compute, [loss], tf.float32), [])


@tf.function
def train_for(dataset):
    loss = 0.0
    for batch in dataset:
        loss = train_step(batch)
    return loss


@tf.function
def train_next(iterator):
    loss = 0.0
    for _ in tf.range(BATCHES):
        loss = train_step(next(iterator))
    return loss


@tf.function
def train_once(iterator):
    return train_step(next(iterator))


training = tf.data.Dataset.range(BATCHES).map(produce).prefetch(1)
for _ in range(2):
    if HOW == "for":
        loss = train_for(training)
    elif HOW == "next":
        loss = train_next(iter(training))
    else:
        iterator = iter(training)
        for _ in range(BATCHES):
            loss = train_once(iterator)
print("loss", float(loss).hex(), flush=True)
