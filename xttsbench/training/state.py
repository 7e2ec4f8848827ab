"""All that a training run's steps change: weights, Adam's moments, averages, the loss scale and the count of updates.

It is made under a strategy, so that each replica has its own copy, and read and restored as NumPy arrays by name, so
that a checkpoint needs to know nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.training.adam import FIRST_SCALE, LossScale, ReplicaVariables
from xttsbench.training.checkpoints import Checkpoint
from xttsbench.xtts import text
from xttsbench.xtts.model import SpeechModel, use_precision
from xttsbench.xtts.model.generate import Generator
from xttsbench.xtts.recipe import Recipe

Arrays = dict[str, npt.NDArray[Any]]

_AVERAGE: Final = "average/"
"""How the names of averaged weights begin among the optimizer's arrays."""


class TrainingState:
    """The model and what its training keeps beside it.

    Attributes:
        model: its variables are the strategy's.
        strategy: under which they were made.
        replicas: the variables of each replica of this process.
    """

    def __init__(self, recipe: Recipe, strategy: tf.distribute.Strategy, precision: str, seed: int) -> None:
        """Make a new model and an optimizer that has seen nothing.

        Args:
            recipe: sizes, and whether averages are kept.
            strategy: of :func:`xttsbench.training.strategy.make_strategy`.
            precision: one of :data:`xttsbench.xtts.model.PRECISIONS`.
            seed: of the weights, below 2**31.
        """
        self.strategy = strategy
        with strategy.scope():
            self.model = SpeechModel(
                recipe.model,
                recipe.features.n_mels,
                text.VOCABULARY,
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
        """Return the variable of each local replica."""
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


def generator_of(checkpoint: Checkpoint) -> tuple[Generator, bool]:
    """Return what speaks with a checkpoint's model, in float32, and whether with averaged weights: where it has such.

    Raises:
        InvalidInputError: the weights are not those of such a model.
    """
    origin = checkpoint.run.origin
    averages = {
        name.removeprefix(_AVERAGE): array for name, array in checkpoint.optimizer.items() if name.startswith(_AVERAGE)
    }
    weights = averages or checkpoint.weights
    model = SpeechModel(origin.model, origin.features.n_mels, origin.vocabulary, dtype="float32")
    variables = named_variables(model)
    wanted = {name: tuple(variable.shape) for name, variable in variables.items()}
    if wanted != {name: array.shape for name, array in weights.items()}:
        raise InvalidInputError(
            f"the weights of {checkpoint.entry.files[0]} are not those of this version's model; "
            "take the version of xttsbench that trained it"
        )
    for name, variable in variables.items():
        variable.assign(weights[name])
    step_s = origin.model.frames_per_step * origin.features.hop_samples / origin.features.sample_rate_hz
    return Generator(model, step_s), bool(averages)


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
