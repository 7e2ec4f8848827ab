"""NumPy's ufuncs as ops of TensorFlow, in the dtypes of the loops that NumPy would take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.arrays.array import Array, CannotTraceError, lifted


def ufunc(function: Any, *inputs: Any, dtype: Any = None, **named: Any) -> Array:
    """What a ufunc gives, by the loop that NumPy would take."""
    operation = UFUNCS.get(function)
    if operation is None or named:
        what = f" with {', '.join(named)}" if named else ""
        raise CannotTraceError(f"calls numpy.{function.__name__}{what}, which is not known here")
    given = [lifted(one) for one in inputs]
    numbers = all(one.number is not None for one in given)
    kinds = [one.dtype if numbers else one.kind for one in given]
    signature = (None,) * len(given) + (np.dtype(dtype),) if dtype is not None else None
    resolved = function.resolve_dtypes((*kinds, None), **({"signature": signature} if signature else {}))
    for one, wanted in zip(given, resolved, strict=False):
        _check_number(one, wanted)
    result = operation(*(tf.cast(one.tensor, wanted) for one, wanted in zip(given, resolved, strict=False)))
    result = tf.cast(result, resolved[-1])
    number = {"i": int, "f": float}.get(resolved[-1].kind) if numbers else None
    return Array.of(result, number)


def _check_number(one: Array, wanted: np.dtype[Any]) -> None:
    """A number of Python's that the dtype cannot hold is an error to NumPy."""
    known = tf.get_static_value(one.tensor) if one.number is int and wanted.kind in "iu" else None
    if known is not None:
        wanted.type(int(known))  # raises OverflowError


def _floor_divide(a: Any, b: Any) -> Any:
    """Whole numbers divided by zero are zero to NumPy, and an error to TensorFlow."""
    if a.dtype.is_floating:
        return tf.math.floordiv(a, b)
    if _never_zero(b):
        return tf.math.floordiv(a, b)
    return tf.where(tf.equal(b, 0), tf.zeros([], a.dtype), tf.math.floordiv(a, _no_zero(b)))


def _remainder(a: Any, b: Any) -> Any:
    if a.dtype.is_floating:
        return tf.math.floormod(a, b)
    if _never_zero(b):
        return tf.math.floormod(a, b)
    return tf.where(tf.equal(b, 0), tf.zeros([], a.dtype), tf.math.floormod(a, _no_zero(b)))


def _never_zero(b: Any) -> bool:
    known = tf.get_static_value(b)
    return known is not None and bool(np.all(known))


def _no_zero(b: Any) -> Any:
    return tf.where(tf.equal(b, 0), tf.ones([], b.dtype), b)


def _in_double(function: Any) -> Any:
    """In double precision, so that what should be whole is: 3, not 2.9999998."""
    return lambda x: tf.cast(function(tf.cast(x, tf.float64)), x.dtype)


def _bitwise(whole: Any, truth: Any) -> Any:
    return lambda a, b: truth(a, b) if a.dtype == tf.bool else whole(a, b)


def _matmul(a: Any, b: Any) -> Any:
    if not a.shape.rank or not b.shape.rank:
        raise CannotTraceError("multiplies matrices with a number")
    first, second = a.shape.rank == 1, b.shape.rank == 1
    result = tf.matmul(a[None] if first else a, b[:, None] if second else b)
    return (
        tf.squeeze(result, [axis for axis, gone in ((-2, first), (-1, second)) if gone]) if first or second else result
    )


def _absolute(x: Any) -> Any:
    return x if x.dtype == tf.bool or x.dtype.is_unsigned else tf.abs(x)


UFUNCS: Final[dict[Any, Callable[..., Any]]] = {
    np.add: lambda a, b: tf.logical_or(a, b) if a.dtype == tf.bool else a + b,
    np.subtract: tf.subtract,
    np.multiply: lambda a, b: tf.logical_and(a, b) if a.dtype == tf.bool else a * b,
    np.true_divide: tf.divide,
    np.floor_divide: _floor_divide,
    np.remainder: _remainder,
    np.power: tf.pow,
    np.float_power: tf.pow,
    np.matmul: _matmul,
    np.maximum: tf.maximum,
    np.minimum: tf.minimum,
    np.negative: tf.negative,
    np.positive: tf.identity,
    np.absolute: _absolute,
    np.fabs: tf.abs,
    np.sign: tf.sign,
    np.square: tf.square,
    np.sqrt: tf.sqrt,
    np.reciprocal: tf.math.reciprocal,
    np.exp: tf.exp,
    np.expm1: tf.math.expm1,
    np.exp2: lambda x: tf.pow(tf.constant(2, x.dtype), x),
    np.log: tf.math.log,
    np.log1p: tf.math.log1p,
    np.log2: _in_double(lambda x: tf.math.log(x) / math.log(2)),
    np.log10: _in_double(lambda x: tf.math.log(x) / math.log(10)),
    np.sin: tf.sin,
    np.cos: tf.cos,
    np.tan: tf.tan,
    np.arcsin: tf.asin,
    np.arccos: tf.acos,
    np.arctan: tf.atan,
    np.arctan2: tf.atan2,
    np.sinh: tf.sinh,
    np.cosh: tf.cosh,
    np.tanh: tf.tanh,
    np.hypot: lambda a, b: tf.sqrt(a * a + b * b),
    np.floor: lambda x: tf.floor(x) if x.dtype.is_floating else x,
    np.ceil: lambda x: tf.math.ceil(x) if x.dtype.is_floating else x,
    np.trunc: lambda x: tf.where(x < 0, tf.math.ceil(x), tf.floor(x)) if x.dtype.is_floating else x,
    np.rint: tf.round,
    np.deg2rad: lambda x: x * tf.constant(math.pi / 180, x.dtype),
    np.radians: lambda x: x * tf.constant(math.pi / 180, x.dtype),
    np.conjugate: tf.math.conj,
    np.less: tf.less,
    np.less_equal: tf.less_equal,
    np.greater: tf.greater,
    np.greater_equal: tf.greater_equal,
    np.equal: tf.equal,
    np.not_equal: tf.not_equal,
    np.logical_and: lambda a, b: tf.logical_and(tf.cast(a, tf.bool), tf.cast(b, tf.bool)),
    np.logical_or: lambda a, b: tf.logical_or(tf.cast(a, tf.bool), tf.cast(b, tf.bool)),
    np.logical_not: lambda a: tf.logical_not(tf.cast(a, tf.bool)),
    np.isnan: tf.math.is_nan,
    np.isinf: tf.math.is_inf,
    np.isfinite: tf.math.is_finite,
    np.bitwise_and: _bitwise(tf.bitwise.bitwise_and, tf.logical_and),
    np.bitwise_or: _bitwise(tf.bitwise.bitwise_or, tf.logical_or),
    np.bitwise_xor: _bitwise(tf.bitwise.bitwise_xor, tf.math.logical_xor),
    np.invert: lambda a: tf.logical_not(a) if a.dtype == tf.bool else tf.bitwise.invert(a),
    np.left_shift: tf.bitwise.left_shift,
    np.right_shift: tf.bitwise.right_shift,
}
