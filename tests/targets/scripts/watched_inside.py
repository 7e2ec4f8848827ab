"""Watched from inside: fit without the callback and with it, twice, and a loop. Usage: watched_inside.py OUT."""

import json
import sys
import time

import numpy as np
import tensorflow as tf
from tensorflow import keras

import xttsbench
import xttsbench.keras


def late(index):
    time.sleep(0.005)
    return np.random.default_rng(int(index)).normal(size=(8,)).astype("float32")


def losses(callbacks):
    keras.utils.set_random_seed(1)
    data = tf.data.Dataset.range(120).map(lambda i: tf.ensure_shape(tf.numpy_function(late, [i], tf.float32), (8,)))
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    history = model.fit(data.map(lambda x: (x, x[:1])).batch(2), epochs=2, verbose=0, callbacks=callbacks)
    return history.history["loss"]


if __name__ == "__main__":
    out = sys.argv[1]
    plain = losses([])
    watch = xttsbench.keras.Watch(out, tensorboard=f"{out}/scalars", quiet=True)
    watched = losses([watch])
    first = watch.summary
    again = xttsbench.keras.Watch()
    losses([again])
    total = tf.Variable(0.0)
    loops = 0
    data = xttsbench.watched([np.full((4, 2), n, "float32") for n in range(40)])
    for _ in range(2):
        for batch in data:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(batch * total)
            total.assign_sub(1e-6 * tape.gradient(loss, total))
            loops += 1
    try:
        xttsbench.watched(data, out=f"{out}-other")
        refused = ""
    except xttsbench.errors.UsageError as error:
        refused = str(error)
    told = {
        "equal": plain == watched,
        "first": [first.bottleneck, first.steps, list(first.iterations)],
        "again": again.summary.steps,
        "all": data.finish().steps,
        "refused": refused,
        "length": len(data),
    }
    print(json.dumps(told))
