"""TensorFlow's profile of a case's loop, converted by the installed ``xprof``; imports TensorFlow.

With ``markers`` the call of ``next()`` is inside the step marker, as the profiler's guide asks; ``outside`` has it
before the marker, ``none`` has no marker, and ``fit`` hands the dataset to Keras with a profiler around it. The
emulated accelerator waits inside a TensorFlow op here: of a wait in Python XProf could only say that it is time of
which it knows nothing, and on a real device it would know.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from child import for_ever

from xttsbench.worker.profile.xplane import ask

STEPS, SETTLE, LONGEST_S = 30, 5, 8.0
"""Profiled steps, steps before them, and when a slow loop is cut short."""


def waiting(milliseconds: float) -> Callable[[], Any]:
    """A compiled function that takes so long."""

    def wait() -> Any:
        time.sleep(milliseconds / 1e3)
        return np.float32(0)

    return tf.function(lambda: tf.numpy_function(wait, [], tf.float32))


def profiled(loaded: Any, step: Callable[[Any], None], how: str) -> dict[str, Any]:
    """Profile some steps and return what XProf says of them; ``{"error": text}`` where it cannot be converted."""
    with tempfile.TemporaryDirectory(prefix="xprof-") as directory:
        if how == "fit":
            _fit(loaded.dataset, directory)
        else:
            _loop(loaded.dataset, step, how, directory)
        return _converted(directory)


def _loop(dataset: Any, step: Callable[[Any], None], how: str, directory: str) -> None:
    batches = for_ever(dataset)
    for _ in range(SETTLE):
        step(next(batches))
    tf.profiler.experimental.start(directory)
    began = time.monotonic()
    for number in range(STEPS):
        outside = next(batches) if how == "outside" else None
        marked = how != "none"
        marker = tf.profiler.experimental.Trace("train", step_num=number, _r=1) if marked else contextlib.nullcontext()
        with marker:
            step(next(batches) if outside is None else outside)
        if time.monotonic() - began > LONGEST_S:
            break
    tf.profiler.experimental.stop()


def _fit(dataset: Any, directory: str) -> None:
    """A small Keras model on the first component of the batches, as numbers."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def pair(*components: Any) -> tuple[Any, Any]:
        rows = tf.cast(tf.nest.flatten(components)[0], tf.float32)
        rows = tf.reduce_sum(tf.reshape(rows, [tf.shape(rows)[0], -1]), axis=1, keepdims=True)
        rows = tf.ensure_shape(rows, [None, 1])
        return rows, rows

    pairs = dataset.repeat().map(pair)
    model.fit(pairs, steps_per_epoch=SETTLE, epochs=1, verbose=0)
    tf.profiler.experimental.start(directory)
    model.fit(pairs, steps_per_epoch=STEPS, epochs=1, verbose=0)
    tf.profiler.experimental.stop()


def _converted(directory: str) -> dict[str, Any]:
    (path,) = Path(directory).glob("plugins/profile/*/*.xplane.pb")
    said = ask(path)
    return {"error": said} if isinstance(said, str) else said.model_dump(mode="json")
