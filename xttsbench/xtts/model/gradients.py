"""The loss of a batch and its gradients: at once, or compiled by XLA in parts that are not compiled again in vain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from xttsbench.xtts.data.loss_counts import LossCounts
from xttsbench.xtts.model.loss import Losses, losses
from xttsbench.xtts.model.speech_model import Batch, SpeechModel
from xttsbench.xtts.recipe import LossSettings


def losses_and_gradients(
    model: SpeechModel,
    batch: Batch,
    settings: LossSettings,
    dropout_bits: tf.Tensor | None,
    scale: tf.Tensor | None = None,
    counts: LossCounts | None = None,
) -> tuple[Losses, list[tf.Tensor]]:
    """Return the losses of a batch, and the gradient of their total for each trainable variable of the model.

    With a scale, the gradient is that of the total times it. With counts, the losses are divided by those.
    """
    with tf.GradientTape() as tape:
        found = losses(batch, model(batch, dropout_bits=dropout_bits), model.settings, settings, counts)
    return found, tape.gradient(found.total, _values(model.trainable_variables), output_gradients=scale)


class CompiledGradients:
    """:func:`losses_and_gradients` by XLA.

    XLA compiles again for each shape, and of tiny's compilation a third is the conditioning's. But the reference has
    the same shape in every bucket of as many rows, so that its part is compiled apart from the decoder's, once; its
    backward pass computes the forward pass again, which is 3 % of a short step.
    """

    def __init__(self, model: SpeechModel, settings: LossSettings) -> None:
        self.model, self.settings = model, settings
        self._condition = _compiled(model.condition)
        self._decode = _compiled(self._decoder_gradients)
        self._condition_back = _compiled(self._conditioning_gradients)

    def __call__(
        self,
        batch: Batch,
        dropout_bits: tf.Tensor,
        scale: tf.Tensor | None = None,
        counts: LossCounts | None = None,
    ) -> tuple[Losses, list[tf.Tensor]]:
        """Return what :func:`losses_and_gradients` does."""
        latents = self._condition(batch["reference"])
        found, d_latents, of_decoder = self._decode(batch, latents, dropout_bits, scale, counts)
        of_conditioning = self._condition_back(batch["reference"], d_latents)
        gradients = dict(zip(_ids(self._conditioning_variables()), of_conditioning, strict=True))
        gradients |= zip(_ids(self._decoder_variables()), of_decoder, strict=True)
        return found, [gradients[variable] for variable in _ids(self.model.trainable_variables)]

    def _decoder_gradients(
        self,
        batch: Batch,
        latents: tf.Tensor,
        dropout_bits: tf.Tensor,
        scale: tf.Tensor | None,
        counts: LossCounts | None,
    ) -> tuple[Losses, tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch(latents)
            prediction = self.model.decode(batch, latents, dropout_bits)
            found = losses(batch, prediction, self.model.settings, self.settings, counts)
        sources = [latents, *_values(self._decoder_variables())]
        d_latents, *gradients = tape.gradient(found.total, sources, output_gradients=scale)
        return found, d_latents, gradients

    def _conditioning_gradients(self, reference: tf.Tensor, d_latents: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            latents = self.model.condition(reference)
        return tape.gradient(latents, _values(self._conditioning_variables()), output_gradients=d_latents)

    def _conditioning_variables(self) -> list[Any]:
        return self.model.conditioning.trainable_variables

    def _decoder_variables(self) -> list[Any]:
        others = set(_ids(self._conditioning_variables()))
        return [variable for variable in self.model.trainable_variables if id(variable) not in others]


def squared_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the square of the joint Euclidean norm of all gradients, a scalar."""
    rows = [tf.reshape(gradient, [1, -1]) for gradient in gradients]
    # A product rather than a sum of squares: XLA calls a library for it and compiles nothing.
    return tf.squeeze(tf.add_n([tf.matmul(row, row, transpose_b=True) for row in rows]))


def _compiled(function: Any) -> Any:
    return tf.function(function, jit_compile=True, autograph=False)


def _values(variables: Sequence[Any]) -> list[tf.Variable]:
    """Return what TensorFlow's tape knows of Keras's variables."""
    return [variable.value for variable in variables]


def _ids(variables: Sequence[Any]) -> list[int]:
    return [id(variable) for variable in variables]
