"""Keras fit whose images are decoded by NumPy, one after another. Usage: fit_input.py [STEPS]."""

import sys
import time

import keras
import numpy as np
import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
keras.utils.set_random_seed(1)


def decode(index):
    time.sleep(0.0015)  # a file on a slow disk
    return np.random.default_rng(int(index)).normal(size=(64,)).astype("float32")


def load(index):
    image = tf.numpy_function(decode, [index], tf.float32)
    return tf.ensure_shape(image, (64,)), index % 10


dataset = tf.data.Dataset.range(100_000).map(load).batch(16)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(dataset.repeat(), steps_per_epoch=steps // 2, epochs=2, verbose=0)
print("loss", repr(history.history["loss"][-1]))
