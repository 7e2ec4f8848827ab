"""A loop of its own around a compiled step that waits for its batches. Usage: loop_input.py [STEPS]."""

import sys
import time

import keras
import numpy as np
import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
keras.utils.set_random_seed(1)


def read(index):
    time.sleep(0.02)
    return np.random.default_rng(int(index)).normal(size=(32, 64)).astype("float32")


dataset = tf.data.Dataset.range(steps).map(
    lambda index: tf.ensure_shape(tf.numpy_function(read, [index], tf.float32), (32, 64))
)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(64)])
optimizer = keras.optimizers.Adam()


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(batch, training=True) - batch))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
    return loss


for batch in dataset:
    loss = train_step(batch)
print("loss", repr(float(loss)))
