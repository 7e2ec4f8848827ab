"""The training step: forward, backward, clipping and Adam, in the mode asked for, with the same numbers in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.xtts import text
from xttsbench.xtts.model.gradients import CompiledGradients, clip, losses_and_gradients
from xttsbench.xtts.model.loss import Losses
from xttsbench.xtts.model.precision import PRECISIONS, use_precision
from xttsbench.xtts.model.speech_model import Batch, build
from xttsbench.xtts.recipe import OptimizerSettings, Recipe

MODES: Final = ("eager", "graph", "xla")


class ClippedAdam(keras.optimizers.Adam):
    """Adam of gradients that are clipped together by :func:`clip` first, unscaled where there is a loss scale."""

    def __init__(self, settings: OptimizerSettings) -> None:
        super().__init__(
            settings.learning_rate, beta_1=settings.beta_1, beta_2=settings.beta_2, epsilon=settings.epsilon
        )
        self.clip_norm = settings.clip_norm

    def apply(self, grads: Sequence[tf.Tensor], trainable_variables: Any = None) -> None:
        """Clip and apply gradients."""
        super().apply(clip(grads, self.clip_norm), trainable_variables)


class TrainStep:
    """``step(batch)`` trains on a batch and returns its loss as a scalar.

    ``eager`` dispatches operation by operation. ``graph`` is one trace for all shapes. ``xla`` is a graph too, all of
    whose arithmetic is compiled: the decoder once for each shape, the rest once (see :class:`CompiledGradients`).

    Under ``mixed_float16`` the loss is scaled, so that small gradients do not become 0 (Micikevicius et al., "Mixed
    Precision Training", 2018): the scale doubles after 2000 steps, and where a gradient is not finite it is halved and
    the step left out. bfloat16 has float32's range and needs none.

    Attributes:
        model: what is trained.
        optimizer: :class:`ClippedAdam`, within Keras's ``LossScaleOptimizer`` under ``mixed_float16``. Its
            ``iterations`` also number the steps for dropout, so that a restored optimizer draws what it would have
            drawn.
        function: the compiled step, a ``tf.function``, or None in eager mode.
    """

    def __init__(self, recipe: Recipe, mode: str, seed: int, precision: str, spec: dict[str, tf.TensorSpec]) -> None:
        self.recipe, self.mode, self.seed, self.precision = recipe, mode, seed, precision
        self.model = build(
            recipe.model, recipe.features.n_mels, text.VOCABULARY, seed=seed, dtype=use_precision(precision)
        )
        self.optimizer: Any = ClippedAdam(recipe.optimizer)
        self._is_scaled = precision == "mixed_float16"
        if self._is_scaled:
            self.optimizer = keras.optimizers.LossScaleOptimizer(self.optimizer)
        self.optimizer.build(self.model.trainable_variables)
        self._keys = tuple(spec)
        self._gradients: Callable[..., tuple[Losses, list[tf.Tensor]]] = self._gradients_at_once
        self._update: Callable[[list[tf.Tensor]], None] = self._apply
        if mode == "xla":
            self._gradients = CompiledGradients(self.model, recipe.loss)
            self._update = tf.function(self._apply, jit_compile=True, autograph=False)
        self.function: Any = None
        if mode != "eager":
            self.function = tf.function(self._step, input_signature=[spec], autograph=False)

    def __call__(self, batch: Batch) -> tf.Tensor:
        """Train on a batch; see :func:`make_train_step` for its keys."""
        needed = {key: batch[key] for key in self._keys}
        return self._step(needed) if self.function is None else self.function(needed)

    @tf.autograph.experimental.do_not_convert
    def _step(self, batch: Batch) -> tf.Tensor:
        seed = tf.stack([tf.constant(self.seed, tf.int32), tf.cast(self.optimizer.iterations.value, tf.int32)])
        scale = tf.convert_to_tensor(self.optimizer.dynamic_scale) if self._is_scaled else None
        found, gradients = self._gradients(batch, self.model.draw_dropout(batch, seed), scale)
        self._update(gradients)
        return found.total

    def _gradients_at_once(
        self, batch: Batch, dropout_bits: tf.Tensor, scale: tf.Tensor | None
    ) -> tuple[Losses, list[tf.Tensor]]:
        return losses_and_gradients(self.model, batch, self.recipe.loss, dropout_bits, scale)

    def _apply(self, gradients: list[tf.Tensor]) -> None:
        self.optimizer.apply(gradients, self.model.trainable_variables)


def make_train_step(
    recipe: Recipe,
    mode: str,
    seed: int,
    *,
    precision: str = "float32",
    spec: dict[str, tf.TensorSpec] | None = None,
) -> TrainStep:
    """Return a step that trains a new model: ``step(batch)`` gives the loss, a scalar.

    A batch holds ``text`` int32 ``[rows, characters]``, ``text_length`` int32 ``[rows]``, ``mel`` float32 ``[rows,
    frames, n_mels]``, ``mel_length`` int32 ``[rows]``, ``reference`` float32 ``[rows, frames, n_mels]`` and
    ``reference_start`` int32 ``[rows]``; other keys are left alone. The same recipe, seed and batches give the same
    losses in each mode, to the rounding of the precision.

    Args:
        recipe: model, loss and optimizer.
        mode: ``eager``, ``graph`` or ``xla``.
        seed: of the weights and of dropout, below 2**31.
        precision: one of :data:`PRECISIONS`; it sets TF32 for the whole process, on but for ``float32``.
        spec: the dataset's ``element_spec``, for the sizes that are always the same; without it all are open.

    Raises:
        InvalidInputError: the mode or the precision is unknown, or the spec lacks a key.
    """
    for name, value, known in (("mode", mode, MODES), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise InvalidInputError(f"make_train_step: {name}: one of {', '.join(known)} is expected, got {value!r}")
    needed = open_spec(recipe.features.n_mels)
    if spec is not None:
        missing = sorted(set(needed) - set(spec))
        if missing:
            raise InvalidInputError(
                f"make_train_step: spec: the batches lack {', '.join(missing)}; they have {', '.join(sorted(spec))}"
            )
        needed = {key: spec[key] for key in needed}
    return TrainStep(recipe, mode, seed, precision, needed)


def open_spec(n_mels: int) -> dict[str, tf.TensorSpec]:
    """Return what a batch must hold, with open sizes: one trace serves all buckets."""
    length, mels = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None, n_mels], tf.float32)
    return {
        "text": tf.TensorSpec([None, None], tf.int32),
        "text_length": length,
        "mel": mels,
        "mel_length": length,
        "reference": mels,
        "reference_start": length,
    }
