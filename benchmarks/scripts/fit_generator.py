"""Keras fit fed by a Python generator that makes its samples as it goes. Usage: fit_generator.py [STEPS]."""

import sys

import keras
import numpy as np
import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
keras.utils.set_random_seed(1)


def samples():
    rng = np.random.default_rng(1)
    while True:
        signal = rng.normal(size=(20_000,))
        spectrum = np.abs(np.fft.rfft(signal))[:64]
        yield spectrum.astype("float32"), int(rng.integers(0, 10))


signature = (tf.TensorSpec((64,), tf.float32), tf.TensorSpec((), tf.int32))
dataset = tf.data.Dataset.from_generator(samples, output_signature=signature).batch(16)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(dataset, steps_per_epoch=steps // 2, epochs=2, verbose=0)
print("loss", repr(history.history["loss"][-1]))
