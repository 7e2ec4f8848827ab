"""Parts that are read by Python code that computes, interleaved with as many parallel calls as there are cores.

The report: with a function that sleeps, a parallel interleave is faster on several cores; with one that works, it is
no faster than in turn. tensorflow/tensorflow#44274
"""

import numpy as np
import tensorflow as tf

PARTS, ROWS, WORK = 48, 4, 200_000


def read_part(part):
    total = 0
    for turn in range(WORK):
        total += (turn * int(part)) % 7
    return np.full((ROWS, 16), total, np.float32)


def open_part(part):
    rows = tf.numpy_function(read_part, [part], tf.float32)
    rows.set_shape((ROWS, 16))
    return tf.data.Dataset.from_tensor_slices(rows)


def make():
    parts = tf.data.Dataset.range(PARTS)
    rows = parts.interleave(open_part, cycle_length=4, num_parallel_calls=4, deterministic=True)
    return rows.batch(16)
