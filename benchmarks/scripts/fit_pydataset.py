"""Keras fit fed by a PyDataset that reads its batches one by one. Usage: fit_pydataset.py [STEPS]."""

import sys
import time

import keras
import numpy as np

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
keras.utils.set_random_seed(1)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return steps // 2

    def __getitem__(self, index):
        time.sleep(0.02)  # sixteen files on a slow disk
        rng = np.random.default_rng(index)
        return rng.normal(size=(16, 64)).astype("float32"), rng.integers(0, 10, size=16)


model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(Batches(), epochs=2, shuffle=False, verbose=0)
print("loss", repr(history.history["loss"][-1]))
