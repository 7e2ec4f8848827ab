"""What comes in which order: prefetch, cache, filter, shuffle, batches, and the order of what is ready."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from parts import ENDLESS, WIDTH, bare, block, light_step, pool, row, rows, spin, tf_row

AUTOTUNE = tf.data.AUTOTUNE


def shaped(function, index):
    """The row that a Python function makes of an index."""
    return tf.ensure_shape(tf.numpy_function(function, [index], tf.float32), [WIDTH])


def remote_batch(seconds, count=8):
    """A function from a number to a batch that takes so long to come."""

    def fetch(index):
        block(seconds)
        return rows(np.arange(count) + index * count)

    return lambda index: tf.ensure_shape(tf.numpy_function(fetch, [index], tf.float32), [count, WIDTH])


def computed(seconds):
    """A function from an index to a row that takes so much processor time in Python."""

    def features(index):
        spin(seconds)  # the fault
        return row(index)

    return lambda index: shaped(features, index)


def no_prefetch(tuned=False):
    """Step and input take turns."""
    batches = tf.data.Dataset.range(ENDLESS).map(remote_batch(0.01))  # the fault
    batches = batches.with_options(bare())
    return batches.prefetch(2) if tuned else batches


def prefetch_before_the_work(tuned=False):
    """There is a prefetch; what takes long comes after it."""
    numbers = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return numbers.map(remote_batch(0.01)).prefetch(2).with_options(bare())
    return numbers.prefetch(64).map(remote_batch(0.01)).with_options(bare())  # the fault


def never_cached(tuned=False):
    """The same 64 rows are computed again in every epoch."""
    samples = tf.data.Dataset.range(64).map(computed(0.003))  # the fault
    if tuned:
        samples = samples.cache()
    return samples.repeat().batch(8).prefetch(2)


def cached_too_early(tuned=False):
    """The cache holds the names, and the work comes after it."""
    names = tf.data.Dataset.range(64)
    if tuned:
        return names.map(computed(0.003)).cache().repeat().batch(8).prefetch(2)
    return names.cache().map(computed(0.003)).repeat().batch(8).prefetch(2)  # the fault


def cache_never_filled(tuned=False):
    """``take`` cuts the pass short, so the cache is thrown away before its end."""
    samples = tf.data.Dataset.range(128).map(computed(0.003))
    if tuned:
        return samples.take(64).cache().repeat().batch(8).prefetch(2)
    return samples.cache().take(64).repeat().batch(8).prefetch(2)  # the fault


def cacheable_before_augmentation(tuned=False, augment=True):
    """Costly decoding, then a cheap random change: the first could be kept."""

    def change(values):
        return values + tf.random.uniform([WIDTH]) if augment else values

    samples = tf.data.Dataset.range(64).map(computed(0.003))  # the fault
    if tuned:
        samples = samples.cache()
    return samples.map(change).repeat().batch(8).prefetch(2)


def late_filter(tuned=False):
    """Three of four rows are computed and thrown away; what the filter looks at was there before."""

    def load(index):
        return index, computed(0.002)(index)

    def wanted(index, *_):
        return index % 4 == 0

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return indices.filter(wanted).map(load).batch(4).prefetch(2)
    return indices.map(load).filter(wanted).batch(4).prefetch(2)  # the fault


def shuffle_stalls_each_epoch(tuned=False):
    """The rows themselves are shuffled, all of an epoch at once: each epoch begins with a stall."""

    def fetch(index):
        block(0.0015)
        return row(index)

    indices = tf.data.Dataset.range(128)
    if tuned:
        return indices.shuffle(128, seed=1).map(lambda i: shaped(fetch, i)).batch(8).repeat().prefetch(4)
    loaded = indices.map(lambda i: shaped(fetch, i))  # the fault
    # TensorFlow would fill the buffer across epochs if repeat() came next.
    return loaded.shuffle(128, seed=1).batch(8).repeat().prefetch(4)  # the fault


def tiny_elements(tuned=False):
    """2048 numbers pass through three functions one by one before they are batched."""
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(256, dtype=tf.int64), tf.range(256, dtype=tf.int64) * 3), -1
    )

    def look_up(number):
        return tf.cast(table.lookup(number % 256), tf.float32) * 0.5 + 1.0

    numbers = tf.data.Dataset.range(ENDLESS * 1000)
    if tuned:
        return numbers.batch(2048, drop_remainder=True).map(look_up).prefetch(2)
    return numbers.map(look_up).batch(2048, drop_remainder=True).prefetch(2)  # the fault


def taken_apart_and_put_together(tuned=False):
    """Batches are unbatched and batched again."""
    rows_of_a_file = tf.reshape(tf.range(32768 * 4, dtype=tf.float32), [32768, 4])
    batches = tf.data.Dataset.from_tensors(rows_of_a_file).repeat()
    if tuned:
        return batches.prefetch(2)
    return batches.unbatch().batch(32768, drop_remainder=True).prefetch(2)  # the fault


def waits_for_the_slowest(tuned=False, count=ENDLESS):
    """Every eighth row takes long, and the order that nobody needs makes the others wait for it."""

    def fetch(index):
        block(0.06 if index % 8 == 0 else 0.002)
        return row(index)

    indices = tf.data.Dataset.range(count)
    fetched = indices.map(lambda i: shaped(fetch, i), num_parallel_calls=8, deterministic=not tuned)  # the fault
    # What comes between keeps TensorFlow from making one op of map and batch, which would hide the order's price.
    whole = fetched.filter(lambda values: tf.reduce_all(tf.math.is_finite(values)))
    return whole.batch(8).prefetch(4).with_options(pool(16))


def stumbles(tuned=False):
    """Rows of one batch in sixteen, without a pattern, take forty times as long."""

    def fetch(index):
        block(0.12 if (int(index) * 2654435761 >> 7) % 16 == 0 else 0.003)
        return rows(np.arange(4) + index * 4)

    def load(index):
        return tf.ensure_shape(tf.numpy_function(fetch, [index], tf.float32), [4, WIDTH])

    numbers = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return numbers.map(load, num_parallel_calls=8).prefetch(32).with_options(pool(16))
    return numbers.map(load).prefetch(1)  # the fault


def comes_in_bursts(tuned=False):
    """Every sixteenth batch opens the next part of the data, and only one batch is kept in store."""

    def fetch(index):
        block(0.08 if index % 16 == 0 else 0.0005)
        return rows(np.arange(4) + index * 4)

    def load(index):
        return tf.ensure_shape(tf.numpy_function(fetch, [index], tf.float32), [4, WIDTH])

    return tf.data.Dataset.range(ENDLESS).map(load).prefetch(32 if tuned else 1)  # the fault


def prefetches_everywhere(tuned=False):
    """A prefetch after every op, and the one that would help is a parallel map."""

    def fetch(index):
        block(0.003)
        return row(index)

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        fetched = indices.map(lambda i: shaped(fetch, i), num_parallel_calls=16)
        return fetched.batch(8).prefetch(4).with_options(pool(16))
    fetched = indices.prefetch(64).map(lambda i: shaped(fetch, i))  # the fault
    return fetched.prefetch(64).prefetch(64).batch(8).prefetch(16).prefetch(4)


def heavy_ops_in_turn(tuned=False, random=True):
    """TensorFlow ops of some milliseconds whose map TensorFlow does not make parallel by itself: it draws numbers."""

    def load(index):
        values = tf.random.stateless_normal([60_000], [index, 0])
        ordered = tf.sort(values)[:WIDTH]
        return ordered + tf.random.uniform([WIDTH]) if random else ordered

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return indices.map(load, num_parallel_calls=AUTOTUNE).batch(2).prefetch(2)
    batches = indices.map(load).batch(2).prefetch(2)  # the fault
    return batches if random else batches.with_options(bare())


def padded_to_the_longest(tuned=False, count=ENDLESS):
    """One long row in a batch makes the others as long, and the step takes as long as its batch."""
    lengths = tf.data.Dataset.range(count).map(lambda i: tf.where(i % 8 == 0, 512, 32))
    samples = lengths.map(lambda length: tf.fill([length], tf.cast(length, tf.float32)))

    def step(batch):
        block(4e-5 * batch.shape[1])

    if tuned:
        by_length = samples.bucket_by_sequence_length(
            lambda sample: tf.shape(sample)[0], bucket_boundaries=[64], bucket_batch_sizes=[16, 16]
        )
        return by_length.prefetch(2), step
    return samples.padded_batch(16).prefetch(2), step  # the fault


def waits_between_epochs(tuned=False):
    """The generator opens its data anew for each epoch, which takes as long as the epoch."""

    def samples():
        block(0.15)  # the fault
        for index in range(16):
            yield rows(np.arange(4) + index * 4)

    signature = tf.TensorSpec([4, WIDTH], tf.float32)
    epoch = tf.data.Dataset.from_generator(samples, output_signature=signature)
    return (epoch.cache() if tuned else epoch).repeat().prefetch(2)


def no_prefetch_before_a_real_step(tuned=False):
    """Step and input take turns, and the step is a compiled one that is followed by waiting for its device."""
    inner = light_step()

    def step(batch):
        inner(batch)
        block(0.012)

    batches = tf.data.Dataset.range(ENDLESS).map(tf_row).batch(8, drop_remainder=True)
    late = batches.map(lambda b: tf.ensure_shape(tf.numpy_function(_late, [b], tf.float32), [8, WIDTH]))  # the fault
    late = late.with_options(bare())
    return (late.prefetch(2) if tuned else late), step


def _late(batch):
    block(0.012)
    return batch
