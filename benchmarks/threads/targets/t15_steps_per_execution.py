"""A model so small that handing over each batch takes longer than its step; several steps a call would hide it.

References: keras-team/keras#16573, keras-team/keras#20451.
"""

import keras
import numpy as np
import tensorflow as tf

ROWS, BATCH = 40_000, 32
rng = np.random.default_rng(15)
x = rng.normal(size=(ROWS, 16)).astype(np.float32)
y = x[:, :1] - 2 * x[:, 1:2]

dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True).cache().prefetch(8)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
model.fit(dataset, epochs=20, verbose=0)
