"""NumPy's functions that give arrays another shape, or join, pad and turn them, as ops of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.arrays import Array, Spread, Symbolic, lifted, only, result_dtype

tnp = tf.experimental.numpy


def axes_of(axis: Any, rank: int) -> list[int]:
    """Axes as numbers from 0; ``None`` is all of them."""
    if axis is None:
        return list(range(rank))
    given = axis if isinstance(axis, tuple | list) else [axis]
    return [int(one) % rank for one in map(static, given)]


def static(value: Any) -> int:
    """A number of an axis, or of axes: what the values of arrays say is refused."""
    only(not isinstance(value, Array), "takes the number of an axis from the values of an array")
    return int(value)


def along(a: Any, axis: Any) -> tuple[Any, int]:
    """An array's tensor and the number of an axis; where that is ``None`` all values by rows, and their axis."""
    array = lifted(a)
    if axis is None:
        return tf.reshape(array.tensor, [-1]), 0
    return array.tensor, axes_of(axis, array.ndim)[0]


def dimensions(shape: Any) -> Any:
    """A shape as TensorFlow takes it."""
    shape = shape if isinstance(shape, tuple | list) else (shape,)
    return [tf.cast(one.tensor, tf.int64) if isinstance(one, Array) else int(one) for one in shape]


def _reshape(a: Any, shape: Any, *more: Any, order: str = "C") -> Array:
    only(order == "C", "reshapes in another order than by rows")
    array = lifted(a)
    return Array(tf.reshape(array.tensor, dimensions((shape, *more) if more else shape)), view=array)


def _transpose(a: Any, axes: Any = None, *more: Any) -> Array:
    array = lifted(a)
    wanted = (axes, *more) if more else axes
    return Array(tf.transpose(array.tensor, None if wanted is None else axes_of(wanted, array.ndim)), view=array)


def _view(function: Callable[..., Any]) -> Callable[..., Array]:
    """Makes a function of NumPy's that changes the shape alone, from one of tensors."""

    def viewed(a: Any, *arguments: Any, **named: Any) -> Array:
        array = lifted(a)
        return Array(function(array.tensor, *arguments, **named), view=array)

    return viewed


def _squeeze(a: Any, axis: Any = None) -> Array:
    array = lifted(a)
    if axis is None:
        only(None not in array.tensor.shape, "drops axes whose length is not known")
        return Array(tf.squeeze(array.tensor), view=array)
    return Array(tf.squeeze(array.tensor, axes_of(axis, array.ndim)), view=array)


def flat(a: Any, order: str = "C") -> Array:
    """An array with one axis, its values by rows."""
    only(order == "C", "flattens in another order than by rows")
    array = lifted(a)
    return Array(tf.reshape(array.tensor, [-1]), view=array)


def alike(arrays: Sequence[Any], dtype: Any = None) -> list[Any]:
    """Tensors of some arrays in the dtype that NumPy gives what is made of them."""
    given = [lifted(one) for one in arrays]
    wanted = np.dtype(dtype) if dtype is not None else result_dtype(*given)
    return [tf.cast(one.tensor, wanted) for one in given]


def _is_open(arrays: Any) -> bool:
    """Whether the arrays, which are then alike, are of a number that is known only when it runs."""
    return isinstance(arrays, Symbolic) or any(isinstance(one, Spread) for one in arrays)


def _concatenate(arrays: Any, axis: Any = 0, *, dtype: Any = None) -> Array:
    if _is_open(arrays):
        whole = lifted(arrays)
        only(axis == 0 and whole.ndim > 1, "joins arrays whose number is known only when it runs")
        return Array(tf.reshape(whole.tensor, tf.concat([[-1], tf.shape(whole.tensor)[2:]], 0)))
    given = [along(Array(one), axis) for one in alike(arrays, dtype)]
    return Array(tf.concat([tensor for tensor, _ in given], given[0][1]))


def _stack(arrays: Any, axis: Any = 0, *, dtype: Any = None) -> Array:
    if _is_open(arrays):
        return Array(tnp.moveaxis(lifted(arrays).tensor, 0, static(axis)))
    return Array(tf.stack(alike(arrays, dtype), static(axis)))


def _hstack(arrays: Any) -> Array:
    given = [_at_least_1d(one) for one in arrays]
    return _concatenate(given, 0 if given[0].ndim == 1 else 1)


def _vstack(arrays: Any) -> Array:
    if _is_open(arrays):
        return lifted(arrays) if lifted(arrays).ndim == 2 else _concatenate(arrays)
    return _concatenate([one if one.ndim > 1 else Array(one.tensor[None]) for one in map(_at_least_1d, arrays)], 0)


def _at_least_1d(a: Any) -> Array:
    array = lifted(a)
    return array if array.ndim else Array(array.tensor[None])


def _tile(a: Any, reps: Any) -> Array:
    array = lifted(a)
    times = dimensions(reps)
    tensor = array.tensor
    while tensor.shape.rank < len(times):
        tensor = tensor[None]
    return Array(tf.tile(tensor, [1] * (tensor.shape.rank - len(times)) + list(times)))


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Array:
    tensor, at = along(a, axis)
    return Array(tf.repeat(tensor, tf.cast(lifted(repeats).tensor, tf.int32), at))


def _pad(a: Any, pad_width: Any, mode: Any = "constant", *, constant_values: Any = 0) -> Array:
    array = lifted(a)
    widths = tf.cast(lifted(pad_width).tensor, tf.int64)
    if widths.shape != [array.ndim, 2]:
        widths = tf.broadcast_to(widths, [array.ndim, 2])
    if mode == "constant":
        value = tf.cast(lifted(constant_values).tensor, array.dtype)
        only(value.shape.rank == 0, "pads with several values")
        return Array(tf.pad(array.tensor, widths, constant_values=value))
    if mode in ("reflect", "symmetric"):
        return Array(tf.pad(array.tensor, widths, mode.upper()))
    only(mode == "edge", f"pads in the mode {mode!r}, which is not known here")
    tensor = array.tensor
    for axis in range(array.ndim):
        length = tf.shape(array.tensor, tf.int64)[axis]
        places = tf.range(-widths[axis, 0], length + widths[axis, 1])
        tensor = tf.gather(tensor, tf.clip_by_value(places, tf.constant(0, tf.int64), length - 1), axis=axis)
    return Array(tensor)


def _flip(a: Any, axis: Any = None) -> Array:
    array = lifted(a)
    return Array(tf.reverse(array.tensor, axes_of(axis, array.ndim)), view=array)


def _roll(a: Any, shift: Any, axis: Any = None) -> Array:
    array = lifted(a)
    return Array(tnp.roll(array.tensor, tf.cast(lifted(shift).tensor, tf.int64), axis))


def _take(a: Any, indices: Any, axis: Any = None) -> Array:
    array = lifted(a)
    if axis is None:
        return flat(array)[lifted(indices)]
    return array[(*(slice(None),) * axes_of(axis, array.ndim)[0], lifted(indices))]


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.reshape: _reshape,
    np.transpose: _transpose,
    np.swapaxes: _view(tnp.swapaxes),
    np.moveaxis: _view(tnp.moveaxis),
    np.expand_dims: _view(tf.expand_dims),
    np.squeeze: _squeeze,
    np.ravel: flat,
    np.concatenate: _concatenate,
    np.append: lambda arr, values, axis=None: _concatenate([Array(lifted(one).tensor) for one in (arr, values)], axis),
    np.stack: _stack,
    np.hstack: _hstack,
    np.vstack: _vstack,
    np.atleast_1d: _at_least_1d,
    np.tile: _tile,
    np.repeat: _repeat,
    np.pad: _pad,
    np.flip: _flip,
    np.roll: _roll,
    np.take: _take,
}
"""Function of NumPy's -> what does the same here."""
