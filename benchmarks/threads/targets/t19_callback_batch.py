"""A callback that takes longer than the batch: Keras warns that `on_train_batch_end` is slow.

Reference: tensorflow/tensorflow#37876.
"""

import keras
import numpy as np

ROWS, BATCH = 12_800, 64
rng = np.random.default_rng(19)
x = rng.normal(size=(ROWS, 32)).astype(np.float32)
y = x[:, :1] * x[:, 1:2]


class Norms(keras.callbacks.Callback):
    """Keeps the spectral norm of each kernel after each batch."""

    def __init__(self):
        super().__init__()
        self.norms = []

    def on_train_batch_end(self, batch, logs=None):
        kernels = [weight for weight in self.model.get_weights() if weight.ndim == 2]
        self.norms.append([float(np.linalg.svd(kernel, compute_uv=False)[0]) for kernel in kernels])


model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(256, "relu")])
model.add(keras.layers.Dense(1))
model.compile(optimizer="adam", loss="mse")
model.fit(x, y, batch_size=BATCH, epochs=6, callbacks=[Norms()], verbose=0)
