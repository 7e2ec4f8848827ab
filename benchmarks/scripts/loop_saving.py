"""A compiled step with a checkpoint after every tenth. Usage: loop_saving.py [STEPS]."""

import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
keras.utils.set_random_seed(1)
features = np.random.default_rng(1).normal(size=(2048, 128)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(features).shuffle(2048, seed=1).batch(64).repeat().prefetch(2).take(steps)
model = keras.Sequential([keras.Input((128,)), keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(128)])
optimizer = keras.optimizers.Adam()


@tf.function
def train_step(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(batch, training=True) - batch))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
    return loss


with tempfile.TemporaryDirectory() as folder:
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model, optimizer=optimizer), folder, max_to_keep=2)
    for number, batch in enumerate(dataset):
        loss = train_step(batch)
        if number % 10 == 9:
            manager.save()
print("loss", repr(float(loss)))
