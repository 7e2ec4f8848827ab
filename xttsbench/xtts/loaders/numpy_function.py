"""The way of a batch from Python into TensorFlow: one call of a ``tf.numpy_function`` for the whole of it.

A call costs some 0.2 ms for the way into Python and back, so a call per clip would cost more than some loaders' work.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from xttsbench.xtts.loaders.numpy_batches import Arrays, MakeBatch
from xttsbench.xtts.loaders.planned import Planned
from xttsbench.xtts.loaders.signature import signature


def numpy_batches(planned: Planned, make: MakeBatch) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function that gives a batch from its number, an int64 scalar, made by ``make`` inside tf.data."""
    specs = signature(planned)

    def load_batch(number: int) -> Arrays:
        """Make a batch; runs in Python, inside tf.data."""
        return make(int(number))

    def batch(number: tf.Tensor) -> dict[str, tf.Tensor]:
        mel, reference, numbers = tf.numpy_function(load_batch, [number], [tf.float32, tf.float32, tf.int32])
        numbers.set_shape([None])
        size = tf.shape(mel)[0]
        ids, text_length, mel_length, start, text = tf.split(numbers, tf.stack([size] * 4 + [-1]), num=5)
        made = {
            "id": ids,
            "text": tf.reshape(text, tf.stack([size, -1])),
            "text_length": text_length,
            "mel": mel,
            "mel_length": mel_length,
            "reference": reference,
            "reference_start": start,
        }
        for key, spec in specs.items():
            made[key].set_shape(spec.shape)
        return made

    return batch
