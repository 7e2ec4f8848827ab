"""Attention with the heads first, and its gradient written out: the largest part of a training step.

Heads come first, ``[heads, rows, positions, size]``, so that a set of heads is a slice of memory, and a bias
``[rows, n, m]`` is broadcast over them as a whole. Only :func:`attend_and_show` keeps its weights for a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import tensorflow as tf

from xttsbench.xtts.model.layers import Size

MASKED: Final = -3e4
"""Added to the score of a key that must not be seen: its weight becomes exactly 0. Two of them still fit float16."""

Gradient = Callable[..., tuple[tf.Tensor | None, ...]]


@tf.custom_gradient
def attend(queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
    """Scaled dot-product attention (Vaswani et al., 2017).

    Args:
        queries: ``[heads, rows, n, size]``.
        keys: ``[heads, rows, m, size]``.
        values: as ``keys``.
        bias: 0 or :data:`MASKED`, added to the scores, of a shape that broadcasts to ``[heads, rows, n, m]``.

    Returns:
        What the queries read, ``[heads, rows, n, size]``.
    """
    scaled, weights, read = _attention(queries, keys, values, bias)

    def gradient(d_read: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        by_weight = tf.matmul(d_read, values, transpose_b=True)
        # The weighted mean of by_weight over the keys, but from far smaller tensors (Dao et al., 2022, section 3.1).
        d_scores = weights * (by_weight - tf.reduce_sum(d_read * read, -1, keepdims=True))
        return *_input_gradients(d_scores, d_read, scaled, weights, keys), None

    return read, gradient


@tf.custom_gradient
def attend_and_show(
    queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], Gradient]:
    """Like :func:`attend`, and the weights too, ``[heads, rows, n, m]``, for a loss to read."""
    scaled, weights, read = _attention(queries, keys, values, bias)

    def gradient(d_read: tf.Tensor, d_weights: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        by_weight = tf.matmul(d_read, values, transpose_b=True) + d_weights
        d_scores = weights * (by_weight - tf.reduce_sum(by_weight * weights, -1, keepdims=True))
        return *_input_gradients(d_scores, d_read, scaled, weights, keys), None

    return (read, weights), gradient


def split_heads(x: tf.Tensor, rows: Size, heads: int) -> tf.Tensor:
    """Return tokens ``[rows * n, heads * size]`` as ``[heads, rows, n, size]``."""
    return tf.transpose(tf.reshape(x, [rows, -1, heads, x.shape[-1] // heads]), [2, 0, 1, 3])


def merge_heads(x: tf.Tensor) -> tf.Tensor:
    """Return ``[heads, rows, n, size]`` as tokens ``[rows * n, heads * size]``."""
    return tf.reshape(tf.transpose(x, [1, 2, 0, 3]), [-1, x.shape[0] * x.shape[-1]])


def _attention(
    queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    scaled = queries * queries.shape[-1] ** -0.5
    weights = tf.nn.softmax(tf.matmul(scaled, keys, transpose_b=True) + bias)
    return scaled, weights, tf.matmul(weights, values)


def _input_gradients(
    d_scores: tf.Tensor, d_read: tf.Tensor, scaled: tf.Tensor, weights: tf.Tensor, keys: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the gradients of queries, keys and values."""
    return (
        tf.matmul(d_scores, keys) * keys.shape[-1] ** -0.5,
        tf.matmul(d_scores, scaled, transpose_a=True),
        tf.matmul(weights, d_read, transpose_a=True),
    )
