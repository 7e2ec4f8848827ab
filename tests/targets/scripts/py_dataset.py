"""``fit`` on a ``PyDataset``, a ``Sequence`` for Keras 2, that waits for each batch and is shuffled between epochs."""

import time

import numpy as np
from tensorflow import keras


class Rows(keras.utils.Sequence):
    def __init__(self, count=64):
        super().__init__()
        self.order = np.arange(count)
        self.rng = np.random.default_rng(0)
        self.on_epoch_end()

    def __len__(self):
        return len(self.order)

    def __getitem__(self, index):
        time.sleep(0.01)
        return np.full([4, 8], self.order[index], np.float32), np.ones([4, 1], np.float32)

    def on_epoch_end(self):
        self.rng.shuffle(self.order)


model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Rows(), epochs=40, verbose=0)
