"""A stack of small Dense and Dropout layers with an AUC metric that trains slower with Keras 3 than with Keras 2.

Reference: keras-team/keras#19953.
"""

import keras
import numpy as np

ROWS, BATCH = 100_000, 500
rng = np.random.default_rng(14)
x = rng.normal(size=(ROWS, 4)).astype(np.float32)
y = rng.integers(0, 2, (ROWS, 1)).astype(np.float32)

model = keras.Sequential([keras.Input((4,))])
for _ in range(8):
    model.add(keras.layers.Dense(64, "relu"))
    model.add(keras.layers.Dropout(0.1))
model.add(keras.layers.Dense(1, "sigmoid"))
model.compile(
    optimizer=keras.optimizers.Adam(0.001),
    loss=keras.losses.BinaryCrossentropy(label_smoothing=0.05),
    metrics=[keras.metrics.AUC(name="auc")],
    jit_compile=False,
)
model.fit(x, y, batch_size=BATCH, epochs=10, verbose=2)
