"""A training program as people write them: arguments, a package, a function for training and validation."""

import argparse

import tensorflow as tf
from speech.builder import Builder


def arguments(words=()):
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--buffer", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds that a file takes to open")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(words)


def training():
    """Through a class, its package, and a helper that makes two maps."""
    return Builder(arguments()).build()


def waiting():
    """Its files take 4 ms each to open."""
    return Builder(arguments(["--wait", "0.004", "--count", "160"])).build()


def validation():
    return Builder(arguments()).build(training=False)


def _prepared(ds, training, native=True, keep=False):
    if training:
        ds = ds.shuffle(buffer_size=6, seed=3, reshuffle_each_iteration=False)
    if native:
        mapped = ds.map(lambda x: tf.cast(x, tf.float32) * 2.0)
    else:
        mapped = ds.map(lambda x: tf.numpy_function(lambda v: v * 2.0, [tf.cast(x, tf.float32)], tf.float32))
    if keep:
        mapped = mapped.cache()
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    mapped = mapped.batch(3)
    return mapped.with_options(options)


def shared():
    """A function that makes both, with branches between its calls."""
    return _prepared(tf.data.Dataset.range(12), training=True)


def shared_validation():
    return _prepared(tf.data.Dataset.range(6), training=False)


def fallback():
    return _prepared(tf.data.Dataset.range(12), training=True, native=False)
