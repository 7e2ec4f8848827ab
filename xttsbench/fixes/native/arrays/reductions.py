"""NumPy's functions along axes as ops of TensorFlow: sums, means, spreads, places of extremes, orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.arrays.array import Array, CannotTraceError, lifted, only
from xttsbench.fixes.native.arrays.ufuncs import ufunc


def result_of(function: Any, array: Array, **named: Any) -> np.dtype[Any]:
    """The dtype that a function gives for an array of this dtype and rank."""
    return np.dtype(function(np.ones((1,) * array.ndim, array.dtype), **named).dtype)


def axes_of(axis: Any, rank: int) -> list[int]:
    """Axes as numbers from 0; ``None`` is all of them."""
    if axis is None:
        return list(range(rank))
    given = axis if isinstance(axis, tuple | list) else [axis]
    return [int(one) % rank for one in map(static, given)]


def static(value: Any) -> int:
    """A number of an axis, or of axes: what the values of arrays say is refused."""
    if isinstance(value, Array):
        raise CannotTraceError("takes the number of an axis from the values of an array")
    return int(value)


def _reduction(function: Any, operation: Any) -> Callable[..., Array]:
    def reduced(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
        array = lifted(a)
        named = {} if dtype is None else {"dtype": dtype}
        wanted = result_of(function, array, **named)
        inside = np.dtype(np.float32) if wanted == np.float16 and function in (np.mean, np.sum) else wanted
        given = array.tensor if function in (np.any, np.all) else tf.cast(array.tensor, inside)
        axes = axes_of(axis, array.ndim)
        result = tf.cast(operation(given, axes, keepdims), wanted)
        return Array.of(result)

    return reduced


def _truth(operation: Any) -> Any:
    return lambda x, axes, keep: operation(tf.cast(x, tf.bool), axes, keep)


def _spread(function: Any) -> Callable[..., Array]:
    """``var`` and ``std``."""

    def spread(a: Any, axis: Any = None, *, ddof: Any = 0, keepdims: bool = False) -> Array:
        array = lifted(a)
        if array.dtype.kind == "c":
            raise CannotTraceError("takes the spread of complex numbers")
        wanted = result_of(function, array)
        values = tf.cast(array.tensor, np.float32 if wanted == np.float16 else wanted)
        axes = axes_of(axis, array.ndim)
        square = tf.square(values - tf.reduce_mean(values, axes, True))
        if ddof:
            counts = tf.gather(tf.shape(values), axes)
            count = tf.cast(tf.reduce_prod(counts), values.dtype) - tf.cast(ddof, values.dtype)
            found = tf.reduce_sum(square, axes, keepdims) / count
        else:
            found = tf.reduce_mean(square, axes, keepdims)
        found = tf.cast(tf.sqrt(found) if function is np.std else found, wanted)
        return Array.of(found)

    return spread


def _place_of(operation: Any) -> Callable[..., Array]:
    def found(a: Any, axis: Any = None) -> Array:
        array = lifted(a)
        values = tf.reshape(array.tensor, [-1]) if axis is None else array.tensor
        result = operation(values, 0 if axis is None else axes_of(axis, array.ndim)[0], tf.int64)
        return Array.of(result)

    return found


def _cumulative(function: Any, operation: Any) -> Callable[..., Array]:
    def along(a: Any, axis: Any = None) -> Array:
        array = lifted(a)
        values = tf.cast(array.tensor, result_of(function, array))
        if axis is None:
            return Array(operation(tf.reshape(values, [-1])))
        return Array(operation(values, axes_of(axis, array.ndim)[0]))

    return along


def _diff(a: Any, n: int = 1, axis: int = -1) -> Array:
    array = lifted(a)
    at = axes_of(axis, array.ndim)[0]
    for _ in range(static(n)):
        before = (slice(None),) * at
        array = ufunc(np.subtract, array[(*before, slice(1, None))], array[(*before, slice(None, -1))])
    return array


def _sort(a: Any, axis: Any = -1) -> Array:
    array = lifted(a)
    return Array(tf.sort(array.tensor, axis=axes_of(axis, array.ndim)[0]))


def _argsort(a: Any, axis: Any = -1, *, kind: Any = None, stable: Any = None) -> Array:
    only(kind == "stable" or bool(stable), "sorts in an order that is open among equal values")
    array = lifted(a)
    return Array(tf.cast(tf.argsort(array.tensor, axis=axes_of(axis, array.ndim)[0], stable=True), tf.int64))


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    array = lifted(x)
    axes = axes_of(axis, array.ndim)
    only(ord is None or (ord == 2 and len(axes) == 1), "takes a norm other than the Euclidean one")
    values = tf.cast(array.tensor, result_of(np.linalg.norm, Array(tf.zeros([1], array.dtype))))
    result = tf.sqrt(tf.reduce_sum(tf.square(values), axes, keepdims))
    return Array.of(result)


def _median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    array = lifted(a)
    only(not keepdims, "keeps the axis of a median")
    wanted = result_of(np.median, array)
    values = tf.cast(array.tensor, wanted)
    values = tf.reshape(values, [-1]) if axis is None else values
    at = 0 if axis is None else axes_of(axis, array.ndim)[0]
    values = tf.sort(values, axis=at)
    length = tf.shape(values)[at]
    middle = [tf.gather(values, (length - odd) // 2, axis=at) for odd in (1, 0)]
    result = (middle[0] + middle[1]) / tf.constant(2, wanted)
    return Array.of(result)


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.sum: _reduction(np.sum, tf.reduce_sum),
    np.mean: _reduction(np.mean, tf.reduce_mean),
    np.max: _reduction(np.max, tf.reduce_max),
    np.min: _reduction(np.min, tf.reduce_min),
    np.prod: _reduction(np.prod, tf.reduce_prod),
    np.any: _reduction(np.any, _truth(tf.reduce_any)),
    np.all: _reduction(np.all, _truth(tf.reduce_all)),
    np.std: _spread(np.std),
    np.var: _spread(np.var),
    np.median: _median,
    np.argmax: _place_of(tf.argmax),
    np.argmin: _place_of(tf.argmin),
    np.cumsum: _cumulative(np.cumsum, tf.cumsum),
    np.cumprod: _cumulative(np.cumprod, tf.math.cumprod),
    np.diff: _diff,
    np.sort: _sort,
    np.argsort: _argsort,
    np.linalg.norm: _norm,
}
"""Function of NumPy's -> what does the same here."""
