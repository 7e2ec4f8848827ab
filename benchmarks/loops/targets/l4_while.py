"""A `while` loop takes batches from a generator, and gives them to `train_on_batch`."""

import time

import keras
import numpy as np

STEPS = 1_000


def generated():
    """Batches from storage that answers late."""
    draw = np.random.default_rng(4)
    while True:
        time.sleep(0.03)  # the storage
        yield draw.normal(size=(64, 128)).astype(np.float32), draw.normal(size=(64, 1)).astype(np.float32)


model = keras.Sequential([keras.Input((128,)), keras.layers.Dense(2048, "relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(), "mse")
batches, step = generated(), 0
while step < STEPS:
    features, targets = next(batches)
    loss = model.train_on_batch(features, targets)
    time.sleep(0.02)  # the device
    step += 1
print(f"{float(loss):.3f}")
