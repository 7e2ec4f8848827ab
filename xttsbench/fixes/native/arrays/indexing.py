"""Subscripts of arrays: whole numbers, slices, ``None``, one array of places, or one mask, as NumPy reads them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.arrays import Array, lifted, only

AT_ONCE: Final[ContextVar[bool]] = ContextVar("AT_ONCE", default=False)
"""Whether all numbers of a range are computed at once, so that parts of arrays have to be of one length."""


def item(array: Array, key: Any) -> Array:
    """Result of ``array[key]`` as NumPy has it.

    Raises:
        CannotTraceError: several arrays of places, places beside numbers or steps, or what is no subscript of arrays.
    """
    keys, arrays = _keys(key)
    wrong = any(isinstance(one, bool) or (isinstance(one, Array) and one.dtype.kind not in "iub") for one in keys)
    only(not wrong, "takes parts of an array by what is neither a whole number nor a mask")
    single = any(isinstance(one, Array) and one.dtype.kind == "b" and not one.ndim for one in keys)
    only(not single, "takes parts of an array by a single truth value")
    only(len(arrays) < 2, "takes parts of an array by several arrays of places at once")
    if not arrays:
        return _sliced(array, keys)
    (places,) = arrays
    if places.dtype.kind != "b":
        return _gathered(array, keys, places)
    only(len(keys) == 1, "takes parts of an array by a mask and something else at once")
    return Array(tf.boolean_mask(array.tensor, places.tensor))


def replaced(array: Array, key: Any, value: Any) -> Any:
    """The tensor of an array after ``array[key] = value``: by numbers and slices, or a number where a mask says so.

    Raises:
        CannotTraceError: any other key, or a value of a kind that NumPy would not put there without being told.
    """
    keys, arrays = _keys(key)
    given = lifted(value)
    only(array.dtype.kind == "c" or given.dtype.kind != "c", "puts complex numbers into an array of others")
    tensor = tf.cast(given.tensor, array.dtype)
    if arrays:
        mask, by_mask = arrays[0], len(keys) == 1 and arrays[0].dtype.kind == "b" and not given.ndim
        only(by_mask, "assigns to the parts of an array that an array of places says")
        shape = tf.concat([tf.shape(mask.tensor), [1] * (array.ndim - mask.ndim)], 0)
        return tf.where(tf.reshape(mask.tensor, shape), tensor, array.tensor)
    cut = _sliced(array, keys).tensor
    only(cut.op.type == "StridedSlice", "assigns to all of an array, or to what is no part of one")
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    begin, end, strides = cut.op.inputs[1:]
    array._viewed[0] = False  # the part is not kept
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=array.tensor, begin=begin, end=end, strides=strides, value=tf.broadcast_to(tensor, tf.shape(cut)),
        **{name: cut.op.get_attr(name) for name in names},
    )  # fmt: skip


def _keys(key: Any) -> tuple[list[Any], list[Array]]:
    """The parts of a subscript, and those among them that are arrays with an axis."""
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [lifted(one) if isinstance(one, list | np.ndarray | np.generic | Array) else one for one in keys]
    return keys, [one for one in keys if isinstance(one, Array) and one.ndim]


def _sliced(array: Array, keys: list[Any]) -> Array:
    for one in keys:
        known = one is None or one is Ellipsis or isinstance(one, int | slice | Array)
        only(known, f"takes parts of an array by {type(one).__name__}")
    numbers = sum(one is not None and one is not Ellipsis for one in keys)
    if numbers > array.ndim:
        raise IndexError("too many indices for array")
    whole = numbers == array.ndim and not any(one is None or one is Ellipsis or isinstance(one, slice) for one in keys)
    source = array.tensor
    if AT_ONCE.get() and keys and isinstance(keys[0], slice) and isinstance(keys[0].start, Array):
        first, length = keys[0].start, _apart(keys[0].stop, keys[0].start)
        known = length is not None and keys[0].step in (None, 1)
        only(known, "takes parts of an array whose lengths are known only when it runs")
        source, keys = tf.gather(source, tf.cast(first.tensor, tf.int64) + tf.range(length)), [slice(None), *keys[1:]]
    elif AT_ONCE.get() and keys and isinstance(keys[0], Array):
        places = tf.cast(keys[0].tensor, tf.int64)
        if not _never_negative(places):
            places = tf.where(places < 0, places + tf.shape(source, tf.int64)[0], places)
        source, keys = tf.gather(source, places), keys[1:]
    tensor = source[tuple(_bare(one) for one in keys)] if keys else source
    return Array(tensor, scalar=True) if whole else Array(tensor, view=array)


def _apart(stop: Any, start: Array) -> Any:
    """The length of a slice whose end is a known number behind its beginning, whatever that is."""
    op = stop.tensor.op if isinstance(stop, Array) else None
    if op is None or op.type != "AddV2":
        return None
    for one, other in (op.inputs, op.inputs[::-1]):
        known = tf.get_static_value(other)
        if known is not None and _alike(one, start.tensor):
            return tf.constant(int(known), tf.int64)
    return None


def _alike(one: Any, other: Any, depth: int = 8) -> bool:
    """Whether two tensors are computed in the same way from the same ones."""
    if one is other:
        return True
    first, second = one.op, other.op
    if not depth or first.type != second.type or not first.inputs:
        values = [tf.get_static_value(tensor) for tensor in (one, other)]
        return all(value is not None for value in values) and bool(np.array_equal(*values))
    pairs = zip(first.inputs, second.inputs, strict=True)
    return first.node_def.attr == second.node_def.attr and all(_alike(*pair, depth - 1) for pair in pairs)


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
        whole = one is Ellipsis or (isinstance(one, slice) and one == slice(None))
        only(whole, "takes parts of an array by places and something else at once")
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
