"""NumPy's functions along axes as ops of TensorFlow: sums, spreads, orders, windows, what lies between values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.lib import stride_tricks

from xttsbench.fixes.native.arrays import Array, CannotTraceError, Symbolic, holds_traced, lifted, only, ufunc
from xttsbench.fixes.native.arrays.shaping import axes_of, dimensions, flat, static


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
    wanted = np.result_type(array.dtype, kernel.dtype)
    inside = wanted if wanted.kind == "f" else np.dtype(np.float64)
    only(wanted.kind == "f", "convolves whole numbers")
    row = tf.pad(tf.cast(array.tensor, inside), [[kernel.size - 1, kernel.size - 1]])
    filters = tf.constant(kernel[::-1].astype(inside))[:, None, None]
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
    found = tf.searchsorted(ordered, flat_values, side, tf.int64)
    return Array.of(tf.reshape(found, tf.shape(values.tensor)))


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
    given = [lifted(one) for one in arrays]
    dtype = np.result_type(*(one.dtype for one in given))
    return Array(tf.concat([tf.cast(one.tensor[:, None] if one.ndim == 1 else one.tensor, dtype) for one in given], 1))


def _broadcast(array: Any, shape: Any) -> Array:
    return Array(tf.broadcast_to(lifted(array).tensor, dimensions(shape)), view=lifted(array))


def _range_of(a: Any, axis: Any = None) -> Array:
    array = lifted(a)
    at = None if axis is None else static(axis)
    most, least = (function(array.tensor, at) for function in (tf.reduce_max, tf.reduce_min))
    return Array.of(most - least)


def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Array:
    array = lifted(a)
    value = tf.cast(lifted(fill_value).tensor, array.dtype if dtype is None else np.dtype(dtype))
    return Array(tf.fill(tf.shape(array.tensor), value))


def _count(a: Any) -> Array:
    found = tf.math.count_nonzero(lifted(a).tensor)
    return Array(found, int)


def _flat_places(a: Any) -> Array:
    return places(flat(a))[0]


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
    np.nonzero: places,
    np.flatnonzero: _flat_places,
    np.count_nonzero: _count,
    np.interp: _interp,
    np.convolve: _convolve,
    np.searchsorted: _searched,
    np.digitize: _digitize,
    np.percentile: _share(100.0),
    np.quantile: _share(1.0),
    np.nan_to_num: _nan_to_num,
    np.linspace: _linspace,
    np.ptp: _range_of,
    np.full_like: _full_like,
    np.column_stack: _columns,
    np.broadcast_to: _broadcast,
    stride_tricks.sliding_window_view: _windows,
    stride_tricks.as_strided: _strided,
}
"""Function of NumPy's -> what does the same here."""
