"""What the cases are made of: work of known cost, steps, and files that a case writes for itself."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

ENDLESS = 1_000_000
WIDTH = 16  # numbers in a row that `row` makes
_BLOCK = bytes(1 << 16)


def block(seconds: float) -> None:
    """Wait as a remote read does: no processor, no interpreter lock."""
    time.sleep(seconds)


def spin(seconds: float) -> None:
    """Compute in Python: processor time of this thread, under the interpreter lock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def crunch(seconds: float) -> None:
    """Compute in C: processor time of this thread, outside the interpreter lock (as ``hashlib`` does)."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(_BLOCK).digest()


def row(index: Any) -> Any:
    """The row of an index: 16 numbers."""
    return np.arange(WIDTH, dtype=np.float32) + np.float32(index)


def rows(indices: Any) -> Any:
    """The rows of several indices, ``[count, 16]``."""
    return np.arange(WIDTH, dtype=np.float32) + np.asarray(indices, np.float32)[:, None]


def tf_row(index: Any) -> Any:
    """:func:`row` by TensorFlow."""
    return tf.range(WIDTH, dtype=tf.float32) + tf.cast(index, tf.float32)


def pool(threads: int) -> Any:
    """Options with a private thread pool."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    return options


def bare() -> Any:
    """Options under which TensorFlow adds no prefetch of its own."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return options


def ready(shape: Sequence[int] = (8, WIDTH)) -> Any:
    """One batch that lies in memory, for ever."""
    return tf.data.Dataset.from_tensors(tf.ones(shape)).repeat().prefetch(2)


def light_step() -> Callable[[Any], Any]:
    """A compiled step of some tens of microseconds."""
    weights = tf.Variable(tf.ones([WIDTH, WIDTH]))

    @tf.function(reduce_retracing=True)
    def step(batch: Any) -> Any:
        weights.assign_add(1e-6 * tf.matmul(batch, batch, transpose_a=True))
        return tf.reduce_sum(weights)

    return step


def busy_step(size: int, times: int) -> Callable[[Any], Any]:
    """A compiled step of matrix products: all of it is the device's own work."""
    weights = tf.Variable(tf.random.stateless_normal([size, size], [1, 2]) / size)

    @tf.function(reduce_retracing=True)
    def step(batch: Any) -> Any:
        product = tf.eye(size) * tf.reduce_mean(tf.cast(batch, tf.float32))
        for _ in range(times):
            product = tf.matmul(product, weights)
        weights.assign_add(1e-9 * product)
        return tf.reduce_sum(product)

    return step


def network(layers: int = 8) -> tuple[Callable[[Any], Any], list[Any]]:
    """A training step of a small network, not compiled, and its weights."""
    weights = [tf.Variable(tf.random.stateless_normal([WIDTH, WIDTH], [number, 0]) * 0.1) for number in range(layers)]

    def step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = batch
            for layer in weights:
                hidden = tf.nn.relu(tf.matmul(hidden, layer) + 0.1)
            loss = tf.reduce_mean(hidden**2)
        for layer, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            layer.assign_sub(0.001 * gradient)
        return loss

    return step, weights


def npy_files(folder: str | None, count: int = 64, frames: int = 40) -> list[str]:
    """Paths of ``.npy`` files of ``[frames, 16]`` float32, written where they are missing."""
    directory = _directory(folder, f"npy-{count}-{frames}")
    paths = [directory / f"{number:03d}.npy" for number in range(count)]
    for number, path in enumerate(paths):
        if not path.exists():
            content = np.arange(frames * WIDTH, dtype=np.float32).reshape(frames, WIDTH) + number
            draft = path.with_suffix(f".{os.getpid()}.draft")
            with draft.open("wb") as file:
                np.save(file, content)
            os.replace(draft, path)
    return [str(path) for path in paths]


def record_files(folder: str | None, files: int = 8, records: int = 32) -> list[str]:
    """Paths of TFRecord files whose records are rows, ``[16]`` float32, written where they are missing."""
    directory = _directory(folder, f"records-{files}-{records}")
    paths = [directory / f"{number:03d}.tfrecord" for number in range(files)]
    for number, path in enumerate(paths):
        if path.exists():
            continue
        draft = path.with_suffix(f".{os.getpid()}.draft")
        with tf.io.TFRecordWriter(str(draft)) as writer:
            for record in range(records):
                writer.write(row(number * records + record).tobytes())
        os.replace(draft, path)
    return [str(path) for path in paths]


def _directory(folder: str | None, name: str) -> Path:
    place = Path(folder) if folder else Path(tempfile.gettempdir()) / f"xttsbench-diagnosis-{os.getuid()}"
    directory = place / name
    directory.mkdir(parents=True, exist_ok=True)
    return directory
