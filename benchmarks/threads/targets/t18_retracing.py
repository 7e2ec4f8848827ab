"""A compiled training step that is handed the number of the step and a learning rate as Python numbers: TensorFlow
warns of retracing, and every step takes as long as the first.

Reference: tensorflow/tensorflow#34025.
"""

import keras
import numpy as np
import tensorflow as tf

ROWS, BATCH, STEPS = 20_000, 64, 1_500
rng = np.random.default_rng(18)
x = rng.normal(size=(ROWS, 20)).astype(np.float32)
y = x.sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).cache().repeat().batch(BATCH).prefetch(4)

model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD()
optimizer.build(model.trainable_variables)


@tf.function
def train(features, targets, rate):
    """One step of gradient descent at a rate."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(features, training=True) - targets) ** 2)
    optimizer.learning_rate.assign(rate)
    optimizer.apply(tape.gradient(loss, model.trainable_variables))
    return loss


for step, (features, targets) in enumerate(dataset.take(STEPS)):
    train(features, targets, 0.01 * 0.999**step)
