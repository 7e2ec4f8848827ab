"""Several faults at once, and faults beside which another one hides."""

from __future__ import annotations

import tensorflow as tf
from parts import (
    ENDLESS,
    WIDTH,
    bare,
    block,
    busy_step,
    crunch,
    light_step,
    network,
    npy_files,
    pool,
    record_files,
    row,
    spin,
)

AUTOTUNE = tf.data.AUTOTUNE


def shaped(function, index):
    """The row that a Python function makes of an index."""
    return tf.ensure_shape(tf.numpy_function(function, [index], tf.float32), [WIDTH])


def slow(seconds):
    """A function from an index to a row that comes so late."""

    def fetch(index):
        block(seconds)  # the fault
        return row(index)

    return lambda index: shaped(fetch, index)


def slow_input_before_an_eager_step(tuned=False):
    """The step is eager, and that is not what it waits for: the input takes twenty times as long."""
    step, _ = network(2)
    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return indices.map(slow(0.01), num_parallel_calls=16).batch(8).prefetch(4).with_options(pool(16)), step
    return indices.map(slow(0.01)).batch(8).prefetch(4), step  # the fault


def slow_input_and_eager_step(tuned=False):
    """Both take their time, in turn."""
    inner, _ = network(8)
    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        loaded = indices.map(slow(0.002), num_parallel_calls=16).batch(8).prefetch(4).with_options(pool(16))
        return loaded, tf.function(inner)
    return indices.map(slow(0.002)).batch(8).with_options(bare()), inner  # the fault


def filters_late_and_in_turn(tuned=False):
    """What is thrown away was fetched first, and nothing is fetched in parallel."""

    def load(index):
        return index, slow(0.002)(index)

    def wanted(index, *_):
        return index % 4 == 0

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        loaded = indices.filter(wanted).map(load, num_parallel_calls=16)
        return loaded.batch(8).prefetch(4).with_options(pool(16))
    return indices.map(load).filter(wanted).batch(8).prefetch(4)  # the fault


def everything_in_turn(tuned=False, folder=None):
    """Files in turn, then a map in turn, and no prefetch."""
    files = tf.data.Dataset.from_tensor_slices(record_files(folder))

    def late(record):
        block(0.002)  # the fault
        return record

    def decode(record):
        spin(0.0003)
        return record

    def arrive(record):
        return tf.ensure_shape(tf.numpy_function(late, [record], tf.string), [])

    def read(path):
        return tf.data.TFRecordDataset(path).map(arrive)

    def parse(record):
        return tf.ensure_shape(tf.io.decode_raw(tf.numpy_function(decode, [record], tf.string), tf.float32), [WIDTH])

    if tuned:
        records = files.interleave(read, cycle_length=8, num_parallel_calls=8)
        return records.repeat().map(parse).batch(8).with_options(bare()).prefetch(4)
    records = files.interleave(read, cycle_length=8)  # the fault
    return records.repeat().map(parse).batch(8).with_options(bare())  # the fault


def two_slow_maps(tuned=False):
    """Two functions that wait, in the same thread."""

    def enrich(values):
        block(0.002)
        return values * 2

    calls = 16 if tuned else None
    loaded = tf.data.Dataset.range(ENDLESS).map(slow(0.002), num_parallel_calls=calls)  # the fault
    enriched = loaded.map(lambda values: shaped(enrich, values), num_parallel_calls=calls)  # the fault
    batches = enriched.batch(8).prefetch(4)
    return batches.with_options(pool(32)) if tuned else batches


def small_pool_and_prefetches(tuned=False):
    """Parallel calls that the pool does not serve, and prefetches that look like a remedy."""
    loaded = tf.data.Dataset.range(ENDLESS).map(slow(0.006), num_parallel_calls=16)  # the fault
    if tuned:
        return loaded.batch(8).prefetch(4).with_options(pool(16))
    return loaded.prefetch(32).batch(8).prefetch(8).prefetch(4)


def not_cached_and_in_turn(tuned=False, folder=None):
    """64 small files are fetched anew in every epoch, one by one."""
    paths = npy_files(folder, frames=1)
    numbers = tf.data.Dataset.range(len(paths)).map(slow(0.003))  # the fault
    if tuned:
        numbers = numbers.cache()
    return numbers.shuffle(64, seed=1).repeat().batch(8).prefetch(4)


def computes_on_all_cores(tuned=False):
    """The input computes on all cores, and so does the step."""

    def features(index):
        crunch(0.006)
        return row(index)

    samples = tf.data.Dataset.range(64).map(lambda i: shaped(features, i), num_parallel_calls=AUTOTUNE)  # the fault
    if tuned:
        samples = samples.cache()
    return samples.repeat().batch(8).prefetch(4), busy_step(512, 4)


def stalls_in_step_and_input(tuned=False):
    """The loop saves every tenth step, and the input is slow as well."""
    train, count = light_step(), [0]

    def step(batch):
        loss = train(batch)
        count[0] += 1
        if count[0] % (500 if tuned else 10) == 0:
            for _ in range(10):
                block(0.005)
        return loss

    indices = tf.data.Dataset.range(ENDLESS)
    if tuned:
        return indices.map(slow(0.003), num_parallel_calls=16).batch(8).prefetch(4).with_options(pool(16)), step
    return indices.map(slow(0.003)).batch(8).prefetch(4), step  # the fault
