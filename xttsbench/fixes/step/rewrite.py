"""Fixes of the training step: one graph, XLA, and batches padded to a few lengths so that neither traces for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import keras
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.step import STEP_BUCKETS, STEP_GRAPH, STEP_XLA
from xttsbench.records.fix import Fix
from xttsbench.step.modes import keras_step

Step = Callable[[Any], Any]
_NAMES: Final = (STEP_GRAPH.name, STEP_XLA.name, STEP_BUCKETS.name)
_EDGES_PER_OCTAVE: Final = 4
"""Bucket edges between a length and its double: a batch grows by a quarter at most, and by a tenth on average."""


def fixed_step(step: Step | None, fix: Fix, model: keras.Model | None = None) -> Step:
    """A step with one fix; that of a Keras model is built anew from the model with the setting changed.

    Raises:
        InvalidInputError: there is no step, or no such fix.
    """
    if step is None:
        raise InvalidInputError(f"The fix {str(fix)!r} does not apply: the target has no step.")
    if fix.kind not in _NAMES:
        raise InvalidInputError(f"There is no fix named {str(fix)!r}. Use one of {', '.join(_NAMES)}.")
    xla = fix.kind == STEP_XLA.name
    if fix.kind == STEP_BUCKETS.name:
        inner = step
        return lambda batch: inner(padded(batch))
    if model is not None:
        model.run_eagerly = False
        model.jit_compile = xla
        return keras_step(model)
    return tf.function(step, jit_compile=True if xla else None, reduce_retracing=not xla)


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
