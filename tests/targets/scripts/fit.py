"""Keras's ``fit``: ARGS are the epochs, the batches of one, ``steps_per_execution``, ``eager`` or ``compiled``."""

import sys
import time

import numpy as np
import tensorflow as tf
from tensorflow import keras

EPOCHS, BATCHES, GROUP = (int(value) for value in (sys.argv[1:4] or (2, 60, 1)))
EAGER = sys.argv[4:5] == ["eager"]
keras.utils.set_random_seed(3)


def slow(index):
    time.sleep(0.008)
    return index


def produce(index):
    index = tf.numpy_function(slow, [index], tf.int64)
    index.set_shape([])
    return tf.ones([4, 8]) * tf.cast(index % 7, tf.float32), tf.ones([4, 1])


def compute(value):
    time.sleep(0.005)
    return value


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, batch):
        return self.dense(batch)

    def train_step(self, data):
        logs = super().train_step(data)
        logs["loss"] = tf.ensure_shape(tf.numpy_function(compute, [logs["loss"]], tf.float32), [])
        return logs


model = Model()
model.compile("sgd", "mse", steps_per_execution=GROUP, run_eagerly=EAGER, jit_compile=False)
training = tf.data.Dataset.range(BATCHES).map(produce).prefetch(1)
validation = (np.ones([40, 8], np.float32), np.ones([40, 1], np.float32))
history = model.fit(training, epochs=EPOCHS, validation_data=validation, validation_batch_size=4, verbose=0)
print("loss", history.history["loss"][-1].hex(), flush=True)
