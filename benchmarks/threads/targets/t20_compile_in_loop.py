"""`compile` before each `fit` in a loop: each turn traces the training step again, and memory grows.

References: tensorflow/tensorflow#73864, keras-team/keras#9151.
"""

import keras
import numpy as np

ROWS, BATCH, TURNS = 2_000, 100, 60
rng = np.random.default_rng(20)
x = rng.normal(size=(ROWS, 20)).astype(np.float32)
y = (x.sum(1) > 0).astype(np.int64)
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(2)])

for _ in range(TURNS):
    model.compile(optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
