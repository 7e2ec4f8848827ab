"""Python that counts in a loop, in a map with AUTOTUNE, and a budget of one core that is set before the map.

The report: tasks of a Python loop, 20 million turns in all here, come back in bunches of as many as there are cores,
each the slower for it, though ``options.autotune.cpu_budget`` is 1; it seems to be ignored. tensorflow/tensorflow#62821
"""

import numpy as np
import tensorflow as tf

TASKS, TURNS = 40, 500_000


def count(start):
    total = int(start)
    for _ in range(TURNS):
        total += 1
    return np.int64(total)


def make():
    options = tf.data.Options()
    options.autotune.cpu_budget = 1
    numbers = tf.data.Dataset.range(TASKS).with_options(options)
    counted = numbers.map(
        lambda start: tf.numpy_function(count, [start], tf.int64), num_parallel_calls=tf.data.AUTOTUNE
    )
    return counted.batch(2)
