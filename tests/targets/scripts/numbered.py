"""A compiled step that is given the step's number as a Python int. Usage: numbered.py FILE."""

import sys
from pathlib import Path

import tensorflow as tf

tf.random.set_seed(3)
rows = tf.random.normal((640, 8), seed=1)
dataset = tf.data.Dataset.from_tensor_slices(rows).batch(32).repeat(8)
weight = tf.Variable(tf.ones((8, 8)))


@tf.function
def train_step(batch, number):
    rate = 0.01 / (1 + number // 2)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.tanh(batch @ weight) - batch))
    weight.assign_sub(rate * tape.gradient(loss, weight))
    return loss


for number, batch in enumerate(dataset):
    loss = train_step(batch, number)
Path(sys.argv[1]).write_text(f"{float(loss):.6g}")
