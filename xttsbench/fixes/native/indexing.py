"""Subscripts of arrays: whole numbers, slices, ``None``, one array of places, or one mask, as NumPy reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.array import Array, CannotTraceError, lifted


def item(array: Array, key: Any) -> Array:
    """What NumPy gives for ``array[key]``.

    Raises:
        CannotTraceError: several arrays of places, places beside numbers or steps, or what is no subscript of arrays.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [lifted(one) if isinstance(one, list | np.ndarray | np.generic | Array) else one for one in keys]
    arrays = [one for one in keys if isinstance(one, Array) and one.ndim > 0]
    if any(isinstance(one, bool) or (isinstance(one, Array) and one.dtype.kind not in "iub") for one in keys):
        raise CannotTraceError("takes parts of an array by what is neither a whole number nor a mask")
    if any(isinstance(one, Array) and one.dtype.kind == "b" and not one.ndim for one in keys):
        raise CannotTraceError("takes parts of an array by a single truth value")
    if not arrays:
        return _sliced(array, keys)
    if len(arrays) > 1:
        raise CannotTraceError("takes parts of an array by several arrays of places at once")
    (places,) = arrays
    if places.dtype.kind == "b":
        if len(keys) > 1:
            raise CannotTraceError("takes parts of an array by a mask and something else at once")
        return Array(tf.boolean_mask(array.tensor, places.tensor))
    return _gathered(array, keys, places)


def _sliced(array: Array, keys: list[Any]) -> Array:
    for one in keys:
        if not (one is None or one is Ellipsis or isinstance(one, int | slice | Array)):
            raise CannotTraceError(f"takes parts of an array by {type(one).__name__}")
    numbers = sum(one is not None and one is not Ellipsis for one in keys)
    if numbers > array.ndim:
        raise IndexError("too many indices for array")
    tensor = array.tensor[tuple(_bare(one) for one in keys)]
    whole = numbers == array.ndim and not any(one is None or one is Ellipsis or isinstance(one, slice) for one in keys)
    return Array(tensor, scalar=True) if whole else Array(tensor, view=array)


def _bare(key: Any) -> Any:
    """A key as TensorFlow takes it."""
    if isinstance(key, slice):
        return slice(*(_bound(one) for one in (key.start, key.stop, key.step)))
    return key if key is None or key is Ellipsis else _bound(key)


def _bound(value: Any) -> Any:
    return tf.cast(value.tensor, tf.int64) if isinstance(value, Array) else None if value is None else int(value)


def _gathered(array: Array, keys: list[Any], places: Array) -> Array:
    """One array of places, the other axes whole."""
    at = next(number for number, one in enumerate(keys) if one is places)
    for one in keys[:at] + keys[at + 1 :]:
        if not (one is Ellipsis or (isinstance(one, slice) and one == slice(None))):
            raise CannotTraceError("takes parts of an array by places and something else at once")
    after = keys[at + 1 :]
    axis = at if Ellipsis not in keys[:at] else array.ndim - 1 - len(after)
    if axis < 0 or len([one for one in keys if one is not Ellipsis]) > array.ndim:
        raise IndexError("too many indices for array")
    indices = tf.cast(places.tensor, tf.int64)
    if places.dtype.kind == "i" and not _never_negative(indices):
        indices = tf.where(indices < 0, indices + tf.shape(array.tensor, tf.int64)[axis], indices)
    return Array(tf.gather(array.tensor, indices, axis=axis))


def _never_negative(tensor: Any) -> bool:
    """Whether whole numbers are surely zero or more, from the ops that make them."""
    known = tf.get_static_value(tensor)
    if known is not None:
        return bool(np.all(known >= 0))
    kind, inputs = tensor.op.type, list(tensor.op.inputs)
    if kind == "Shape":
        return True
    if kind in ("AddV2", "Mul", "Maximum"):
        return all(map(_never_negative, inputs))
    if kind == "Range":
        return _never_negative(inputs[0]) and _never_negative(inputs[2])
    passing = ("Cast", "StridedSlice", "ExpandDims", "Reshape", "Identity", "GatherV2", "Squeeze", "Transpose")
    return kind in passing and _never_negative(inputs[0])
