"""Nothing to mend, however some of it looks: no finding may be limiting."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from parts import ENDLESS, WIDTH, bare, block, busy_step, light_step, network, ready, record_files, row, spin, tf_row

AUTOTUNE = tf.data.AUTOTUNE


def shaped(function, index):
    """The row that a Python function makes of an index."""
    return tf.ensure_shape(tf.numpy_function(function, [index], tf.float32), [WIDTH])


def python_that_keeps_up(tuned=False):
    """``numpy_function`` one by one, ready long before it is wanted."""

    def fetch(index):
        block(0.001)
        return row(index)

    return tf.data.Dataset.range(ENDLESS).map(lambda i: shaped(fetch, i)).batch(4).prefetch(2)


def lock_that_nobody_misses(tuned=False):
    """Python that computes, behind a device that takes five times as long."""

    def features(index):
        spin(0.001)
        return row(index)

    return tf.data.Dataset.range(ENDLESS).map(lambda i: shaped(features, i)).batch(4).prefetch(2)


def generator_that_keeps_up(tuned=False):
    """``from_generator``, quick enough."""

    def samples():
        for index in range(ENDLESS):
            yield row(index)

    signature = tf.TensorSpec([WIDTH], tf.float32)
    return tf.data.Dataset.from_generator(samples, output_signature=signature).batch(4).prefetch(2)


def no_prefetch_needed(tuned=False):
    """Nothing is prefetched, and the batch lies in memory."""
    return tf.data.Dataset.from_tensors(tf.ones([8, WIDTH])).repeat().with_options(bare())


def map_in_turn_behind_a_slow_step(tuned=False):
    """A sequential map and a step of its own that takes far longer."""
    return tf.data.Dataset.range(ENDLESS).map(tf_row).batch(8, drop_remainder=True).prefetch(2), busy_step(512, 8)


def files_in_turn_behind_a_slow_device(tuned=False, folder=None):
    """A sequential interleave that is quick enough."""
    files = tf.data.Dataset.from_tensor_slices(record_files(folder))
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=8).repeat()
    return records.map(lambda r: tf.ensure_shape(tf.io.decode_raw(r, tf.float32), [WIDTH])).batch(8).prefetch(2)


def big_shuffle_of_ids(tuned=False):
    """A large buffer of numbers, which cost nothing."""
    indices = tf.data.Dataset.range(50_000).shuffle(50_000, seed=1).repeat()
    return indices.map(tf_row, num_parallel_calls=AUTOTUNE).batch(8).prefetch(AUTOTUNE)


def prefetches_that_do_no_harm(tuned=False):
    """Prefetch upon prefetch."""
    samples = tf.data.Dataset.range(ENDLESS).prefetch(8).map(tf_row).prefetch(8).prefetch(8)
    return samples.batch(8).prefetch(8).prefetch(2)


def late_filter_of_cheap_rows(tuned=False):
    """A filter at the end of work that costs nothing."""
    pairs = tf.data.Dataset.range(ENDLESS).map(lambda i: (i, tf_row(i)))
    return pairs.filter(lambda i, _: i % 4 == 0).batch(4).prefetch(2)


def not_cached_and_not_missed(tuned=False):
    """An epoch is computed anew each time, always ready before it is wanted."""

    def features(index):
        block(0.001)
        return row(index)

    return tf.data.Dataset.range(64).map(lambda i: shaped(features, i)).repeat().batch(4).prefetch(4)


def compiled_and_prefetched(tuned=False):
    """As it is in the books."""
    samples = tf.data.Dataset.range(ENDLESS).map(tf_row, num_parallel_calls=AUTOTUNE)
    return samples.batch(8, drop_remainder=True).prefetch(AUTOTUNE), busy_step(512, 8)


def saves_seldom(tuned=False):
    """A checkpoint now and then, which costs a hundredth of the time."""
    train, count = busy_step(512, 8), [0]

    def step(batch):
        loss = train(batch)
        count[0] += 1
        if count[0] % 200 == 0:
            block(0.02)
        return loss

    return ready(), step


def eager_and_long(tuned=False):
    """An eager step of few ops that take their time on the device: its dispatch is no part to speak of."""
    inner, weights = network(1)[0], tf.random.stateless_normal([900, 900], [1, 2]) / 900.0

    def step(batch):
        product = weights
        for _ in range(4):
            product = tf.matmul(product, weights)
        # One after the other: side by side, as a graph would run them, they take a tenth less.
        return inner(batch + tf.reduce_mean(product))

    return ready(), step


def keras_in_memory(tuned=False):
    """A compiled Keras model on data in memory."""
    keras = tf.keras
    layers = [keras.layers.Dense(1024, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.Input([128]), *layers, keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    batches = np.random.default_rng(0).normal(size=(2, 256, 128)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((batches, batches[..., :1])).repeat().prefetch(2), model


def padding_that_costs_nothing(tuned=False):
    """Padded batches before a device that takes the same time for all."""
    samples = tf.data.Dataset.range(ENDLESS).map(lambda i: tf.ones([tf.where(i % 8 == 0, 64, 16)]))
    return samples.padded_batch(16, padded_shapes=[64]).prefetch(2), _one_length()


def _one_length():
    inner = light_step()
    batch_of_the_step = tf.ones([8, WIDTH])

    def step(batch):
        inner(batch_of_the_step)

    return step
