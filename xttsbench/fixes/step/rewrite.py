"""Fixes of the training step: one graph, XLA on or off, several steps a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.fixes.step import STEP_GRAPH, STEP_NO_XLA, STEP_SEVERAL, STEP_XLA
from xttsbench.records.fix import Fix
from xttsbench.step.modes import keras_step

if TYPE_CHECKING:
    import keras

Step = Callable[[Any], Any]
_COMPILED: Final = (STEP_GRAPH.name, STEP_XLA.name, STEP_NO_XLA.name)


def fixed_step(step: Step | None, fix: Fix, model: keras.Model | None = None) -> Step:
    """A step with one fix; that of a Keras model is built anew from the model with the setting changed.

    What a step calls loses XLA where it is made (:func:`xttsbench.step.modes.without_xla`), not here.

    Raises:
        InvalidInputError: there is no step, or no such fix.
    """
    if step is None:
        raise InvalidInputError(f"The fix {str(fix)!r} does not apply: the target has no step.")
    if fix.kind not in _COMPILED:
        raise InvalidInputError(f"There is no fix named {str(fix)!r}. Use one of {', '.join(_COMPILED)}.")
    if model is not None:
        change_keras(model, fix)
        return keras_step(model)
    if fix.kind == STEP_NO_XLA.name:
        return step
    xla = fix.kind == STEP_XLA.name
    return tf.function(step, jit_compile=True if xla else None, reduce_retracing=not xla)


def change_keras(model: keras.Model, fix: Fix) -> None:
    """Have a Keras model's next training function run its step as a fix says; not every fix of a step is for one."""
    if fix.kind == STEP_SEVERAL.name:
        model.steps_per_execution = fix.number
    elif fix.kind in _COMPILED:
        model.run_eagerly = bool(model.run_eagerly) and fix.kind == STEP_NO_XLA.name
        model.jit_compile = fix.kind == STEP_XLA.name
