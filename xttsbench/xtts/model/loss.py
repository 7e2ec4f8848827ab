"""The loss (mels, end of speech, diagonal of the attention) and its gradients: at once, or compiled by XLA in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from xttsbench.xtts.data.batches import LossCounts
from xttsbench.xtts.model.attention import at_least_single, size
from xttsbench.xtts.model.speech_model import Batch, Prediction, SpeechModel, scale_mel
from xttsbench.xtts.recipe import LossSettings, ModelSettings

Count: TypeAlias = float | tf.Tensor


class Losses(NamedTuple):
    """Scalars; ``total`` is the weighted sum of the others."""

    total: tf.Tensor
    mel: tf.Tensor
    stop: tf.Tensor
    guided: tf.Tensor


def losses(
    batch: Batch,
    prediction: Prediction,
    model: ModelSettings,
    settings: LossSettings,
    counts: LossCounts | None = None,
) -> Losses:
    """Return the loss of a batch and its parts.

    With the counts of a larger batch that this one is a part of, it is this part's share in that one's loss.

    Args:
        batch: ``mel`` ``[rows, frames, n_mels]``, ``mel_length``, ``text_length`` and ``reference_start`` ``[rows]``;
            of ``reference`` ``[rows, frames, n_mels]`` the number of frames counts. What the reference shows of the
            clip itself (``reference_start`` not negative) is no part of the target.
        prediction: the model's, for this batch.
        model: the model's settings.
        settings: weights of the parts.
        counts: what the parts are divided by, as scalars; without them, this batch's own.
    """
    counts = counts or batch_counts(batch, model)
    steps = _steps(batch, model)
    target = scale_mel(tf.cast(batch["mel"], prediction.scaled_mel.dtype), model)
    mel = mel_loss(target, prediction.scaled_mel, _is_target(batch), counts.mel)
    stop = stop_loss(prediction.stop_logits, steps, settings.stop_positive_weight, counts.stop)
    total = mel + settings.stop_weight * stop
    guided = tf.zeros_like(total)
    if prediction.attention and settings.guided_weight:
        guided = guided_loss(
            prediction.attention,
            batch["text_length"],
            steps,
            model.latents,
            settings.guided_sigma,
            counts.guided,
        )
        total += settings.guided_weight * tf.cast(guided, total.dtype)
    return Losses(total, mel, stop, guided)


def batch_counts(batch: Batch, model: ModelSettings) -> LossCounts:
    """Return the counts of a batch, float32 scalars, from its tensors; :func:`loss_counts` has them from a plan."""
    steps = _steps(batch, model)
    counts = (
        tf.maximum(tf.reduce_sum(tf.cast(_is_target(batch), tf.int32)), 1),
        tf.reduce_sum(steps),
        tf.reduce_sum(steps * batch["text_length"]),
    )
    return LossCounts(*(tf.cast(count, tf.float32) for count in counts))


def mel_loss(target: tf.Tensor, predicted: tf.Tensor, is_target: tf.Tensor, count: Count) -> tf.Tensor:
    """Return the mean of ``|error| + error**2`` over the numbers of the frames that count.

    Both are ``[rows, frames, n_mels]``, ``is_target`` is bool ``[rows, frames]``, and ``count`` is of the whole batch
    where this is a part.
    """
    error = (predicted - target) * tf.cast(is_target, target.dtype)[..., None]
    return tf.reduce_sum(tf.abs(error) + error * error) / (tf.cast(count, target.dtype) * target.shape[-1])


def stop_loss(logits: tf.Tensor, steps: tf.Tensor, positive_weight: float, real_steps: Count) -> tf.Tensor:
    """Return the mean cross-entropy over real steps; a clip's last step weighs more, for there is only one.

    The logits are ``[rows, steps]``, ``steps`` the real ones of each row; ``real_steps`` is of the whole batch where
    this is a part.
    """
    count = size(logits, 1)
    ends = tf.one_hot(steps - 1, count, dtype=logits.dtype)
    is_real = tf.sequence_mask(steps, count, logits.dtype)
    cross_entropy = tf.nn.weighted_cross_entropy_with_logits(ends, logits, positive_weight)
    return tf.reduce_sum(is_real * cross_entropy) / tf.cast(real_steps, logits.dtype)


def guided_loss(
    attention: tuple[tf.Tensor, ...],
    text_length: tf.Tensor,
    steps: tf.Tensor,
    latents: int,
    sigma: float,
    pairs: Count,
) -> tf.Tensor:
    """Return the mean over heads and real (step, character) pairs of attention x distance from the diagonal.

    The distance is ``1 - exp(-(n / N - t / T)**2 / (2 sigma**2))`` for character n of N and step t of T, the row's true
    lengths (Tachibana et al., "Efficiently trainable text-to-speech system ... with guided attention", 2017).

    Args:
        attention: of each layer the weights ``[heads, rows, steps, latents + characters]``, 0 but for real characters.
        text_length: characters of each row, ``[rows]``.
        steps: real steps of each row, ``[rows]``.
        latents: positions before the text.
        sigma: width of the diagonal that costs little.
        pairs: pairs of one head to divide by: those that are real, of the whole batch where this is a part.
    """
    dtype = at_least_single(attention[0].dtype)
    text_length, steps = tf.cast(text_length, dtype), tf.cast(steps, dtype)
    character = tf.cast(tf.range(size(attention[0], 3)) - latents, dtype) / text_length[:, None]
    step = tf.cast(tf.range(size(attention[0], 2)), dtype)
    distance = 1 - tf.exp((character[:, None, :] - (step / steps[:, None])[..., None]) ** 2 * (-0.5 / sigma**2))
    costs = distance * tf.cast(step < steps[:, None], dtype)[..., None]
    divisor = tf.cast(pairs, dtype) * sum(weights.shape[0] for weights in attention)
    return tf.add_n([tf.reduce_sum(tf.cast(weights, dtype) * costs) for weights in attention]) / divisor


def _steps(batch: Batch, model: ModelSettings) -> tf.Tensor:
    return tf.math.floordiv(batch["mel_length"] + model.frames_per_step - 1, model.frames_per_step)


def _is_target(batch: Batch) -> tf.Tensor:
    """Return which frames the mel loss counts, bool ``[rows, frames]``: real ones that the reference does not show."""
    frame = tf.range(size(batch["mel"], 1))
    start = batch["reference_start"][:, None]
    is_shown = (start >= 0) & (frame >= start) & (frame < start + size(batch["reference"], 1))
    return (frame < batch["mel_length"][:, None]) & ~is_shown


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
    return [variable.value for variable in variables]


def _ids(variables: Sequence[Any]) -> list[int]:
    return [id(variable) for variable in variables]
