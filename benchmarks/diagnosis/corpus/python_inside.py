"""Python inside the graph: functions that wait, that hold the interpreter lock, that release it, and generators."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from parts import ENDLESS, WIDTH, block, crunch, light_step, pool, row, rows, spin, tf_row

AUTOTUNE = tf.data.AUTOTUNE
TEXT = "the quick brown fox jumps over the lazy dog and runs on; "


def shaped(function, index):
    """The row that a Python function makes of an index."""
    return tf.ensure_shape(tf.numpy_function(function, [index], tf.float32), [WIDTH])


def blocking_map(tuned=False):
    """Each row is fetched from afar, one after the other."""

    def fetch(index):
        block(0.003)
        return row(index)

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        fetched = indices.map(lambda i: shaped(fetch, i), num_parallel_calls=16)
        return fetched.batch(8).prefetch(4).with_options(pool(16))
    return indices.map(lambda i: shaped(fetch, i)).batch(8).prefetch(4)  # the fault


def gil_map_in_parallel(tuned=False):
    """Features computed in Python; parallel calls take turns at the interpreter lock."""

    def features(index):
        spin(0.003)  # the fault
        return row(index)

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return indices.map(tf_row, num_parallel_calls=AUTOTUNE).batch(4).prefetch(2)
    return indices.map(lambda i: shaped(features, i), num_parallel_calls=AUTOTUNE).batch(4).prefetch(2)


def gil_map_in_turn(tuned=False):
    """The same without parallel calls, which would not help either."""

    def features(index):
        spin(0.003)  # the fault
        return row(index)

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return indices.map(tf_row).batch(4).prefetch(2)
    return indices.map(lambda i: shaped(features, i)).batch(4).prefetch(2)


def releasing_map(tuned=False):
    """A library computes outside the lock, on one core where there are more."""

    def checksum(index):
        crunch(0.004)
        return row(index)

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return indices.map(lambda i: shaped(checksum, i), num_parallel_calls=AUTOTUNE).batch(4).prefetch(2)
    return indices.map(lambda i: shaped(checksum, i)).batch(4).prefetch(2)  # the fault


def py_function_of_tensors(tuned=False):
    """``tf.py_function`` runs an eager chain of small ops for each row."""

    def normalise(index):
        values = tf_row(index)
        for _ in range(20):  # the fault
            values = values + 1.0
            values = values - 1.0
        return values

    def call(index):
        return tf.ensure_shape(tf.py_function(normalise, [index], tf.float32), [WIDTH])

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return indices.map(normalise, num_parallel_calls=AUTOTUNE).batch(8).prefetch(2)
    return indices.map(call).batch(8).prefetch(2)


def generator_that_waits(tuned=False):
    """``from_generator`` over a slow source."""

    def fetch(index):
        block(0.003)
        return row(index)

    def samples():
        for index in range(ENDLESS):
            yield fetch(index)  # the fault

    if tuned:
        fetched = tf.data.Dataset.range(ENDLESS).map(lambda i: shaped(fetch, i), num_parallel_calls=16)
        return fetched.batch(8).prefetch(4).with_options(pool(16))
    signature = tf.TensorSpec([WIDTH], tf.float32)
    return tf.data.Dataset.from_generator(samples, output_signature=signature).batch(8).prefetch(4)


def generator_that_computes(tuned=False):
    """``from_generator`` whose body is the work."""

    def samples():
        for index in range(ENDLESS):
            spin(0.003)  # the fault
            yield row(index)

    if tuned:
        return tf.data.Dataset.range(ENDLESS).map(tf_row).batch(4).prefetch(2)
    signature = tf.TensorSpec([WIDTH], tf.float32)
    return tf.data.Dataset.from_generator(samples, output_signature=signature).batch(4).prefetch(2)


def a_call_for_each_row(tuned=False):
    """A cheap function, called 256 times for a batch where it could be called once."""
    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        batches = indices.batch(256, drop_remainder=True)
        return batches.map(lambda i: tf.ensure_shape(tf.numpy_function(rows, [i], tf.float32), [256, WIDTH])).prefetch(
            2
        )
    return indices.map(lambda i: shaped(row, i)).batch(256, drop_remainder=True).prefetch(2)  # the fault


def pool_too_small(tuned=False):
    """32 calls that wait are asked for, and the pool has one thread a core."""

    def fetch(index):
        block(0.01)
        return row(index)

    fetched = tf.data.Dataset.range(ENDLESS).map(lambda i: shaped(fetch, i), num_parallel_calls=32)  # the fault
    batches = fetched.batch(8).prefetch(4)
    return batches.with_options(pool(32)) if tuned else batches


def waits_and_computes(tuned=False):
    """A function that waits, then one that holds the lock, both in the same thread."""

    def fetch(index):
        block(0.004)
        return row(index)

    def scale(values):
        spin(0.0005)
        return values * np.float32(2)

    calls = 16 if tuned else None
    fetched = tf.data.Dataset.range(ENDLESS).map(lambda i: shaped(fetch, i), num_parallel_calls=calls)  # the fault
    scaled = fetched.map(lambda r: shaped(scale, r), num_parallel_calls=calls)
    batches = scaled.batch(8).prefetch(4)
    return batches.with_options(pool(16)) if tuned else batches


def tokens_in_python(tuned=False):
    """Text becomes numbers character by character, in Python."""
    texts = tf.data.Dataset.from_tensor_slices([TEXT * 40 + chr(97 + number) for number in range(26)]).repeat()
    length = len(TEXT) * 40 + 1

    def tokenise(text):
        return np.array([ord(letter) - 32 for letter in text.decode()], np.int32)  # the fault

    def in_python(text):
        return tf.ensure_shape(tf.numpy_function(tokenise, [text], tf.int32), [length])

    def in_graph(text):
        return tf.ensure_shape(tf.cast(tf.io.decode_raw(text, tf.uint8), tf.int32) - 32, [length])

    return texts.map(in_graph if tuned else in_python).batch(32, drop_remainder=True).prefetch(2)


def waits_before_a_real_step(tuned=False):
    """The slow source before a step of its own, not an emulated one."""

    def fetch(index):
        block(0.003)
        return row(index)

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        fetched = indices.map(lambda i: shaped(fetch, i), num_parallel_calls=16)
        return fetched.batch(8).prefetch(4).with_options(pool(16)), light_step()
    return indices.map(lambda i: shaped(fetch, i)).batch(8).prefetch(4), light_step()  # the fault
