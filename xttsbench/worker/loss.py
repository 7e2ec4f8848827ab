"""The loss among what a training step returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def loss_of(value: Any) -> float | None:
    """What a step returns as a float: a number, a tensor of one, or what lies under ``loss``, as Keras returns it."""
    if isinstance(value, Mapping):
        value = value.get("loss")
    if value is None or isinstance(value, bool | str | bytes):
        return None
    try:
        array = np.asarray(value)
        dtype = tf.as_dtype(array.dtype)
    except (TypeError, ValueError):
        return None
    return float(array.reshape(())) if dtype.is_floating and array.size == 1 else None
