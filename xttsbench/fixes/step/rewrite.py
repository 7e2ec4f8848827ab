"""Fixes of the training step: one graph, XLA on or off, and batches padded to a few lengths, not traced for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.step import STEP_BUCKETS, STEP_GRAPH, STEP_NO_XLA, STEP_SEVERAL, STEP_XLA
from xttsbench.records.fix import Fix
from xttsbench.step.modes import keras_step

if TYPE_CHECKING:
    import keras

Step = Callable[[Any], Any]
_COMPILED: Final = (STEP_GRAPH.name, STEP_XLA.name, STEP_NO_XLA.name)
_NAMES: Final = (*_COMPILED, STEP_BUCKETS.name)
_EDGES_PER_OCTAVE: Final = 4
"""Bucket edges between a length and its double: a batch grows by a quarter at most, and by a tenth on average."""


def fixed_step(step: Step | None, fix: Fix, model: keras.Model | None = None) -> Step:
    """A step with one fix; that of a Keras model is built anew from the model with the setting changed.

    What a step calls loses XLA where it is made (:func:`xttsbench.step.modes.without_xla`), not here.

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
        change_keras(model, fix)
        return keras_step(model)
    if fix.kind == STEP_NO_XLA.name:
        return step
    return tf.function(step, jit_compile=True if xla else None, reduce_retracing=not xla)


def change_keras(model: keras.Model, fix: Fix) -> None:
    """Have a Keras model's next training function run its step as a fix says; not every fix of a step is for one."""
    if fix.kind == STEP_SEVERAL.name:
        model.steps_per_execution = fix.number
    elif fix.kind in _COMPILED:
        model.run_eagerly = bool(model.run_eagerly) and fix.kind == STEP_NO_XLA.name
        model.jit_compile = fix.kind == STEP_XLA.name


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
