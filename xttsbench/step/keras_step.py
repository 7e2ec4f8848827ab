"""The step that ``model.fit`` would run, as ``step(batch)``.

Keras compiles the iteration together with the step, which hides the wait for data; here the step alone is compiled,
with the model's own ``run_eagerly`` and ``jit_compile``, and metrics are read as ``fit`` reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def keras_step(model: keras.Model) -> Callable[[Any], Any]:
    """One training step of a compiled Keras model on a batch of its dataset."""

    def train_step(batch: Any) -> Any:
        return model.train_step(batch)

    compiled = (
        train_step
        if model.run_eagerly
        else tf.function(
            tf.autograph.experimental.do_not_convert(train_step),
            reduce_retracing=True,
            jit_compile=bool(model.jit_compile) or None,
        )
    )
    built = False

    def step(batch: Any) -> Any:
        nonlocal built
        if not built:
            # As `fit` does: variables are made outside of the traced function.
            model._maybe_symbolic_build(data_batch=keras.utils.unpack_x_y_sample_weight(batch))
            built = True
        return compiled(batch)

    return step
