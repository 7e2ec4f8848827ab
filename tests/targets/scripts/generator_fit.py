"""``fit`` over ``from_generator``, which hangs the interpreter's own exit where it is broken off, or over arrays."""

import sys

import numpy as np
import tensorflow as tf
from tensorflow import keras


def generate():
    while True:
        yield np.ones([4, 8], np.float32), np.ones([4, 1], np.float32)


class Sequence(keras.utils.Sequence):
    def __init__(self):
        if hasattr(keras.utils, "PyDataset"):  # with Keras 2 its workers are fit's
            super().__init__(workers=2, use_multiprocessing=False)

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return np.ones([4, 8], np.float32), np.ones([4, 1], np.float32)


model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
signature = (tf.TensorSpec([4, 8], tf.float32), tf.TensorSpec([4, 1], tf.float32))
data = {
    "from_generator": lambda: (tf.data.Dataset.from_generator(generate, output_signature=signature).prefetch(2),),
    "generator": lambda: (generate(),),
    "sequence": lambda: (Sequence(),),
    "arrays": lambda: (np.ones([40_000, 8], np.float32), np.ones([40_000, 1], np.float32)),
}
if sys.argv[1] == "train_on_batch":
    for features, labels in data["from_generator"]()[0]:
        model.train_on_batch(features, labels)
model.fit(*data[sys.argv[1]](), epochs=5, steps_per_epoch=10_000, verbose=0, batch_size=None)
