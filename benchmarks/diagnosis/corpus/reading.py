"""Files: one at a time, one after the other, packed, through Python, and with a header that is not looked at."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from parts import WIDTH, block, crunch, npy_files, pool, record_files

LATENCY_S = 0.003  # of a read from afar


def numbers(record):
    """What a record holds."""
    return tf.io.decode_raw(record, tf.float32)


def arrives(record):
    """A record that comes from afar."""
    block(LATENCY_S)  # the fault
    return record


def remote(record):
    """The numbers of a record that comes from afar."""
    return tf.ensure_shape(numbers(tf.numpy_function(arrives, [record], tf.string)), [WIDTH])


def npy_one_by_one(tuned=False, folder=None):
    """``.npy`` files, each opened when its turn comes."""
    frames = 40
    paths = tf.data.Dataset.from_tensor_slices(npy_files(folder, frames=frames)).repeat()

    def load(path):
        block(LATENCY_S)
        return np.load(path.decode())

    def read(path):
        return tf.ensure_shape(tf.numpy_function(load, [path], tf.float32), [frames, WIDTH])

    if tuned:
        return paths.map(read, num_parallel_calls=16).batch(8).prefetch(4).with_options(pool(16))
    return paths.map(read).batch(8).prefetch(4)  # the fault


def npy_by_generator(tuned=False, folder=None):
    """A generator that opens the files."""
    frames = 40
    paths = npy_files(folder, frames=frames)

    def load(path):
        block(LATENCY_S)
        return np.load(path if isinstance(path, str) else path.decode())

    def samples():
        for path in paths:
            yield load(path)  # the fault

    if tuned:
        files = tf.data.Dataset.from_tensor_slices(paths)
        loaded = files.map(
            lambda p: tf.ensure_shape(tf.numpy_function(load, [p], tf.float32), [frames, WIDTH]), num_parallel_calls=16
        )
        return loaded.repeat().batch(8).prefetch(4).with_options(pool(16))
    signature = tf.TensorSpec([frames, WIDTH], tf.float32)
    return tf.data.Dataset.from_generator(samples, output_signature=signature).repeat().batch(8).prefetch(4)


def npy_cut_at_128(tuned=False, folder=None):
    """The header is taken to be 128 bytes long, and the files are read in turn."""
    frames = 40
    paths = tf.data.Dataset.from_tensor_slices(npy_files(folder, frames=frames)).repeat()

    def late(path):
        block(LATENCY_S)
        return path

    def read(path):
        raw = tf.io.read_file(tf.ensure_shape(tf.numpy_function(late, [path], tf.string), []))
        return tf.reshape(tf.io.decode_raw(tf.strings.substr(raw, 128, -1), tf.float32), [frames, WIDTH])

    if tuned:
        return paths.map(read, num_parallel_calls=16).batch(8).prefetch(4).with_options(pool(16))
    return paths.map(read).batch(8).prefetch(4)  # the fault


def interleave_in_turn(tuned=False, folder=None):
    """Eight files are interleaved, and one of them is read at a time."""
    files = tf.data.Dataset.from_tensor_slices(record_files(folder))

    def records(path):
        return tf.data.TFRecordDataset(path).map(remote)

    calls = 8 if tuned else None
    read = files.interleave(records, cycle_length=8, num_parallel_calls=calls)  # the fault
    return read.repeat().batch(8).prefetch(4)


def file_after_file(tuned=False, folder=None, epochs=None):
    """Each file is read to its end before the next is opened."""
    files = tf.data.Dataset.from_tensor_slices(record_files(folder))

    def records(path):
        return tf.data.TFRecordDataset(path).map(remote)

    if tuned:
        read = files.interleave(records, cycle_length=8, num_parallel_calls=8)
        return read.repeat(epochs).batch(8).prefetch(4).with_options(pool(16))
    return files.flat_map(records).repeat(epochs).batch(8).prefetch(4)  # the fault


def unpacked_in_turn(tuned=False, folder=None):
    """Each record comes late and is unpacked by a library, outside the interpreter lock, one at a time."""
    files = tf.data.Dataset.from_tensor_slices(record_files(folder))

    def unpack(record):
        block(0.003)
        crunch(0.001)
        return record

    def records(path):
        unpacked = tf.data.TFRecordDataset(path).map(lambda record: tf.numpy_function(unpack, [record], tf.string))
        return unpacked.map(lambda record: tf.ensure_shape(numbers(record), [WIDTH]))

    calls = 4 if tuned else None
    read = files.interleave(records, cycle_length=4, num_parallel_calls=calls)  # the fault
    return read.repeat().batch(4).prefetch(2)


def decoded_in_turn(tuned=False, folder=None):
    """The records lie at hand; each is decoded by a service that takes its time."""
    files = record_files(folder)
    records = tf.data.TFRecordDataset(files).repeat()
    if tuned:
        return records.map(remote, num_parallel_calls=16).batch(8).prefetch(4).with_options(pool(16))
    return records.map(remote).batch(8).prefetch(4)  # the fault


def header_read_by_everyone(tuned=False, folder=None):
    """Every record opens the same index file again, which waits; once would do."""
    index = npy_files(folder, count=1)[0]
    records = tf.data.TFRecordDataset(record_files(folder)).repeat()
    scale = np.load(index)[0, 1]

    def scaled(record):
        block(LATENCY_S)  # the fault
        return np.frombuffer(record, np.float32) * np.load(index)[0, 1]

    if tuned:
        return records.map(lambda record: tf.ensure_shape(numbers(record) * scale, [WIDTH])).batch(8).prefetch(4)
    read = records.map(lambda r: tf.ensure_shape(tf.numpy_function(scaled, [r], tf.float32), [WIDTH]))
    return read.batch(8).prefetch(4)
