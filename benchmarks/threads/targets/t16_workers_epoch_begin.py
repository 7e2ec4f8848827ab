"""A PyDataset with workers that draws its order in `on_epoch_begin`: the workers read before it has run.

Reference: keras-team/keras#23283.
"""

import keras
import numpy as np

ROWS, BATCH, WIDTH = 2_048, 32, 96


class Batches(keras.utils.PyDataset):
    """Rows in another order in each epoch, scaled in Python."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.rng = np.random.default_rng(16)
        self.rows = self.rng.random((ROWS, WIDTH), dtype=np.float32)
        self.order = np.arange(ROWS)

    def __len__(self):
        return ROWS // BATCH

    def on_epoch_begin(self):
        self.order = self.rng.permutation(ROWS)

    def __getitem__(self, index):
        chosen = self.rows[self.order[index * BATCH : (index + 1) * BATCH]]
        spectra = np.stack([np.abs(np.fft.rfft(np.outer(row, row), axis=1)).mean(0) for row in chosen])
        return spectra.astype(np.float32), chosen[:, :1]


model = keras.Sequential([keras.Input((WIDTH // 2 + 1,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse")
model.fit(Batches(workers=4), epochs=4, verbose=2)
