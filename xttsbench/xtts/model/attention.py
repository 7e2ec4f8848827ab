"""Attention, normalisation and positions, with gradients of their own where TensorFlow's take more memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf

Size: TypeAlias = int | tf.Tensor
"""A size of a tensor: a number where the trace knows it, else a scalar tensor."""
_EPSILON: Final = 1e-5
Gradient = Callable[..., tuple[tf.Tensor | None, ...]]


def size(tensor: tf.Tensor, axis: int) -> Size:
    """Return the size of an axis, as a number where it is known."""
    static: int | None = tensor.shape[axis]
    return tf.shape(tensor)[axis] if static is None else static


@tf.custom_gradient
def normalise(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Return each row of ``[n, d]`` with mean 0 and variance 1 (layer normalisation, Ba et al., 2016).

    Means are products with a column of 1 / d: faster on a processor than a reduction, and nothing for XLA to compile.
    The gradient is written out, for automatic differentiation makes twice as many operations of it.
    """
    width = x.shape[-1]
    dtype = at_least_single(x.dtype)
    average = tf.constant(1 / width, dtype, [width, 1])
    centred = tf.cast(x, dtype)
    centred -= tf.matmul(centred, average)
    rate = tf.math.rsqrt(tf.matmul(centred * centred + _EPSILON, average))
    normal = centred * rate

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        g = tf.cast(upstream, dtype)
        return tf.cast(rate * (g - tf.matmul(g, average) - normal * tf.matmul(g * normal, average)), x.dtype)

    return tf.cast(normal, x.dtype), gradient


def positions(count: Size, d_model: int, dtype: Any = tf.float32) -> tf.Tensor:
    """Return sinusoidal positions ``[count, d_model]`` (Vaswani et al., 2017), sines before cosines."""
    rates = np.exp(-np.log(10_000.0) * np.arange(0, d_model, 2) / d_model)
    precise = at_least_single(tf.as_dtype(dtype))
    angles = tf.cast(tf.range(count), precise)[:, None] * tf.constant(rates, precise)
    return tf.cast(tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1), dtype)


def at_least_single(dtype: tf.DType) -> tf.DType:
    """Return the type to compute a mean, an angle or a loss in: sixteen bits are too few for it."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype


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
    return (
        tf.matmul(d_scores, keys) * keys.shape[-1] ** -0.5,
        tf.matmul(d_scores, scaled, transpose_a=True),
        tf.matmul(weights, d_read, transpose_a=True),
    )
