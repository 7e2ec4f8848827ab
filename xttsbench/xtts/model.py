"""The speech model: a causal pre-LN decoder over text followed by grouped mel frames, and its loss.

One row is ``text | mel``: the text's characters, then one position per group of ``r`` mel frames. The position of a
group holds the group *before* it (the first holds zeros) and predicts the group's own frames and whether speech ends
there, so that no step sees what it has to say.
"""

from __future__ import annotations

from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from xttsbench.xtts.recipe import ModelSettings

STOP_WEIGHT: Final = 0.2
STOP_POSITIVE_WEIGHT: Final = 5.0
"""One group of a clip is its last: without a weight, never stopping would be a good answer."""


class SpeechDecoder(keras.Model):
    """Text ids and mel frames to predicted mel frames and stop logits."""

    def __init__(self, settings: ModelSettings, n_mels: int, vocabulary: int) -> None:
        super().__init__(name="speech_decoder")
        self.settings = settings
        self.n_mels = n_mels
        d = settings.d_model
        self.embedding = keras.layers.Embedding(vocabulary, d)
        self.prenet = [keras.layers.Dense(units, activation="relu") for units in settings.prenet]
        self.prenet_dropout = [keras.layers.Dropout(settings.prenet_dropout) for _ in settings.prenet]
        self.prenet_out = keras.layers.Dense(d)
        self.blocks = [_Block(settings, name=f"block_{number}") for number in range(settings.layers)]
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5)
        self.mel_head = keras.layers.Dense(settings.frames_per_step * n_mels)
        self.stop_head = keras.layers.Dense(1)

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Predict each group of frames from the text and the groups before it.

        Args:
            inputs: ``text`` ``[batch, characters]`` ids, 0 is padding; ``mel`` ``[batch, frames, n_mels]`` log-mels,
                the frames a multiple of ``frames_per_step``.
            training: whether the prenet drops units.

        Returns:
            Log-mels ``[batch, frames, n_mels]`` and stop logits ``[batch, frames / frames_per_step]``.
        """
        text, mel = inputs["text"], inputs["mel"]
        rows, characters, frames = tf.shape(text)[0], tf.shape(text)[1], tf.shape(mel)[1]
        group = self.settings.frames_per_step
        steps = frames // group
        scaled = (mel - self.settings.mel_mean) / self.settings.mel_std
        groups = tf.reshape(scaled, [rows, steps, group * self.n_mels])
        before = tf.pad(groups[:, :-1], [[0, 0], [1, 0], [0, 0]])
        for dense, dropout in zip(self.prenet, self.prenet_dropout, strict=True):
            before = dropout(dense(before), training=training)
        d = self.settings.d_model
        x = tf.concat(
            [
                self.embedding(text) + positions(characters, d),
                self.prenet_out(before) + positions(steps, d),
            ],
            axis=1,
        )
        is_key = tf.concat([text > 0, tf.ones([rows, steps], tf.bool)], axis=1)
        for block in self.blocks:
            x = block(x, is_key)
        x = self.norm(x[:, characters:])
        predicted = tf.reshape(self.mel_head(x), [rows, frames, self.n_mels])
        return predicted * self.settings.mel_std + self.settings.mel_mean, tf.squeeze(self.stop_head(x), -1)


class _Block(keras.layers.Layer):
    """Pre-LN decoder block: x + attention(norm(x)), then x + feed-forward(norm(x))."""

    def __init__(self, settings: ModelSettings, name: str) -> None:
        super().__init__(name=name)
        d = settings.d_model
        self.attention_norm = keras.layers.LayerNormalization(epsilon=1e-5)
        self.attention = keras.layers.MultiHeadAttention(settings.heads, d // settings.heads)
        self.feed_forward_norm = keras.layers.LayerNormalization(epsilon=1e-5)
        self.expand = keras.layers.Dense(settings.feed_forward, activation="gelu")
        self.contract = keras.layers.Dense(d)

    def call(self, x: tf.Tensor, is_key: tf.Tensor) -> tf.Tensor:
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, attention_mask=is_key[:, None, :], use_causal_mask=True)
        return x + self.contract(self.expand(self.feed_forward_norm(x)))


def positions(count: tf.Tensor | int, d_model: int) -> tf.Tensor:
    """Return sinusoidal positions ``[count, d_model]`` (Vaswani et al., "Attention is all you need", 2017)."""
    rates = np.exp(-np.log(10_000.0) * np.arange(0, d_model, 2) / d_model).astype(np.float32)
    angles = tf.cast(tf.range(count), tf.float32)[:, None] * rates
    return tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)


def loss(
    mel: tf.Tensor, mel_length: tf.Tensor, predicted: tf.Tensor, stop_logits: tf.Tensor, settings: ModelSettings
) -> tf.Tensor:
    """Return the scalar loss: L1 + L2 of the scaled mels over real frames, and 0.2 x stop cross-entropy.

    Args:
        mel: log-mels ``[batch, frames, n_mels]``.
        mel_length: real frames of each row, ``[batch]``.
        predicted: log-mels as :class:`SpeechDecoder` gives them.
        stop_logits: ``[batch, frames / frames_per_step]``.
        settings: the model's.
    """
    group = settings.frames_per_step
    is_real = tf.sequence_mask(mel_length, tf.shape(mel)[1], tf.float32)[..., None]
    error = (predicted - mel) / settings.mel_std
    numbers = tf.reduce_sum(is_real) * tf.cast(tf.shape(mel)[2], tf.float32)
    mel_loss = tf.reduce_sum(is_real * (tf.abs(error) + error**2)) / numbers

    groups = (mel_length + group - 1) // group
    steps = tf.shape(stop_logits)[1]
    ends = tf.one_hot(groups - 1, steps)
    has_speech = tf.sequence_mask(groups, steps, tf.float32)
    cross_entropy = tf.nn.weighted_cross_entropy_with_logits(ends, stop_logits, STOP_POSITIVE_WEIGHT)
    stop_loss = tf.reduce_sum(has_speech * cross_entropy) / tf.reduce_sum(has_speech)
    return mel_loss + STOP_WEIGHT * stop_loss


def build(settings: ModelSettings, n_mels: int, vocabulary: int) -> SpeechDecoder:
    """Return a decoder whose variables exist, so that the first training step need not make them."""
    model = SpeechDecoder(settings, n_mels, vocabulary)
    smallest: dict[str, Any] = {
        "text": tf.ones([1, 1], tf.int32),
        "mel": tf.zeros([1, settings.frames_per_step, n_mels]),
    }
    model(smallest)
    return model
