"""Who speaks: an encoder over a reference's mel frames, and a Perceiver that reads it into a few latents."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from xttsbench.xtts.model.attention import MASKED, attend, merge_heads, split_heads
from xttsbench.xtts.model.layers import FeedForward, Part, Size, attached, normalise, positions, size
from xttsbench.xtts.recipe import ModelSettings


class Conditioning(Part):
    """Reference frames to latents: groups of frames, bidirectional blocks, then a Perceiver (Jaegle et al., 2021)."""

    def __init__(self, settings: ModelSettings, n_mels: int, rng: np.random.Generator, dtype: Any = None) -> None:
        super().__init__("conditioning", dtype)
        self.settings = settings
        self.group = self.matrix("group", rng, settings.frames_per_step * n_mels, settings.d_model)
        self.latents = self.matrix("latents", rng, settings.latents, settings.d_model)
        self.encoder = attached(
            self, [EncoderBlock(settings, rng, f"encoder_{n}", dtype) for n in range(settings.conditioning_layers)]
        )
        self.perceiver = attached(
            self, [PerceiverBlock(settings, rng, f"perceiver_{n}", dtype) for n in range(settings.perceiver_layers)]
        )

    def call(self, scaled: tf.Tensor, is_speech: tf.Tensor) -> tf.Tensor:
        """Return latents ``[rows, latents, d]``.

        Args:
            scaled: scaled mels of the reference, ``[rows, frames, n_mels]``.
            is_speech: bool ``[rows, frames]``; the others, silence and padding, are not looked at.
        """
        rows, d, group = size(scaled, 0), self.settings.d_model, self.settings.frames_per_step
        scaled *= tf.cast(is_speech, scaled.dtype)[..., None]
        frames = size(scaled, 1)
        missing = -frames % group
        scaled = tf.pad(scaled, [[0, 0], [0, missing], [0, 0]])
        is_speech = tf.pad(is_speech, [[0, 0], [0, missing]])
        steps = (frames + missing) // group

        # As numbers, not as bool: XLA takes seconds to compile a softmax over what is selected by a bool.
        has_speech = tf.reduce_max(tf.reshape(tf.cast(is_speech, scaled.dtype), [rows, steps, group]), -1)
        bias = (1 - has_speech)[:, None, :] * MASKED
        x = tf.matmul(tf.reshape(scaled, [rows * steps, group * scaled.shape[-1]]), self.group)
        x = tf.reshape(tf.reshape(x, [rows, steps, d]) + positions(steps, d, x.dtype), [rows * steps, d])
        for block in self.encoder:
            x = block(x, bias=bias, rows=rows)
        latents = tf.tile(self.latents, [rows, 1])
        for block in self.perceiver:
            latents = block(latents, x=x, bias=bias, rows=rows)
        return tf.reshape(normalise(latents), [rows, self.settings.latents, d])


class EncoderBlock(Part):
    """Pre-LN block whose positions all see one another."""

    def __init__(self, settings: ModelSettings, rng: np.random.Generator, name: str, dtype: Any = None) -> None:
        super().__init__(name, dtype)
        self.heads = settings.heads
        self.qkv = self.matrix("qkv", rng, settings.d_model, 3 * settings.d_model)
        self.out = self.matrix("out", rng, settings.d_model, settings.d_model)
        self.feed_forward = FeedForward(rng, settings.d_model, settings.feed_forward, dtype)

    def call(self, x: tf.Tensor, bias: tf.Tensor, rows: Size) -> tf.Tensor:
        """Return tokens ``[rows * n, d]``; the bias is that of the keys, ``[rows, 1, n]``."""
        q, k, v = tf.split(split_heads(tf.matmul(normalise(x), self.qkv), rows, 3 * self.heads), 3)
        return self.feed_forward(x + tf.matmul(merge_heads(attend(q, k, v, bias)), self.out))


class PerceiverBlock(Part):
    """Latents that read tokens (cross-attention), then a feed-forward on the latents."""

    def __init__(self, settings: ModelSettings, rng: np.random.Generator, name: str, dtype: Any = None) -> None:
        super().__init__(name, dtype)
        self.heads = settings.heads
        self.query = self.matrix("query", rng, settings.d_model, settings.d_model)
        self.key_value = self.matrix("key_value", rng, settings.d_model, 2 * settings.d_model)
        self.out = self.matrix("out", rng, settings.d_model, settings.d_model)
        self.feed_forward = FeedForward(rng, settings.d_model, settings.feed_forward, dtype)

    def call(self, latents: tf.Tensor, x: tf.Tensor, bias: tf.Tensor, rows: Size) -> tf.Tensor:
        """Return latents ``[rows * latents, d]`` that read tokens ``[rows * n, d]``; the bias is ``[rows, 1, n]``."""
        q = split_heads(tf.matmul(normalise(latents), self.query), rows, self.heads)
        k, v = tf.split(split_heads(tf.matmul(normalise(x), self.key_value), rows, 2 * self.heads), 2)
        return self.feed_forward(latents + tf.matmul(merge_heads(attend(q, k, v, bias)), self.out))
