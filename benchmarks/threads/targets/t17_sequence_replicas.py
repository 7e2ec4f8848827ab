"""A `Sequence` under a strategy of ten replicas: training hardly moves, where one device was quick.

Reference: tensorflow/tensorflow#49730. The ten devices are virtual ones of the processor.
"""

import keras
import numpy as np
import tensorflow as tf

REPLICAS, ROWS, BATCH = 10, 4_000, 500
processor = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * REPLICAS)


class Samples(keras.utils.Sequence):
    """Rows that are picked one by one, as from a file of samples."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(17)
        self.samples = rng.random((ROWS, 5, 20), dtype=np.float32)
        self.labels = rng.integers(0, 2, (ROWS, 1)).astype(np.float32)

    def __len__(self):
        return ROWS // BATCH

    def __getitem__(self, index):
        rows = range(index * BATCH, (index + 1) * BATCH)
        picked = np.stack([np.sort(self.samples[row], axis=0) for row in rows])
        return picked, self.labels[rows.start : rows.stop]


strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(REPLICAS)])
with strategy.scope():
    layers = keras.layers
    model = keras.Sequential([keras.Input((5, 20)), layers.Flatten(), layers.Dense(32, "relu"), layers.Dense(1)])
    model.compile(optimizer="adam", loss=keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(Samples(), epochs=20, verbose=2)
