"""Keras fit on arrays in memory: the step itself is the work. Usage: fit_healthy.py [STEPS]."""

import sys

import keras
import numpy as np
import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
keras.utils.set_random_seed(1)
features = np.random.default_rng(1).normal(size=(4096, 512)).astype("float32")
labels = np.random.default_rng(2).integers(0, 10, size=4096)
dataset = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(4096, seed=1).batch(256).repeat().prefetch(2)

model = keras.Sequential([keras.layers.Dense(1024, activation="relu") for _ in range(3)] + [keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(dataset, steps_per_epoch=steps // 2, epochs=2, verbose=0)
print("loss", repr(history.history["loss"][-1]))
