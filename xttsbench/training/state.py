"""All that a training run's steps change (weights, Adam's moments, averages, the loss scale), and Adam's update of it.

It is made under a strategy, so that each replica has its own copy, and read and restored as NumPy arrays by name, so
that a checkpoint needs to know nothing of it. Keras's optimizers clip before replicas have added their gradients up,
look for numbers that are not finite on the first replica alone, and update a distributed variable by leaving the
replica's trace, which XLA cannot compile. Here each replica updates its own copies, all by the same numbers; those are
``keras.optimizers.Adam``'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.metadata import VOCABULARY
from xttsbench.xtts.model.loss import squared_norm
from xttsbench.xtts.model.speech_model import SpeechModel, use_precision
from xttsbench.xtts.recipe import OptimizerSettings, Recipe

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
    """Averages of the weights; empty where none are kept."""
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


Arrays = dict[str, npt.NDArray[Any]]


class TrainingState:
    """The model and what its training keeps beside it.

    Attributes:
        model: its variables are the strategy's.
        strategy: under which they were made.
        replicas: the variables of each replica of this process.
    """

    def __init__(self, recipe: Recipe, strategy: tf.distribute.Strategy, precision: str, seed: int) -> None:
        """Make a new model and an optimizer that has seen nothing.

        The precision is one that :func:`xttsbench.xtts.model.speech_model.use_precision` knows, the seed below 2**31.
        """
        self.strategy = strategy
        with strategy.scope():
            self.model = SpeechModel(
                recipe.model,
                recipe.features.n_mels,
                VOCABULARY,
                seed=seed,
                dtype=use_precision(precision),
                gradient_checkpointing=recipe.training.gradient_checkpointing,
            )
            self._weights = named_variables(self.model)
            slots = ["first_moment", "second_moment", *(["average"] if recipe.training.ema_decay is not None else [])]
            self._slots = {
                slot: {name: _new(f"{slot}/{name}", tf.zeros_like(w)) for name, w in self._weights.items()}
                for slot in slots
            }
            self._counters = {"updates": _new("updates", np.int64(0))}
            if precision == "mixed_float16":
                self._counters["loss_scale"] = _new("loss_scale", np.float32(FIRST_SCALE))
                self._counters["good_steps"] = _new("good_steps", np.int64(0))
        self.replicas = tuple(self._replica(local) for local in range(len(strategy.extended.worker_devices)))
        for replica in self.replicas:
            for average, weight in zip(replica.averages, replica.weights, strict=bool(replica.averages)):
                average.assign(weight)

    @property
    def loss_scale(self) -> float | None:
        """The loss scale, fetched from the device; ``None`` where the precision needs none."""
        scale = self._counters.get("loss_scale")
        return None if scale is None else float(self._copies(scale)[0])

    def weights(self) -> Arrays:
        """Return a copy of each weight by its name."""
        return self._arrays(self._weights)

    def optimizer(self) -> Arrays:
        """Return a copy of everything else that decides the steps to come: moments, averages, counters and scale."""
        return self._arrays(self._optimizer_variables())

    def restore(self, weights: Mapping[str, npt.NDArray[Any]], optimizer: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what :meth:`weights` and :meth:`optimizer` gave, on all replicas of this process.

        Raises:
            InvalidInputError: a variable is missing, is one too many, or has another shape or type; nothing is changed.
        """
        pairs = [("weights", self._weights, weights), ("optimizer", self._optimizer_variables(), optimizer)]
        for kind, variables, arrays in pairs:
            _check(kind, variables, arrays)
        for _, variables, arrays in pairs:
            for name, variable in variables.items():
                for copy in self._copies(variable):
                    copy.assign(arrays[name])

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the model hold the averages of its weights inside, where there are any, and its own again after it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for replica in self.replicas:
            for weight, average in zip(replica.weights, replica.averages, strict=bool(replica.averages)):
                held = weight.numpy()
                weight.assign(average)
                average.assign(held)

    def _replica(self, local: int) -> ReplicaVariables:
        def copies(slot: str) -> tuple[tf.Variable, ...]:
            return tuple(self._copies(variable)[local] for variable in self._slots.get(slot, {}).values())

        counters = {name: self._copies(variable)[local] for name, variable in self._counters.items()}
        is_scaled = "loss_scale" in counters
        return ReplicaVariables(
            weights=tuple(self._copies(variable)[local] for variable in self._weights.values()),
            first_moments=copies("first_moment"),
            second_moments=copies("second_moment"),
            averages=copies("average"),
            updates=counters["updates"],
            loss_scale=LossScale(counters["loss_scale"], counters["good_steps"]) if is_scaled else None,
        )

    def _copies(self, variable: tf.Variable) -> tuple[tf.Variable, ...]:
        return tuple(self.strategy.experimental_local_results(variable))

    def _optimizer_variables(self) -> dict[str, tf.Variable]:
        slots = {f"{slot}/{name}": v for slot, variables in self._slots.items() for name, v in variables.items()}
        return slots | self._counters

    def _arrays(self, variables: Mapping[str, tf.Variable]) -> Arrays:
        return {name: self._copies(variable)[0].numpy() for name, variable in variables.items()}


def named_variables(model: keras.Model) -> dict[str, tf.Variable]:
    """Return the model's trainable variables in their order, by names that say where they are.

    Keras's own paths are those of the innermost layer, which several blocks have alike.
    """
    names = {id(variable): name for name, variable in _walk(model, "")}
    return {names[id(variable)]: variable.value for variable in model.trainable_variables}


def _walk(layer: keras.Layer, prefix: str) -> Iterator[tuple[str, keras.Variable]]:
    for name, value in vars(layer).items():
        if isinstance(value, keras.Variable):
            yield prefix + name, value
        elif isinstance(value, keras.Layer):
            yield from _walk(value, f"{prefix}{name}/")


def _new(name: str, value: Any) -> tf.Variable:
    return tf.Variable(value, trainable=False, name=name)


def _check(kind: str, variables: Mapping[str, tf.Variable], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    for said, names in (
        ("lacks", variables.keys() - arrays.keys()),
        ("has too much:", arrays.keys() - variables.keys()),
    ):
        if names:
            raise InvalidInputError(
                f"the checkpoint's {kind} {said} {', '.join(sorted(names)[:3])} ({len(names)} variables); "
                "restore it into the recipe and the precision that it was written with"
            )
    for name, variable in variables.items():
        array, dtype = arrays[name], variable.dtype.as_numpy_dtype
        if array.shape != tuple(variable.shape) or array.dtype != dtype:
            raise InvalidInputError(
                f"the checkpoint's {kind} have {name} as {array.dtype}{list(array.shape)}, and the model has it as "
                f"{np.dtype(dtype)}{variable.shape.as_list()}; restore it into the recipe that it was written with"
            )
