"""A class with `__next__` reads each batch from storage that answers late, in the thread that trains."""

import time

import numpy as np
import tensorflow as tf

BATCHES, BATCH, EPOCHS = 60, 64, 8


class Clips:
    """Batches of an epoch, each read when it is asked for."""

    def __iter__(self):
        self.number = 0
        return self

    def __next__(self):
        if self.number == BATCHES:
            raise StopIteration
        self.number += 1
        time.sleep(0.03)  # the storage
        draw = np.random.default_rng(self.number)
        return draw.normal(size=(BATCH, 256)).astype(np.float32), draw.integers(0, 10, BATCH)


model = tf.keras.Sequential([tf.keras.Input((256,)), tf.keras.layers.Dense(1024, "relu"), tf.keras.layers.Dense(10)])
optimizer = tf.keras.optimizers.Adam()
optimizer.build(model.trainable_variables)


@tf.function
def train(images, targets):
    """One step; a device would take as long."""
    with tf.GradientTape() as tape:
        scores = model(images, training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, scores))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
    return loss


loader = Clips()
for epoch in range(EPOCHS):
    for images, targets in loader:
        loss = train(images, targets)
        time.sleep(0.02)  # the device
    print(f"epoch {epoch}: {float(loss):.3f}")
