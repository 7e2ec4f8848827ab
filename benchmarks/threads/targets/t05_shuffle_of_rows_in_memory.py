"""Rows of two tensors in memory that go one by one through a shuffle of half a million, a cache and large batches.

The report: ``get_next`` of ``shuffle(500_000).cache().repeat().batch(8192)`` over 21,000 rows takes far longer than the
same rows would take to be gathered; older versions were quicker. tensorflow/tensorflow#60822
"""

import numpy as np
import tensorflow as tf

ROWS, COLUMNS, BATCH, BUFFER = 21_000, 96, 2_048, 500_000


def make():
    draw = np.random.default_rng(5)
    features = draw.random((ROWS, COLUMNS), np.float32)
    labels = draw.random((ROWS, 1), np.float32)
    rows = tf.data.Dataset.from_tensor_slices((features, labels))
    rows = rows.shuffle(BUFFER).cache().repeat()
    return rows.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
