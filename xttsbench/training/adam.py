"""Adam with clipping by the norm of all gradients, averages of the weights and a loss scale, on one replica.

Keras's optimizers clip before replicas have added their gradients up, look for numbers that are not finite on the
first replica alone, and update a distributed variable by leaving the replica's trace, which XLA cannot compile. Here
each replica updates its own copies, all by the same numbers; those are ``keras.optimizers.Adam``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import tensorflow as tf

from xttsbench.xtts.model import squared_norm
from xttsbench.xtts.recipe import OptimizerSettings

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


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaVariables:
    """One replica's copies of all that a step changes; each tuple has one variable for each weight."""

    weights: tuple[tf.Variable, ...]
    first_moments: tuple[tf.Variable, ...]
    second_moments: tuple[tf.Variable, ...]
    averages: tuple[tf.Variable, ...]
    """Of the weights; empty where none are kept."""
    updates: tf.Variable
    """Steps that were applied, int64."""
    loss_scale: LossScale | None


def update(
    variables: ReplicaVariables,
    gradients: Sequence[tf.Tensor],
    settings: OptimizerSettings,
    ema_decay: float | None,
    learning_rate: tf.Tensor,
    learn: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Clip gradients by their joint norm and apply them, unless one of them is not finite or ``learn`` is false.

    Where it applies nothing, all variables but the loss scale keep their values: what is added to them is 0. That is
    decided by arithmetic, for a branch would make the processor wait for the device.

    Args:
        variables: what is changed.
        gradients: of each weight, summed over all replicas, times the loss scale where there is one.
        settings: Adam's (Kingma and Ba, 2015), and the greatest norm.
        ema_decay: of the averages, which move faster in the first updates: by ``min(decay, (1 + n) / (10 + n))`` after
            the n-th, as ``tf.train.ExponentialMovingAverage`` does.
        learning_rate: a scalar.
        learn: a truth value.

    Returns:
        The norm before clipping, without the scale, and whether the gradients were applied; scalars.
    """
    unscale = tf.constant(1.0)
    if variables.loss_scale is not None:
        unscale = 1 / variables.loss_scale.scale
        gradients = [gradient * unscale for gradient in gradients]
    square = squared_norm(gradients)
    is_finite = tf.math.is_finite(square)
    if variables.loss_scale is not None:
        variables.loss_scale.follow(is_finite, learn)
    applied = is_finite & learn

    variables.updates.assign_add(tf.cast(applied, tf.int64))
    number = tf.cast(variables.updates, tf.float32)
    clip = settings.clip_norm * tf.math.rsqrt(tf.maximum(square, settings.clip_norm**2))
    factor = tf.where(applied, clip, 0.0)
    rate = tf.where(applied, learning_rate, 0.0)
    beta_1, beta_2 = (tf.where(applied, beta, 1.0) for beta in (settings.beta_1, settings.beta_2))
    # Of the next update where this one is left out: 1 - power must not be 0 there.
    power = tf.maximum(number, 1.0)
    for weight, first, second, gradient in zip(
        variables.weights, variables.first_moments, variables.second_moments, gradients, strict=True
    ):
        tf.raw_ops.ResourceApplyAdam(
            var=weight.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=settings.beta_1**power,
            beta2_power=settings.beta_2**power,
            lr=rate,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=settings.epsilon,
            grad=tf.math.multiply_no_nan(gradient, factor),  # 0 also where the gradient is not finite
        )
    if ema_decay is not None:
        decay = tf.minimum(ema_decay, (1 + number) / (10 + number))
        share = tf.where(applied, 1 - decay, 0.0)
        for weight, average in zip(variables.weights, variables.averages, strict=True):
            average.assign_add((weight - average) * share)
    return tf.sqrt(square), applied
