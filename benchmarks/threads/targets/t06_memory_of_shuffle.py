"""All numbers of an array, shuffled through a buffer that holds every one of them.

The reports: a full shuffle of small numbers takes ten times and more the memory of the numbers, and keeps it for as
long as there is an iterator. tensorflow/tensorflow#60599, tensorflow/tensorflow#44176
"""

import numpy as np
import tensorflow as tf

NUMBERS, BATCH = 2_000_000, 4_096


def make():
    numbers = tf.data.Dataset.from_tensor_slices(np.arange(NUMBERS))
    return numbers.shuffle(NUMBERS).batch(BATCH)
