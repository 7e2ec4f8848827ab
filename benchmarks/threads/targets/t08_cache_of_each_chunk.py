"""Chunks that Python makes between two calls of ``fit``, each in a dataset with a cache and a prefetch.

The report: data too large for memory are trained on in chunks; each chunk is read and made into arrays, then
``from_tensor_slices(...).batch(64).cache().prefetch(AUTOTUNE)`` is fitted for two epochs. Neither the cache nor the
prefetch speeds anything up. tensorflow/tensorflow#37178
"""

import keras
import numpy as np
import tensorflow as tf

EPOCHS, CHUNKS, ROWS, SIDE = 4, 6, 256, 24


def extract(chunk):
    """Makes a chunk as one would from files: a picture at a time, in Python."""
    draw = np.random.default_rng(chunk)
    pictures, targets = [], []
    for _ in range(ROWS):
        picture = draw.random((SIDE, SIDE))
        for _ in range(12):
            picture = np.abs(np.fft.ifft2(np.fft.fft2(picture) * 0.5)) + 0.25 * picture
        pictures.append(picture.astype(np.float32))
        targets.append(picture.mean())
    return np.stack(pictures), np.array(targets, np.float32)


model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
for _ in range(EPOCHS):
    for number in range(CHUNKS):
        x, y = extract(number)
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64).cache().prefetch(tf.data.AUTOTUNE)
        model.fit(data, epochs=2, verbose=0)
