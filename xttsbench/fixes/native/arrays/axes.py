"""NumPy's functions along axes as ops of TensorFlow: sums, spreads, orders, windows, what lies between values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.lib import stride_tricks

from xttsbench.fixes.native.arrays import Array, Symbolic, holds_traced, lifted, only
from xttsbench.fixes.native.arrays.shaping import alike, along, axes_of, dimensions, flat, static


def result_of(function: Any, array: Array, **named: Any) -> np.dtype[Any]:
    """The dtype that a function gives for an array of this dtype and rank."""
    return np.dtype(function(np.ones((1,) * array.ndim, array.dtype), **named).dtype)


def _reduction(function: Any, operation: Any) -> Callable[..., Array]:
    def reduced(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
        array = lifted(a)
        named = {} if dtype is None else {"dtype": dtype}
        wanted = result_of(function, array, **named)
        inside = np.dtype(np.float32) if wanted == np.float16 and function in (np.mean, np.sum) else wanted
        given = array.tensor if function in (np.any, np.all) else tf.cast(array.tensor, inside)
        return Array.of(tf.cast(operation(given, axes_of(axis, array.ndim), keepdims), wanted))

    return reduced


def _truth(operation: Any) -> Any:
    return lambda x, axes, keep: operation(tf.cast(x, tf.bool), axes, keep)


def _spread(function: Any) -> Callable[..., Array]:
    """``var`` and ``std``."""

    def spread(a: Any, axis: Any = None, *, ddof: Any = 0, keepdims: bool = False) -> Array:
        array = lifted(a)
        only(array.dtype.kind != "c", "takes the spread of complex numbers")
        wanted = result_of(function, array)
        values = tf.cast(array.tensor, np.float32 if wanted == np.float16 else wanted)
        axes = axes_of(axis, array.ndim)
        found = tf.math.reduce_variance(values, axes, keepdims)
        if ddof:
            count = tf.cast(tf.reduce_prod(tf.gather(tf.shape(values), axes)), values.dtype)
            found *= count / (count - tf.cast(ddof, values.dtype))
        return Array.of(tf.cast(tf.sqrt(found) if function is np.std else found, wanted))

    return spread


def _place_of(operation: Any) -> Callable[..., Array]:
    def found(a: Any, axis: Any = None) -> Array:
        return Array.of(operation(*along(a, axis), tf.int64))

    return found


def _cumulative(function: Any, operation: Any) -> Callable[..., Array]:
    def cumulative(a: Any, axis: Any = None) -> Array:
        values, at = along(a, axis)
        return Array(operation(tf.cast(values, result_of(function, lifted(a))), at))

    return cumulative


def _argsort(a: Any, axis: Any = -1, *, kind: Any = None, stable: Any = None) -> Array:
    only(kind == "stable" or bool(stable), "sorts in an order that is open among equal values")
    return Array(tf.cast(tf.argsort(*along(a, axis), stable=True), tf.int64))


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    array = lifted(x)
    axes = axes_of(axis, array.ndim)
    only(ord is None or (ord == 2 and len(axes) == 1), "takes a norm other than the Euclidean one")
    values = tf.cast(array.tensor, result_of(np.linalg.norm, Array(tf.zeros([1], array.dtype))))
    return Array.of(tf.sqrt(tf.reduce_sum(tf.square(values), axes, keepdims)))


def _median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    only(not keepdims, "keeps the axis of a median")
    wanted = result_of(np.median, lifted(a))
    values, at = along(a, axis)
    values = tf.sort(tf.cast(values, wanted), axis=at)
    length = tf.shape(values)[at]
    low, high = (tf.gather(values, (length - odd) // 2, axis=at) for odd in (1, 0))
    return Array.of((low + high) / tf.constant(2, wanted))


def places(a: Any) -> tuple[Array, ...]:
    """``numpy.nonzero``, and ``numpy.where`` of a condition alone."""
    array = lifted(a)
    only(array.ndim > 0, "asks for the places of a single number")
    found = tf.where(tf.cast(array.tensor, tf.bool))
    return tuple(Array(found[:, axis]) for axis in range(array.ndim))


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Array:
    wanted = lifted(x)
    at, known, values = (tf.cast(tf.reshape(lifted(one).tensor, [-1]), tf.float64) for one in (x, xp, fp))
    last = tf.shape(known, tf.int64)[0] - 1
    place = tf.maximum(tf.searchsorted(known, at, "right", tf.int64) - 1, 0)
    after = tf.minimum(place + 1, last)
    low, high = tf.gather(values, place), tf.gather(values, after)
    begin = tf.gather(known, place)
    between = (high - low) / (tf.gather(known, after) - begin) * (at - begin) + low
    first, end = (values[0] if left is None else lifted(left).tensor), (values[-1] if right is None else right)
    found = tf.where(at >= known[-1], tf.where(at > known[-1], tf.cast(end, tf.float64), values[-1]), between)
    found = tf.where(at < known[0], tf.cast(first, tf.float64), found)
    return Array.of(tf.reshape(found, tf.shape(wanted.tensor)))


def _convolve(a: Any, v: Any, mode: str = "full") -> Array:
    only(not holds_traced(v) and holds_traced(a), "convolves with what is known only when it runs")
    array, kernel = lifted(a), np.atleast_1d(np.asarray(v))
    only(array.ndim == 1 and kernel.ndim == 1 and kernel.size > 0, "convolves what is no row")
    dtype = np.result_type(array.dtype, kernel.dtype)
    only(dtype.kind == "f", "convolves whole numbers")
    row = tf.pad(tf.cast(array.tensor, dtype), [[kernel.size - 1, kernel.size - 1]])
    filters = tf.constant(kernel[::-1].astype(dtype))[:, None, None]
    whole = tf.nn.conv1d(row[None, :, None], filters, 1, "VALID")[0, :, 0]
    if mode == "full":
        return Array(whole)
    length, size = tf.shape(array.tensor, tf.int64)[0], tf.constant(kernel.size, tf.int64)
    least, most = tf.minimum(length, size), tf.maximum(length, size)
    only(mode in ("same", "valid"), f"convolves in the mode {mode!r}")
    start, count = ((least - 1) // 2, most) if mode == "same" else (least - 1, most - least + 1)
    return Array(whole[start : start + count])


def _searched(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Array:
    only(sorter is None, "searches in what another array sorts")
    known, values = lifted(a), lifted(v)
    dtype = np.result_type(known.dtype, values.dtype)
    ordered, flat_values = tf.cast(known.tensor, dtype), tf.reshape(tf.cast(values.tensor, dtype), [-1])
    return Array.of(tf.reshape(tf.searchsorted(ordered, flat_values, side, tf.int64), tf.shape(values.tensor)))


def _digitize(x: Any, bins: Any, right: bool = False) -> Array:
    only(not holds_traced(bins) and bool(np.all(np.diff(bins) > 0)), "sorts into what is no row of growing numbers")
    return _searched(np.asarray(bins), x, "left" if right else "right")


def _share(by: float) -> Callable[..., Array]:
    """``numpy.percentile`` (by 100) or ``numpy.quantile`` (by 1) of all values."""

    def quantile(a: Any, q: Any, axis: Any = None) -> Array:
        array = lifted(a)
        whole = axis is None or (array.ndim == 1 and axis in (0, -1))
        only(whole and not holds_traced(q) and np.ndim(q) == 0, "asks for shares along an axis, or for several")
        example = np.percentile(np.ones(2, array.dtype), float(q))
        row = tf.sort(tf.cast(flat(array).tensor, tf.float64))
        place = tf.cast(tf.shape(row)[0] - 1, tf.float64) * (float(q) / by)
        below = tf.floor(place)
        low, high = (tf.gather(row, tf.cast(one, tf.int64)) for one in (below, tf.math.ceil(place)))
        return Array(tf.cast(low + (high - low) * (place - below), example.dtype), scalar=True)

    return quantile


def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    array = lifted(x)
    if array.dtype.kind != "f":
        return Array(array.tensor, scalar=array.scalar)
    ends = np.finfo(array.dtype)
    found = array.tensor
    for is_such, value in (
        (tf.math.is_nan(found), nan),
        (tf.equal(found, np.inf), ends.max if posinf is None else posinf),
        (tf.equal(found, -np.inf), ends.min if neginf is None else neginf),
    ):
        found = tf.where(is_such, tf.constant(value, array.dtype), found)
    return Array(found, scalar=array.scalar)


def _linspace(start: Any, stop: Any, num: Any = 50, *, endpoint: bool = True, dtype: Any = None) -> Array:
    first, last = (tf.cast(lifted(one).tensor, tf.float64) for one in (start, stop))
    only(not first.shape.rank and not last.shape.rank, "makes rows between arrays")
    count = tf.cast(lifted(num).tensor, tf.int64)
    parts = tf.cast(tf.maximum(count - int(endpoint), 1), tf.float64)
    row = tf.cast(tf.range(count), tf.float64) * ((last - first) / parts) + first
    if endpoint:
        row = tf.where((tf.range(count) == count - 1) & (count > 1), last, row)
    wanted = np.dtype(dtype) if dtype is not None else np.dtype(np.float64)
    return Array(tf.cast(tf.floor(row) if wanted.kind in "iu" else row, wanted))


class _Windows(Symbolic):
    """All windows of a row, of which mostly one in so many is taken."""

    __slots__ = ("row", "size")
    what = "windows"

    def __init__(self, row: Array, size: int) -> None:
        self.row, self.size = row, size

    def lifted(self) -> Array:
        """One for each place."""
        return self[::1]

    def __getitem__(self, key: Any) -> Array:
        if isinstance(key, slice) and key.start is None and key.stop is None and isinstance(key.step, int):
            only(key.step > 0, "takes windows from the end")
            return Array(tf.signal.frame(self.row.tensor, self.size, key.step), view=self.row)
        return self.lifted()[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(self.lifted(), name)


def _windows(x: Any, window_shape: Any, axis: Any = None) -> _Windows:
    size = window_shape[0] if isinstance(window_shape, tuple | list) and len(window_shape) == 1 else window_shape
    row = lifted(x)
    only(isinstance(size, int) and row.ndim == 1, "takes windows of more than a row, or of a length not known")
    return _Windows(row, size)


def _strided(x: Any, shape: Any = None, strides: Any = None, **_: Any) -> Array:
    row = lifted(x)
    only(row.ndim == 1 and shape is not None and strides is not None, "takes an array apart by strides")
    sizes, width = dimensions(shape), row.dtype.itemsize
    at: Any = tf.constant(0, tf.int64)
    for size, step in zip(sizes, strides, strict=True):
        by = lifted(step)
        at = at[..., None] + tf.range(tf.cast(size, tf.int64)) * (tf.cast(by.tensor, tf.int64) // width)
    return Array(tf.gather(row.tensor, at), view=row)


def _columns(arrays: Sequence[Any]) -> Array:
    return Array(tf.concat([one[:, None] if one.shape.rank == 1 else one for one in alike(arrays)], 1))


def _broadcast(array: Any, shape: Any) -> Array:
    return Array(tf.broadcast_to(lifted(array).tensor, dimensions(shape)), view=lifted(array))


_MOST, _LEAST = _reduction(np.max, tf.reduce_max), _reduction(np.min, tf.reduce_min)
FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.sum: _reduction(np.sum, tf.reduce_sum),
    np.mean: _reduction(np.mean, tf.reduce_mean),
    np.max: _MOST,
    np.min: _LEAST,
    np.ptp: lambda a, axis=None: _MOST(a, axis) - _LEAST(a, axis),
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
    np.diff: lambda a, n=1, axis=-1: Array(tf.experimental.numpy.diff(lifted(a).tensor, static(n), static(axis))),
    np.sort: lambda a, axis=-1: Array(tf.sort(*along(a, axis))),
    np.argsort: _argsort,
    np.linalg.norm: _norm,
    np.nonzero: places,
    np.flatnonzero: lambda a: places(flat(a))[0],
    np.count_nonzero: lambda a: Array(tf.math.count_nonzero(lifted(a).tensor), int),
    np.interp: _interp,
    np.convolve: _convolve,
    np.searchsorted: _searched,
    np.digitize: _digitize,
    np.percentile: _share(100.0),
    np.quantile: _share(1.0),
    np.nan_to_num: _nan_to_num,
    np.linspace: _linspace,
    np.column_stack: _columns,
    np.broadcast_to: _broadcast,
    stride_tricks.sliding_window_view: _windows,
    stride_tricks.as_strided: _strided,
}
"""Function of NumPy's -> what does the same here."""
