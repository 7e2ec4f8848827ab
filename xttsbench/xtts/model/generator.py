"""Generation of speech, a step at a time, with what attention has computed for the steps before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.xtts.model.attention import (
    attend,
    attend_and_show,
    merge_heads,
    normalise,
    positions,
    size,
    split_heads,
)
from xttsbench.xtts.model.parts import DecoderBlock, Masks, make_masks
from xttsbench.xtts.model.speech_model import Floats, SpeechModel, unscale_mel

LONGEST_CHARACTER_S: Final = 0.25
"""Speech that is given up on: no text takes so long for each of its characters."""
LONGEST_PAUSE_S: Final = 1.0
"""And on top of that, for short texts."""

Cache = tuple[tf.Tensor, ...]
"""Keys and values so far of each block, ``[heads, rows, n, size]``."""


class Generated(NamedTuple):
    """Generated speech, row by row."""

    mels: list[Floats]
    """Log-mels ``[frames, n_mels]``; the frames are a multiple of ``frames_per_step``."""
    stopped: npt.NDArray[np.bool_]
    """``[rows]``: whether the model said that speech ends; the others were cut off at :func:`longest`."""
    attention: list[Floats]
    """Attention of the last block's guided heads, ``[steps, characters]``; empty where there are none."""


class Generator:
    """Speaks texts with the voice of references, a batch at a time; one trace for all sizes.

    Nothing is dropped in the prenet and nothing is drawn: the same input gives the same speech, and one with fewer
    errors than where the prenet drops as in training.
    """

    def __init__(self, model: SpeechModel, step_s: float) -> None:
        """Prepare a model.

        The duration ``step_s`` is that of ``frames_per_step`` frames.
        """
        self.model, self.step_s = model, step_s
        self._run = tf.function(
            self._generate,
            input_signature=[
                tf.TensorSpec([None, None], tf.int32),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None, None, model.n_mels], tf.float32),
                tf.TensorSpec([None], tf.int32),
            ],
            autograph=False,
        )

    def __call__(self, texts: Sequence[npt.NDArray[np.int32]], references: Floats) -> Generated:
        """Speak.

        No text is empty; the references are log-mels ``[rows, frames, n_mels]``, as the batches have them.
        """
        lengths = np.asarray([len(text) for text in texts], np.int32)
        padded = np.zeros((len(texts), lengths.max()), np.int32)
        for row, text in zip(padded, texts, strict=True):
            row[: len(text)] = text
        mels, steps, stopped, attention = (
            value.numpy() for value in self._run(padded, lengths, references, longest(lengths, self.step_s))
        )
        group, latents = self.model.settings.frames_per_step, self.model.settings.latents
        return Generated(
            [mel[: count * group] for mel, count in zip(mels, steps, strict=True)],
            stopped,
            [
                row[:count, latents : latents + length]
                for row, count, length in zip(attention, steps, lengths, strict=True)
            ]
            if self.model.settings.guided_layers
            else [],
        )

    @tf.autograph.experimental.do_not_convert
    def _generate(
        self, text: tf.Tensor, text_length: tf.Tensor, reference: tf.Tensor, limits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return log-mels ``[rows, frames, n_mels]``, steps and whether they ended ``[rows]``, and the attention."""
        settings, rows = self.model.settings, size(text, 0)
        most = tf.reduce_max(limits)
        width = settings.frames_per_step * self.model.n_mels
        places = positions(most, settings.d_model, self.model.compute_dtype)
        cache, seen, text_only = prefix(self.model, text, text_length, self.model.condition(reference))

        def body(
            number: tf.Tensor,
            before: tf.Tensor,
            steps: tf.Tensor,
            stopped: tf.Tensor,
            made: tf.TensorArray,
            looked: tf.TensorArray,
            *cache: tf.Tensor,
        ) -> tuple[Any, ...]:
            token = self.model.prenet(tf.cast(before, self.model.compute_dtype)) + places[number]
            token, weights, cache = advance(self.model.blocks, token, cache, seen, text_only)
            frames, stop_logits = self.model.heads(token)
            speaking = ~stopped & (number < limits)
            steps += tf.cast(speaking, tf.int32)
            stopped |= speaking & (stop_logits[:, 0] > 0)
            made, looked = made.write(number, frames), looked.write(number, tf.cast(weights, tf.float32))
            return number + 1, frames, steps, stopped, made, looked, *cache

        def goes_on(number: tf.Tensor, before: tf.Tensor, steps: tf.Tensor, stopped: tf.Tensor, *_: Any) -> tf.Tensor:
            return tf.reduce_any(~stopped & (number < limits))

        arrays = (
            tf.TensorArray(tf.float32, most, element_shape=[None, width]),
            tf.TensorArray(tf.float32, most, element_shape=[None, None]),
        )
        start = (
            tf.constant(0),
            tf.zeros([rows, width]),
            tf.zeros([rows], tf.int32),
            tf.zeros([rows], tf.bool),
            *arrays,
            *cache,
        )
        grows = [tf.TensorShape([part.shape[0], None, None, part.shape[3]]) for part in cache]
        same = [*(value.shape for value in start[:4]), *(tf.TensorShape(None) for _ in arrays)]
        ended = tf.while_loop(goes_on, body, start, shape_invariants=(*same, *grows), maximum_iterations=most)
        last, _, steps, stopped, made, looked = ended[:6]
        mels = tf.transpose(made.gather(tf.range(last)), [1, 0, 2])
        mels = tf.reshape(mels, [rows, last * settings.frames_per_step, self.model.n_mels])
        attention = tf.transpose(looked.gather(tf.range(last)), [1, 0, 2])
        return unscale_mel(mels, settings), steps, stopped, attention


def longest(characters: npt.NDArray[np.int32], step_s: float) -> npt.NDArray[np.int32]:
    """Return after how many steps texts of so many characters are cut off, ``[rows]``."""
    return np.ceil((characters * LONGEST_CHARACTER_S + LONGEST_PAUSE_S) / step_s).astype(np.int32)


def prefix(
    model: SpeechModel, text: tf.Tensor, text_length: tf.Tensor, latents: tf.Tensor
) -> tuple[Cache, tf.Tensor, tf.Tensor]:
    """Return the blocks' keys and values of latents and text, and what masks them for all heads and for guided ones.

    The text's ids are ``[rows, characters]``, the latents ``[rows, latents, d]``.
    """
    settings, dtype = model.settings, tf.as_dtype(model.compute_dtype)
    rows, characters = size(text, 0), size(text, 1)
    embedded = tf.reshape(model.embedding(text), [rows, characters, settings.d_model])
    x = tf.concat([latents, embedded + positions(characters, settings.d_model, dtype)], 1)
    x = tf.reshape(x, [-1, settings.d_model])
    masks: Masks = make_masks(text_length, settings.latents, characters, 1, dtype)
    cache: list[tf.Tensor] = []
    for block in model.blocks:
        q, k, v = _projected(block, x, rows)
        cache += [k, v]
        if not block.last:
            x = _closed(block, x, attend(q, k, v, masks.prefix))
    return tuple(cache), masks.speech[..., :-1], masks.text_only


def advance(
    blocks: Sequence[DecoderBlock], token: tf.Tensor, cache: Cache, seen: tf.Tensor, text_only: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, Cache]:
    """Return one step's tokens ``[rows, d]`` behind the blocks, and the cache with the step in it.

    Between them stand the weights of the last block's guided heads on the prefix, their mean, ``[rows, prefix]``; of no
    position where there are no such heads. The tokens are of the frames before; ``seen`` and ``text_only`` mask the
    prefix, ``[rows, 1, prefix]``, for all heads and for guided ones.
    """
    rows = size(token, 0)
    grown: list[tf.Tensor] = []
    weights = tf.zeros([rows, 0])
    for block, earlier_keys, earlier_values in zip(blocks, cache[::2], cache[1::2], strict=True):
        q, k, v = _projected(block, token, rows)
        keys, values = tf.concat([earlier_keys, k], 2), tf.concat([earlier_values, v], 2)
        grown += [keys, values]
        width, guided = size(seen, 2), block.guided_heads
        bias = tf.pad(seen, [[0, 0], [0, 0], [0, size(keys, 2) - width]])  # all steps so far are seen
        read = attend(q[guided:], keys[guided:], values[guided:], bias)
        if guided:
            aimed, shown = attend_and_show(q[:guided], keys[:guided, :, :width], values[:guided, :, :width], text_only)
            read = tf.concat([aimed, read], 0)
            weights = tf.reduce_mean(shown, 0)[:, 0]
        token = _closed(block, token, read)
    return token, weights, tuple(grown)


def _projected(block: DecoderBlock, x: tf.Tensor, rows: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return queries, keys and values ``[heads, rows, n, size]`` of tokens ``[rows * n, d]``."""
    projected = tf.matmul(normalise(x), tf.cast(block.qkv, x.dtype))
    q, k, v = tf.split(split_heads(projected, rows, 3 * block.heads), 3)
    return q, k, v


def _closed(block: DecoderBlock, x: tf.Tensor, read: tf.Tensor) -> tf.Tensor:
    """Return a block's tokens ``[rows * n, d]`` after what its heads read, ``[heads, rows, n, size]``."""
    # A single guided head broadcasts, so that the trace no longer knows the number of heads.
    read = tf.ensure_shape(read, [block.heads, None, None, x.shape[-1] // block.heads])
    return block.feed_forward(x + tf.matmul(merge_heads(read), tf.cast(block.out, x.dtype)))
