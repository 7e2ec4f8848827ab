"""Targets with faults of the machine's kind: memory that grows, steps that drift, settings that change nothing."""

import contextlib
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # late-runtime-config: TensorFlow has read it

_kept = []


def _rows():
    return tf.data.Dataset.range(1_000_000).map(lambda i: tf.fill([64], tf.cast(i, tf.float32)))


def leaks():
    """memory-leak: each step keeps a megabyte."""

    def step(batch):
        _kept.append(np.full(1 << 18, float(batch[0, 0]), np.float32))
        time.sleep(0.01)

    return _rows().batch(8).prefetch(2), step


def fills_a_cache():
    """A cache in memory in its first pass: it grows, and stops."""
    rows = tf.data.Dataset.range(1_000_000).map(lambda i: tf.fill([1 << 15], tf.cast(i, tf.float32))).batch(8)
    return rows.cache().prefetch(2), lambda batch: time.sleep(0.01)


def slows_down():
    """drift: each step takes a little longer than the one before."""
    taken = [0]

    def step(batch):
        taken[0] += 1
        time.sleep(0.010 + 0.00004 * taken[0])

    return _rows().batch(8).prefetch(2), step


def settings_in_vain():
    """autotune-arithmetic, dead-option: nothing of what these lines say happens."""
    options = tf.data.Options()
    with contextlib.suppress(AttributeError):
        options.experimental_optimization.map_vectorization.enabled = True
    forgotten = tf.data.Options()
    forgotten.deterministic = False
    rows = _rows().batch(8).with_options(options)
    rows.prefetch(2)
    return rows.prefetch(min(8, tf.data.AUTOTUNE)), lambda batch: time.sleep(0.01)


def cuts_headers():
    """fixed-npy-header, cold-storage (from the page cache): files just written, read past a header taken to be 128."""
    folder = tempfile.mkdtemp()
    for number in range(64):
        np.save(os.path.join(folder, f"{number:03d}.npy"), np.full(1 << 16, number, np.float32))

    def read(path):
        return tf.io.decode_raw(tf.strings.substr(tf.io.read_file(path), 128, -1), tf.float32)

    paths = tf.data.Dataset.list_files(os.path.join(folder, "*.npy"), shuffle=False)
    return paths.repeat().map(read).batch(4).prefetch(2), lambda batch: time.sleep(0.01)


def reads_cold():
    """cold-storage: each file is put out of the page cache after it was read, as if the data set outgrew memory."""
    folder = tempfile.mkdtemp()
    for number in range(16):
        with open(os.path.join(folder, f"{number:02d}.raw"), "wb") as file:
            file.write(np.arange(number, number + (1 << 20), dtype=np.float32).tobytes())
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read(path):
        with open(path, "rb", buffering=0) as file:
            data = file.read()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return np.frombuffer(data, np.float32)

    paths = tf.data.Dataset.list_files(os.path.join(folder, "*.raw"), shuffle=False).repeat()
    rows = paths.map(lambda path: tf.ensure_shape(tf.numpy_function(read, [path], tf.float32), [1 << 20]))
    return rows.batch(2).prefetch(1), lambda batch: None


def settings_that_hold():
    """The healthy counterpart: the same settings, given so that they take effect."""
    options = tf.data.Options()
    options.deterministic = False
    options.autotune.enabled = True
    rows = _rows().batch(8).with_options(options)
    return rows.prefetch(tf.data.AUTOTUNE), lambda batch: time.sleep(0.01)
