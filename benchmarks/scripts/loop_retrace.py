"""A compiled step that is given the step's number as a Python int. Usage: loop_retrace.py [STEPS]."""

import sys

import keras
import numpy as np
import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 120
keras.utils.set_random_seed(1)
features = np.random.default_rng(1).normal(size=(2048, 32)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(features).batch(32).repeat().prefetch(2).take(steps)
weights = tf.Variable(tf.random.normal((32, 32), seed=1))


@tf.function
def train_step(batch, number):
    rate = 0.01 / (1 + number // 2)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.tanh(batch @ weights) - batch))
    weights.assign_sub(rate * tape.gradient(loss, weights))
    return loss


for number, batch in enumerate(dataset):
    loss = train_step(batch, number)
print("loss", repr(float(loss)))
