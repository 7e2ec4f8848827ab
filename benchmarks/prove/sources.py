"""Sources of pipelines of several kinds, from which planted edits are made: a target or a script that is written out.

Every kind yields the same kind of rows: 24 floats and a number. Its source begins with constants, of which an edit
changes one, and has two forms: as it is, and ``FAST``, another way to the same data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CONSTANTS: Final[Mapping[str, Any]] = {
    "ROWS": 2003,
    "BATCH": 32,
    "DROP": False,  # drop_remainder
    "FAST": False,
    "SHUFFLED": False,
    "NOISE": 0.0,  # of augmentation, drawn anew for each row
    "FROZEN": False,  # what is drawn in the first epoch is kept
    "REVERSED": False,
    "CHANGED": False,  # one value in 10,000
    "PAIRED": False,  # neighbours change places: other batches of the same size
}

HEAD: Final = """\
import time

import numpy as np
import tensorflow as tf

{constants}
ORDER = np.arange(ROWS)[::-1] if REVERSED else np.arange(ROWS)
if PAIRED:
    ORDER = ORDER[np.arange(ROWS) * 7 % ROWS]
X = np.random.default_rng(0).normal(size=(ROWS, 24)).astype("float32")
X[1507, 3] += 1e-3 if CHANGED else 0
Y = np.arange(ROWS)


def prepared(x):
    return np.tanh(x) * np.float32(0.5)


def augmented(x, y):
    return x + tf.random.normal(tf.shape(x), stddev=NOISE), y


def finished(dataset, batched=False):
    if SHUFFLED:
        dataset = dataset.shuffle(ROWS)
    if NOISE:
        dataset = dataset.map(augmented)
    if FROZEN:
        dataset = dataset.cache()
    return dataset if batched else dataset.batch(BATCH, drop_remainder=DROP)

"""

KINDS: Final[Mapping[str, str]] = {
    "arrays": """
def make():
    x = prepared(X[ORDER])
    if FAST and not SHUFFLED:
        batches = [(x[at:at + BATCH], Y[ORDER][at:at + BATCH]) for at in range(0, ROWS, BATCH)]
        signature = (tf.TensorSpec((None, 24), "float32"), tf.TensorSpec((None,), "int64"))
        return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)
    return finished(tf.data.Dataset.from_tensor_slices((x, Y[ORDER])))
""",
    "map": """
def make():
    def one(index):
        return tf.tanh(tf.gather(X, index)) * 0.5, index

    calls = 4 if FAST else None
    dataset = finished(tf.data.Dataset.from_tensor_slices(ORDER).map(one, num_parallel_calls=calls))
    return dataset.prefetch(2) if FAST else dataset
""",
    "numpy_function": """
def load(index):
    return prepared(X[index])


def make():
    def one(index):
        return tf.ensure_shape(tf.numpy_function(load, [index], tf.float32), (24,)), index

    calls = 4 if FAST else None
    return finished(tf.data.Dataset.from_tensor_slices(ORDER).map(one, num_parallel_calls=calls))
""",
    "batches at once": """
def load(rows):
    return prepared(X[rows])


def make():
    if FAST:
        def some(rows):
            return tf.ensure_shape(tf.numpy_function(load, [rows], tf.float32), (None, 24)), rows

        indices = tf.data.Dataset.from_tensor_slices(ORDER)
        indices = indices.shuffle(ROWS) if SHUFFLED else indices
        return indices.batch(BATCH, drop_remainder=DROP).map(some).prefetch(1)

    def one(row):
        return tf.ensure_shape(tf.numpy_function(load, [row], tf.float32), (24,)), row

    return finished(tf.data.Dataset.from_tensor_slices(ORDER).map(one))
""",
    "generator": """
def rows():
    for index in ORDER:
        yield prepared(X[index]), index


def make():
    signature = (tf.TensorSpec((24,), "float32"), tf.TensorSpec((), "int64"))
    dataset = tf.data.Dataset.from_generator(rows, output_signature=signature)
    return finished(dataset.prefetch(64) if FAST else dataset)
""",
    "script": """
def load(index):
    return prepared(X[index])


def one(index):
    return tf.ensure_shape(tf.numpy_function(load, [index], tf.float32), (24,)), index


weights = tf.Variable(tf.zeros((24, 1)))


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - tf.cast(y[:, None], tf.float32)) ** 2)
    weights.assign_sub(1e-9 * tape.gradient(loss, weights))
    return loss


dataset = finished(tf.data.Dataset.from_tensor_slices(ORDER).map(one, num_parallel_calls=4 if FAST else None))
for epoch in range(4):
    for x, y in dataset:
        step(x, y)
""",
    "sequence": """
import keras


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return ROWS // BATCH if DROP else -(-ROWS // BATCH)

    def __getitem__(self, index):
        rows = ORDER[index * BATCH:(index + 1) * BATCH]
        if FAST:
            x = prepared(X[rows])
        else:
            x = np.stack([prepared(X[row]) for row in rows])
        if NOISE:
            x = x + np.random.normal(scale=NOISE, size=x.shape).astype("float32")
        return x, Y[rows].astype("float32")


model = keras.Sequential([keras.Input((24,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Batches(), epochs=4, shuffle=False, verbose=0)
""",
}
SCRIPTS: Final = ("script", "sequence")
"""Kinds that are scripts; the others have a function ``make``."""


def source(kind: str, changes: Mapping[str, Any]) -> str:
    """The text of a target of a kind, with some constants changed."""
    constants = "\n".join(f"{name} = {value!r}" for name, value in (CONSTANTS | dict(changes)).items())
    return HEAD.format(constants=constants) + KINDS[kind]
