"""The precisions that the model trains in, and what each of them sets."""

from __future__ import annotations

from typing import Final

import tensorflow as tf

PRECISIONS: Final = ("float32", "tf32", "mixed_bfloat16", "mixed_float16")
"""Its variables are float32 in all of them. ``tf32`` is float32 but for the factors of a product on a GPU since Ampere,
which have ten bits for their digits; the others are Keras's dtype policies."""


def use_precision(precision: str) -> str:
    """Set what a precision needs for the whole process, and return the name of the model's dtype policy.

    TensorFlow has TF32 on unless it is told otherwise, and a process has it for all of its models or for none: the one
    that was made last decides, also for graphs that were traced before. XLA decides when it compiles.
    """
    tf.config.experimental.enable_tensor_float_32_execution(precision != "float32")
    return "float32" if precision == "tf32" else precision
