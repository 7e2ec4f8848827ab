"""Rows of an array that a Python generator yields one by one, each of ten columns, where slices would do.

The report: a dataset made of a generator is more than ten times slower than one made of slices of the same data, and
the more so the more columns each row has. tensorflow/tensorflow#56258
"""

import numpy as np
import tensorflow as tf

ROWS, COLUMNS, BATCH = 12_000, 10, 128


def make():
    table = np.random.default_rng(1).normal(size=(ROWS, COLUMNS)).astype(np.float32)

    def rows():
        for row in table:
            yield tuple(row)

    columns = tuple(tf.TensorSpec((), tf.float32) for _ in range(COLUMNS))
    return tf.data.Dataset.from_generator(rows, output_signature=columns).batch(BATCH)
