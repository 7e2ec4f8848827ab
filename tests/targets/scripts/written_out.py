"""Keras layers trained op by op, the step written out in the loop, as tutorials have it. Usage: written_out.py LOG."""

import sys

import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(4)
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)])
optimizer = keras.optimizers.Adam()
features = np.random.default_rng(1).normal(size=(600, 8)).astype("float32")
labels = np.random.default_rng(2).normal(size=(600, 4)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((features, labels)).shuffle(600, seed=1).batch(16).prefetch(2)

for epoch in range(6):
    total = 0.0
    # One epoch.
    for number, (inputs, targets) in enumerate(dataset):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True) - targets))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if number % 10 == 0:
            total += float(loss)
    with open(sys.argv[1], "a") as log:
        log.write(f"{epoch} {total}\n")
