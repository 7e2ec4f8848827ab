"""The loss scale of 16-bit floats, by which small gradients do not become 0 (Micikevicius et al., 2018)."""

from __future__ import annotations

from typing import Final

import tensorflow as tf

FIRST_SCALE: Final = 2.0**15
GROWTH_STEPS: Final = 2000
"""Finite steps in a row after which the scale is doubled."""


class LossScale:
    """One replica's scale and the finite steps since it last changed.

    Attributes:
        scale: a float32 variable.
        good_steps: an int64 variable.
    """

    def __init__(self, scale: tf.Variable, good_steps: tf.Variable) -> None:
        self.scale, self.good_steps = scale, good_steps

    def follow(self, is_finite: tf.Tensor, learn: tf.Tensor) -> None:
        """Double the scale after enough finite steps, halve it after one that was not; where ``learn`` is false, stay.

        It never falls below 1: a gradient that is not finite without a scale is not the scale's fault.
        """
        scale, good = tf.identity(self.scale), self.good_steps + 1
        is_grown = good >= GROWTH_STEPS
        followed = tf.where(is_finite, tf.where(is_grown, scale * 2, scale), tf.maximum(scale / 2, 1))
        counted = tf.where(is_finite & ~is_grown, good, 0)
        self.scale.assign(tf.where(learn, followed, scale))
        self.good_steps.assign(tf.where(learn, counted, good - 1))
