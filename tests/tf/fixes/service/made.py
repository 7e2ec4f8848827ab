"""Pieces of datasets that the tests of the service share."""

from __future__ import annotations

import tensorflow as tf


def numbers(count=20):
    return tf.data.Dataset.range(count)


def doubled(x):
    return x * 2


def table():
    entries = tf.lookup.KeyValueTensorInitializer(tf.range(20, dtype=tf.int64), tf.range(20, dtype=tf.int64) * 2)
    return tf.lookup.StaticHashTable(entries, -1)


def in_python(function):
    return lambda x: function(doubled, [x], tf.int64)
