"""Fixes of the training step: one graph, XLA, and batches padded to a few lengths so that neither traces for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import keras
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.step.keras_step import keras_step

Step = Callable[[Any], Any]
OF_STEP: Final = "step:"
"""How the name of a fix begins that changes the step and not the dataset."""
GRAPH, XLA, BUCKETS = "step:graph", "step:xla", "step:buckets"
_EDGES_PER_OCTAVE: Final = 4
"""Bucket edges between a length and its double: a batch grows by a quarter at most, and by a tenth on average."""


def fixed_step(step: Step | None, name: str, model: keras.Model | None = None) -> Step:
    """A step with one fix; that of a Keras model is built anew from the model with the setting changed.

    Raises:
        InvalidInputError: there is no step, or no such fix.
    """
    if step is None:
        raise InvalidInputError(f"The fix {name!r} does not apply: the target has no step.")
    if name not in (GRAPH, XLA, BUCKETS):
        raise InvalidInputError(f"There is no fix named {name!r}. Use one of {GRAPH}, {XLA}, {BUCKETS}.")
    if name == BUCKETS:
        inner = step
        return lambda batch: inner(padded(batch))
    if model is not None:
        model.run_eagerly = False
        model.jit_compile = name == XLA
        return keras_step(model)
    return tf.function(step, jit_compile=True if name == XLA else None, reduce_retracing=name == GRAPH)


def padded(batch: Any) -> Any:
    """A batch whose dimensions after the first are grown to the next bucket edge with zeros (or empty strings).

    Scalars and vectors stay. Zeros change what the step computes unless it masks them: what it trains with them has to
    be compared with what it trains without.
    """
    return tf.nest.map_structure(_padded, batch)


def bucket_edge(length: int) -> int:
    """The smallest edge that is not below a length: ``2**k * (1, 1.25, 1.5, 1.75)``, whole numbers."""
    if length <= _EDGES_PER_OCTAVE:
        return length
    octave = 2 ** math.floor(math.log2(length))
    part = octave / _EDGES_PER_OCTAVE
    return int(math.ceil(length / part) * part)


def _padded(tensor: Any) -> Any:
    if not isinstance(tensor, tf.Tensor) or tensor.shape.rank is None or tensor.shape.rank < 2:
        return tensor
    grown = [bucket_edge(int(size)) - int(size) for size in tensor.shape[1:]]
    return tf.pad(tensor, [[0, 0], *([0, more] for more in grown)]) if any(grown) else tensor
