"""A loop of its own whose step runs op by op. Usage: loop_eager.py [STEPS]."""

import sys

import keras
import numpy as np
import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
keras.utils.set_random_seed(1)
features = np.random.default_rng(1).normal(size=(2048, 32)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(features).shuffle(2048, seed=1).batch(32).repeat().prefetch(2).take(steps)
model = keras.Sequential([keras.layers.Dense(64, activation="relu") for _ in range(4)] + [keras.layers.Dense(32)])
optimizer = keras.optimizers.Adam()

for batch in dataset:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(batch, training=True) - batch))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
print("loss", repr(float(loss)))
