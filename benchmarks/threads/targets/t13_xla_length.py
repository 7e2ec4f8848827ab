"""Sequences of many lengths through a model that XLA compiles: every length is compiled anew, and training crawls.

References: tensorflow/tensorflow#62198, keras-team/keras-cv#2406.
"""

import keras
import numpy as np
import tensorflow as tf

FEATURES, BATCH = 24, 16


def batches():
    """Batches of as many lengths as there are batches."""
    rng = np.random.default_rng(13)
    for length in rng.permutation(np.arange(20, 220)):
        yield rng.random((BATCH, length, FEATURES), dtype=np.float32), rng.integers(0, 4, BATCH)


signature = (tf.TensorSpec((BATCH, None, FEATURES), tf.float32), tf.TensorSpec((BATCH,), tf.int64))
dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
layers = keras.layers
model = keras.Sequential(
    [
        keras.Input((None, FEATURES)),
        layers.Dense(32, activation="relu"),
        layers.GlobalAveragePooling1D(),
        layers.Dense(4),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True)
model.fit(dataset, epochs=2, verbose=2)
