"""The model's parts: encoder of the reference, text and frames to tokens, decoder blocks, tokens to frames.

Written for few and large operations, since each is dispatched, traced and compiled: the tokens of a batch lie in one
matrix ``[rows * positions, d]``, so that each product with weights is a plain matrix product. The blocks' products
have no bias and the normalisation no scale and shift, which the weights after it express (as in PaLM and OLMo). In
attention the heads come first, ``[heads, rows, positions, size]``, so that a set of heads is a slice of memory, and a
bias ``[rows, n, m]`` is broadcast over them as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.xtts.model.attention import (
    Size,
    attend,
    attend_and_show,
    merge_heads,
    normalise,
    positions,
    size,
    split_heads,
)
from xttsbench.xtts.recipe import ModelSettings

MASKED: Final = -3e4
"""Added to the score of a key that must not be seen: its weight becomes exactly 0. Two of them still fit float16."""


class Part(keras.layers.Layer):
    """A layer whose weights exist as soon as it does, with values from a NumPy generator.

    Nothing has to be called to build it, and TensorFlow draws nothing to fill it.
    """

    def __init__(self, name: str, dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.built = True

    def matrix(self, name: str, rng: np.random.Generator, rows: int, columns: int, limit: float | None = None) -> Any:
        """Make weights ``[rows, columns]``, uniform up to ``limit``, by default that of Glorot and Bengio (2010)."""
        limit = np.sqrt(6 / (rows + columns)) if limit is None else limit
        return self._variable(name, rng.uniform(-limit, limit, (rows, columns)))

    def bias(self, name: str, size: int) -> Any:
        """Make zeros ``[size]``."""
        return self._variable(name, np.zeros(size))

    def _variable(self, name: str, values: npt.NDArray[np.float64]) -> Any:
        def initial(shape: Any, dtype: Any) -> tf.Tensor:
            return tf.constant(values, dtype, shape)

        weight = self.add_weight(name=name, shape=values.shape, initializer=initial)
        setattr(self, name, weight)
        return weight


def attached(owner: keras.layers.Layer, parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts, each an attribute of its owner under its own name.

    TensorFlow's checkpoints leave out, without a word, what a Keras layer holds in a list or tuple alone.
    """
    parts = tuple(parts)
    for part in parts:
        setattr(owner, part.name, part)
    return parts


class FeedForward(Part):
    """Two products with a rectifier between them, on normalised tokens, added to the tokens ``[n, d]``.

    The rectifier of Vaswani et al. (2017): a GELU took a tenth of a compiled step on two cores.
    """

    def __init__(self, rng: np.random.Generator, d_model: int, units: int, dtype: Any = None) -> None:
        super().__init__("feed_forward", dtype)
        self.expand = self.matrix("expand", rng, d_model, units)
        self.contract = self.matrix("contract", rng, units, d_model)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return tokens ``[n, d]``."""
        return x + tf.matmul(tf.nn.relu(tf.matmul(normalise(x), self.expand)), self.contract)


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


class Masks(NamedTuple):
    """Masks that are added to the scores, by the asking part; 0 where a key may be seen."""

    prefix: tf.Tensor
    """From prefix to prefix, ``[prefix, prefix]``."""
    speech: tf.Tensor
    """From speech to all, ``[rows, steps, prefix + steps]``."""
    text_only: tf.Tensor
    """From speech to the prefix in a guided head, ``[rows, 1, prefix]``."""


class Embedding(Part):
    """Text ids to vectors, as a product with their one-hot codes: its gradient is a product too, not a scatter.

    They begin as large as the positions that are added to them (root mean square 1 / sqrt(2)): beside smaller ones a
    letter is hardly seen, and a model reads later and worse.
    """

    def __init__(self, rng: np.random.Generator, vocabulary: int, d_model: int, dtype: Any = None) -> None:
        super().__init__("embedding", dtype)
        self.vocabulary = vocabulary
        self.table = self.matrix("table", rng, vocabulary, d_model, limit=math.sqrt(3 / 2))

    def call(self, text: tf.Tensor) -> tf.Tensor:
        """Return ``[n, d]`` for ids of any shape with n elements."""
        return tf.matmul(tf.one_hot(tf.reshape(text, [-1]), self.vocabulary, dtype=self.compute_dtype), self.table)


class Prenet(Part):
    """Groups of frames to tokens, through a bottleneck with dropout (Wang et al., "Tacotron", 2017)."""

    def __init__(self, settings: ModelSettings, n_mels: int, rng: np.random.Generator, dtype: Any = None) -> None:
        super().__init__("prenet", dtype)
        self.rate, self.units = settings.prenet_dropout, settings.prenet
        inputs = [settings.frames_per_step * n_mels, *self.units]
        self.hidden = tuple(
            self.matrix(f"hidden_{number}", rng, rows, columns)
            for number, (rows, columns) in enumerate(zip(inputs, self.units, strict=False))
        )
        self.biases = tuple(self.bias(f"bias_{number}", units) for number, units in enumerate(self.units))
        self.out = self.matrix("out", rng, self.units[-1], settings.d_model)

    def call(self, x: tf.Tensor, dropout_bits: tf.Tensor | None = None) -> tf.Tensor:
        """Return tokens ``[n, d]`` of groups ``[n, frames_per_step * n_mels]``."""
        kept = self._kept(dropout_bits) if dropout_bits is not None and self.rate else None
        for number, (hidden, bias) in enumerate(zip(self.hidden, self.biases, strict=True)):
            x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, hidden), bias))
            if kept is not None:
                x *= kept[number]
        return tf.matmul(x, self.out)

    def _kept(self, bits: tf.Tensor) -> list[tf.Tensor]:
        """Return factors ``[n, units]`` for each layer: 0, or what keeps the mean."""
        keep = tf.constant(1 / (1 - self.rate), self.compute_dtype)
        kept = tf.where(bits >= tf.constant(int(self.rate * 2**32), tf.uint32), keep, tf.zeros_like(keep))
        return list(tf.split(kept, self.units, axis=1))


class DecoderBlock(Part):
    """Pre-LN block over prefix and speech; the prefix never sees the speech.

    In a *guided* block some heads lead from speech to text alone: what they weigh can be pulled towards the diagonal.
    The *last* block answers for the speech only, since nothing reads its prefix.
    """

    def __init__(
        self,
        settings: ModelSettings,
        rng: np.random.Generator,
        name: str,
        *,
        guided: bool,
        last: bool,
        dtype: Any = None,
    ) -> None:
        super().__init__(name, dtype)
        self.heads, self.last = settings.heads, last
        self.guided_heads = settings.guided_heads if guided else 0
        self.qkv = self.matrix("qkv", rng, settings.d_model, 3 * settings.d_model)
        self.out = self.matrix("out", rng, settings.d_model, settings.d_model)
        self.feed_forward = FeedForward(rng, settings.d_model, settings.feed_forward, dtype)

    def call(
        self, x: tf.Tensor, masks: Masks, rows: Size, prefix: Size, steps: Size
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return the tokens, and the guided heads' weights or None.

        Args:
            x: tokens ``[rows * (prefix + steps), d]``; the last block returns ``[rows * steps, d]``.
            masks: see :class:`Masks`.
            rows: clips of the batch.
            prefix: latents and characters.
            steps: groups of mel frames.
        """
        d, parts = x.shape[-1], [prefix, steps]
        q, k, v = tf.split(split_heads(tf.matmul(normalise(x), self.qkv), rows, 3 * self.heads), 3)
        (q_prefix, q_speech), (k_prefix, k_speech), (v_prefix, v_speech) = (
            tf.split(part, parts, 2) for part in (q, k, v)
        )
        weights = None
        if guided := self.guided_heads:
            halves = [guided, self.heads - guided]
            (q_guided, q_free), (k_guided, k_free), (v_guided, v_free) = (
                tf.split(part, halves) for part in (q_speech, k_prefix, v_prefix)
            )
            read, weights = attend_and_show(q_guided, k_guided, v_guided, masks.text_only)
            k_free = tf.concat([k_free, k_speech[guided:]], 2)
            v_free = tf.concat([v_free, v_speech[guided:]], 2)
            read = tf.concat([read, attend(q_free, k_free, v_free, masks.speech)], 0)
        else:
            read = attend(q_speech, k, v, masks.speech)
        if self.last:
            x = tf.reshape(tf.split(tf.reshape(x, [rows, prefix + steps, d]), parts, 1)[1], [rows * steps, d])
        else:
            read = tf.concat([attend(q_prefix, k_prefix, v_prefix, masks.prefix), read], 2)
        return self.feed_forward(x + tf.matmul(merge_heads(read), self.out)), weights


class Heads(Part):
    """The decoder's tokens to mel frames and stop logits."""

    def __init__(self, settings: ModelSettings, n_mels: int, rng: np.random.Generator, dtype: Any = None) -> None:
        super().__init__("heads", dtype)
        width = settings.frames_per_step * n_mels
        self.mel = self.matrix("mel", rng, settings.d_model, width)
        self.mel_bias = self.bias("mel_bias", width)
        self.stop = self.matrix("stop", rng, settings.d_model, 1)
        self.stop_bias = self.bias("stop_bias", 1)

    def call(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return scaled mels ``[n, frames_per_step * n_mels]`` and stop logits ``[n, 1]`` of tokens ``[n, d]``."""
        x = normalise(x)
        mel = tf.nn.bias_add(tf.matmul(x, self.mel), self.mel_bias)
        stop = tf.nn.bias_add(tf.matmul(x, self.stop), self.stop_bias)
        return tf.cast(mel, self.variable_dtype), tf.cast(stop, self.variable_dtype)


def make_masks(text_length: tf.Tensor, latents: int, characters: Size, steps: Size, dtype: tf.DType) -> Masks:
    """Return what may see what: latents are seen by all, else only what came before, and no padding of the text."""
    seen, masked = tf.constant(0, dtype), tf.constant(MASKED, dtype)
    rows = size(text_length, 0)
    prefix = latents + characters
    place = tf.range(prefix + steps)
    causal = tf.where((place[None, :] <= place[:, None]) | (place < latents), seen, masked)
    text = tf.where(tf.sequence_mask(text_length, characters), seen, masked)
    keys = tf.concat([tf.zeros([rows, latents], dtype), text, tf.zeros([rows, steps], dtype)], 1)
    return Masks(
        prefix=causal[:prefix, :prefix],
        speech=causal[prefix:] + keys[:, None, :],
        text_only=tf.concat([tf.fill([rows, latents], masked), text], 1)[:, None, :],
    )
