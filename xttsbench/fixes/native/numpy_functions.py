"""NumPy's functions and the methods of its arrays, each as ops of TensorFlow; what is missing here is refused.

Which dtype a result has is asked of NumPy itself: of its ufuncs by the dtypes of their loops, of other functions by
calling them on arrays of one element. TensorFlow's ops are given operands of that dtype, so that nothing is promoted
by its own rules, which differ.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.array import Array, CannotTraceError, holds_traced, lifted, result_dtype


def numpy_function(function: Any) -> Callable[..., Any]:
    """What does with traced arrays what a function of NumPy's does with arrays.

    Raises:
        CannotTraceError: it is not known here.
    """
    found = FUNCTIONS.get(function)
    if found is None:
        module = str(getattr(function, "__module__", None) or "numpy")
        raise CannotTraceError(f"calls {module}.{getattr(function, '__name__', function)}, which is not known here")
    return found


def ufunc(function: Any, *inputs: Any, dtype: Any = None, **named: Any) -> Array:
    """What a ufunc gives, by the loop that NumPy would take."""
    operation = _UFUNCS.get(function)
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
    return Array(result, number, scalar=result.shape.rank == 0)


def _check_number(one: Array, wanted: np.dtype[Any]) -> None:
    """A number of Python's that the dtype cannot hold is an error to NumPy."""
    known = tf.get_static_value(one.tensor) if one.number is int and wanted.kind in "iu" else None
    if known is not None:
        wanted.type(int(known))  # raises OverflowError


def _floor_divide(a: Any, b: Any) -> Any:
    """Whole numbers divided by zero are zero to NumPy, and an error to TensorFlow."""
    if a.dtype.is_floating:
        return tf.math.floordiv(a, b)
    return tf.where(tf.equal(b, 0), tf.zeros([], a.dtype), tf.math.floordiv(a, _no_zero(b)))


def _remainder(a: Any, b: Any) -> Any:
    if a.dtype.is_floating:
        return tf.math.floormod(a, b)
    return tf.where(tf.equal(b, 0), tf.zeros([], a.dtype), tf.math.floormod(a, _no_zero(b)))


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


_UFUNCS: Final[dict[Any, Callable[..., Any]]] = {
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


def _result(function: Any, array: Array, **named: Any) -> np.dtype[Any]:
    """The dtype that a function gives for an array of this dtype and rank."""
    return np.dtype(function(np.ones((1,) * array.ndim, array.dtype), **named).dtype)


def _axes(axis: Any, rank: int) -> list[int]:
    """Axes as numbers from 0; ``None`` is all of them."""
    if axis is None:
        return list(range(rank))
    given = axis if isinstance(axis, tuple | list) else [axis]
    return [int(one) % rank for one in map(_static, given)]


def _static(value: Any) -> int:
    if isinstance(value, Array):
        raise CannotTraceError("takes the number of an axis from the values of an array")
    return int(value)


def _reduction(function: Any, operation: Any) -> Callable[..., Array]:
    def reduced(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
        array = lifted(a)
        named = {} if dtype is None else {"dtype": dtype}
        wanted = _result(function, array, **named)
        inside = np.dtype(np.float32) if wanted == np.float16 and function in (np.mean, np.sum) else wanted
        given = array.tensor if function in (np.any, np.all) else tf.cast(array.tensor, inside)
        axes = _axes(axis, array.ndim)
        result = tf.cast(operation(given, axes, keepdims), wanted)
        return Array(result, scalar=result.shape.rank == 0)

    return reduced


def _truth(operation: Any) -> Any:
    return lambda x, axes, keep: operation(tf.cast(x, tf.bool), axes, keep)


def _spread(function: Any) -> Callable[..., Array]:
    """``var`` and ``std``."""

    def spread(a: Any, axis: Any = None, *, ddof: Any = 0, keepdims: bool = False) -> Array:
        array = lifted(a)
        if array.dtype.kind == "c":
            raise CannotTraceError("takes the spread of complex numbers")
        wanted = _result(function, array)
        values = tf.cast(array.tensor, np.float32 if wanted == np.float16 else wanted)
        axes = _axes(axis, array.ndim)
        square = tf.square(values - tf.reduce_mean(values, axes, True))
        if ddof:
            counts = tf.gather(tf.shape(values), axes)
            count = tf.cast(tf.reduce_prod(counts), values.dtype) - tf.cast(ddof, values.dtype)
            found = tf.reduce_sum(square, axes, keepdims) / count
        else:
            found = tf.reduce_mean(square, axes, keepdims)
        found = tf.cast(tf.sqrt(found) if function is np.std else found, wanted)
        return Array(found, scalar=found.shape.rank == 0)

    return spread


def _place(operation: Any) -> Callable[..., Array]:
    def found(a: Any, axis: Any = None) -> Array:
        array = lifted(a)
        values = tf.reshape(array.tensor, [-1]) if axis is None else array.tensor
        result = operation(values, 0 if axis is None else _axes(axis, array.ndim)[0], tf.int64)
        return Array(result, scalar=result.shape.rank == 0)

    return found


def _cumulative(function: Any, operation: Any) -> Callable[..., Array]:
    def along(a: Any, axis: Any = None) -> Array:
        array = lifted(a)
        values = tf.cast(array.tensor, _result(function, array))
        if axis is None:
            return Array(operation(tf.reshape(values, [-1])))
        return Array(operation(values, _axes(axis, array.ndim)[0]))

    return along


def dimensions(shape: Any) -> Any:
    """A shape as TensorFlow takes it: numbers where all are known, else a tensor."""
    shape = shape if isinstance(shape, tuple | list) else (shape,)
    if not any(isinstance(one, Array) for one in shape):
        return [int(one) for one in shape]
    return [
        tf.cast(one.tensor, tf.int64) if isinstance(one, Array) else tf.constant(int(one), tf.int64) for one in shape
    ]


def _reshape(a: Any, shape: Any, *more: Any, order: str = "C") -> Array:
    _only(order == "C", "reshapes in another order than by rows")
    array = lifted(a)
    return Array(tf.reshape(array.tensor, dimensions((shape, *more) if more else shape)), view=array)


def _transpose(a: Any, axes: Any = None, *more: Any) -> Array:
    array = lifted(a)
    wanted = (axes, *more) if more else axes
    return Array(tf.transpose(array.tensor, None if wanted is None else _axes(wanted, array.ndim)), view=array)


def _swapaxes(a: Any, axis1: Any, axis2: Any) -> Array:
    array = lifted(a)
    order = list(range(array.ndim))
    first, second = _axes((axis1, axis2), array.ndim)
    order[first], order[second] = order[second], order[first]
    return Array(tf.transpose(array.tensor, order), view=array)


def _moveaxis(a: Any, source: Any, destination: Any) -> Array:
    array = lifted(a)
    (start,), (end,) = _axes(source, array.ndim), _axes(destination, array.ndim)
    order = [axis for axis in range(array.ndim) if axis != start]
    order.insert(end, start)
    return Array(tf.transpose(array.tensor, order), view=array)


def _expand_dims(a: Any, axis: Any) -> Array:
    array = lifted(a)
    return Array(tf.expand_dims(array.tensor, _static(axis)), view=array)


def _squeeze(a: Any, axis: Any = None) -> Array:
    array = lifted(a)
    if axis is None:
        _only(None not in array.tensor.shape, "drops axes whose length is not known")
        return Array(tf.squeeze(array.tensor), view=array)
    return Array(tf.squeeze(array.tensor, _axes(axis, array.ndim)), view=array)


def _flat(a: Any, order: str = "C") -> Array:
    _only(order == "C", "flattens in another order than by rows")
    array = lifted(a)
    return Array(tf.reshape(array.tensor, [-1]), view=array)


def _alike(arrays: Sequence[Any], dtype: Any = None) -> list[Any]:
    given = [lifted(one) for one in arrays]
    wanted = np.dtype(dtype) if dtype is not None else result_dtype(*given)
    return [tf.cast(one.tensor, wanted) for one in given]


def _concatenate(arrays: Any, axis: Any = 0, *, dtype: Any = None) -> Array:
    tensors = _alike(arrays, dtype)
    if axis is None:
        return Array(tf.concat([tf.reshape(one, [-1]) for one in tensors], 0))
    return Array(tf.concat(tensors, _axes(axis, tensors[0].shape.rank)[0]))


def _stack(arrays: Any, axis: Any = 0, *, dtype: Any = None) -> Array:
    return Array(tf.stack(_alike(arrays, dtype), _static(axis)))


def _hstack(arrays: Any) -> Array:
    given = [_at_least_1d(one) for one in arrays]
    return _concatenate(given, 0 if given[0].ndim == 1 else 1)


def _vstack(arrays: Any) -> Array:
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
    array = lifted(a)
    times = tf.cast(lifted(repeats).tensor, tf.int32)
    if axis is None:
        return Array(tf.repeat(tf.reshape(array.tensor, [-1]), times, 0))
    return Array(tf.repeat(array.tensor, times, _axes(axis, array.ndim)[0]))


def _pad(a: Any, pad_width: Any, mode: Any = "constant", *, constant_values: Any = 0) -> Array:
    array = lifted(a)
    rows = _pad_rows(pad_width, array.ndim)
    widths = tf.stack([tf.stack([tf.cast(lifted(one).tensor, tf.int64) for one in row]) for row in rows])
    if mode == "constant":
        value = tf.cast(lifted(constant_values).tensor, array.dtype)
        _only(value.shape.rank == 0, "pads with several values")
        return Array(tf.pad(array.tensor, widths, constant_values=value))
    if mode in ("reflect", "symmetric"):
        return Array(tf.pad(array.tensor, widths, mode.upper()))
    _only(mode == "edge", f"pads in the mode {mode!r}, which is not known here")
    tensor = array.tensor
    for axis in range(array.ndim):
        length = tf.shape(array.tensor, tf.int64)[axis]
        places = tf.range(-widths[axis, 0], length + widths[axis, 1])
        tensor = tf.gather(tensor, tf.clip_by_value(places, tf.constant(0, tf.int64), length - 1), axis=axis)
    return Array(tensor)


def _pad_rows(widths: Any, rank: int) -> list[tuple[Any, Any]]:
    """Widths before and after for each axis, in whichever of its forms NumPy was given them."""
    if isinstance(widths, np.ndarray):
        widths = widths.tolist()
    if not isinstance(widths, tuple | list):
        return [(widths, widths)] * rank
    if not any(isinstance(one, tuple | list) for one in widths):
        before, after = (widths[0], widths[0]) if len(widths) == 1 else widths
        return [(before, after)] * rank
    rows = [tuple(one) if len(one) == 2 else (one[0], one[0]) for one in widths]
    return rows * rank if len(rows) == 1 else rows


def _flip(a: Any, axis: Any = None) -> Array:
    array = lifted(a)
    return Array(tf.reverse(array.tensor, _axes(axis, array.ndim)), view=array)


def _roll(a: Any, shift: Any, axis: Any = None) -> Array:
    array = lifted(a)
    by = tf.cast(lifted(shift).tensor, tf.int64)
    if axis is None:
        return Array(tf.reshape(tf.roll(tf.reshape(array.tensor, [-1]), by, 0), tf.shape(array.tensor)))
    return Array(tf.roll(array.tensor, by, _axes(axis, array.ndim)[0]))


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    _only(x is not None and y is not None, "asks numpy.where for places")
    first, second = lifted(x), lifted(y)
    wanted = result_dtype(first, second)
    truth = tf.cast(lifted(condition).tensor, tf.bool)
    result = tf.where(truth, tf.cast(first.tensor, wanted), tf.cast(second.tensor, wanted))
    return Array(result)


def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> Array:
    array = lifted(a)
    if a_min is not None:
        array = ufunc(np.maximum, array, a_min)
    return array if a_max is None else ufunc(np.minimum, array, a_max)


def _diff(a: Any, n: int = 1, axis: int = -1) -> Array:
    array = lifted(a)
    at = _axes(axis, array.ndim)[0]
    for _ in range(_static(n)):
        before = (slice(None),) * at
        array = ufunc(np.subtract, array[(*before, slice(1, None))], array[(*before, slice(None, -1))])
    return array


def _round(a: Any, decimals: int = 0) -> Array:
    array = lifted(a)
    if array.dtype.kind in "iu":
        _only(decimals == 0, "rounds whole numbers to tens")
        return array
    if not decimals:
        return Array(tf.round(array.tensor), scalar=array.scalar)
    scale = tf.constant(10.0 ** abs(decimals), array.tensor.dtype)
    up = decimals > 0
    inside = tf.round(array.tensor * scale if up else array.tensor / scale)
    return Array(inside / scale if up else inside * scale, scalar=array.scalar)


def _sort(a: Any, axis: Any = -1) -> Array:
    array = lifted(a)
    return Array(tf.sort(array.tensor, axis=_axes(axis, array.ndim)[0]))


def _argsort(a: Any, axis: Any = -1, *, kind: Any = None, stable: Any = None) -> Array:
    _only(kind == "stable" or bool(stable), "sorts in an order that is open among equal values")
    array = lifted(a)
    return Array(tf.cast(tf.argsort(array.tensor, axis=_axes(axis, array.ndim)[0], stable=True), tf.int64))


def _take(a: Any, indices: Any, axis: Any = None) -> Array:
    array = lifted(a)
    if axis is None:
        return _flat(array)[lifted(indices)]
    at = _axes(axis, array.ndim)[0]
    return array[(*(slice(None),) * at, lifted(indices))]


def _dot(a: Any, b: Any) -> Any:
    first, second = lifted(a), lifted(b)
    if not first.ndim or not second.ndim:
        return ufunc(np.multiply, first, second)
    _only(second.ndim <= 2, "multiplies more than matrices with numpy.dot")
    wanted = result_dtype(first, second)
    result = tf.tensordot(tf.cast(first.tensor, wanted), tf.cast(second.tensor, wanted), [[-1], [0]])
    return Array(result, scalar=result.shape.rank == 0)


def _outer(a: Any, b: Any) -> Array:
    return ufunc(np.multiply, _flat(a)[:, None], _flat(b)[None, :])


def _einsum(subscripts: Any, *operands: Any) -> Array:
    _only(isinstance(subscripts, str), "calls numpy.einsum without a string")
    result = tf.einsum(subscripts, *_alike(operands))
    return Array(result, scalar=result.shape.rank == 0)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    array = lifted(x)
    axes = _axes(axis, array.ndim)
    _only(ord is None or (ord == 2 and len(axes) == 1), "takes a norm other than the Euclidean one")
    values = tf.cast(array.tensor, _result(np.linalg.norm, Array(tf.zeros([1], array.dtype))))
    result = tf.sqrt(tf.reduce_sum(tf.square(values), axes, keepdims))
    return Array(result, scalar=result.shape.rank == 0)


def _rfft(a: Any, n: Any = None, axis: Any = -1) -> Array:
    return _transformed(a, axis, lambda x: tf.signal.rfft(x, None if n is None else [_length(n)]), np.fft.rfft)


def _irfft(a: Any, n: Any = None, axis: Any = -1) -> Array:
    return _transformed(a, axis, lambda x: tf.signal.irfft(x, None if n is None else [_length(n)]), np.fft.irfft)


def _fft(a: Any, axis: Any = -1) -> Array:
    return _transformed(a, axis, tf.signal.fft, np.fft.fft)


def _ifft(a: Any, axis: Any = -1) -> Array:
    return _transformed(a, axis, tf.signal.ifft, np.fft.ifft)


def _length(n: Any) -> Any:
    return tf.cast(n.tensor, tf.int32) if isinstance(n, Array) else int(n)


def _transformed(a: Any, axis: Any, operation: Any, function: Any) -> Array:
    """A Fourier transform along an axis, in the precision that NumPy takes."""
    array = lifted(a)
    at = _axes(axis, array.ndim)[0]
    order = [one for one in range(array.ndim) if one != at] + [at]
    last = at == array.ndim - 1
    example = function(np.ones(4, array.dtype))
    single = example.dtype in (np.float32, np.complex64)
    if function is np.fft.rfft:
        inside = tf.float32 if single else tf.float64
    else:
        inside = tf.complex64 if single else tf.complex128
    result = operation(tf.cast(array.tensor if last else tf.transpose(array.tensor, order), inside))
    return Array(tf.cast(result if last else tf.transpose(result, np.argsort(order)), example.dtype))


def _frequencies(function: Any) -> Any:
    def frequencies(n: Any, d: Any = 1.0) -> Any:
        _only(not holds_traced((n, d)), "makes frequencies for a length that is known only when it runs")
        return function(n, d)

    return frequencies


def _filled(value: Any) -> Callable[..., Array]:
    def filled(shape: Any, dtype: Any = float) -> Array:
        return Array(tf.fill(dimensions(shape), tf.constant(value, np.dtype(dtype))))

    return filled


def _full(shape: Any, fill_value: Any, dtype: Any = None) -> Array:
    value = lifted(fill_value)
    return Array(tf.fill(dimensions(shape), tf.cast(value.tensor, value.dtype if dtype is None else np.dtype(dtype))))


def _like(value: Any) -> Callable[..., Array]:
    def like(a: Any, dtype: Any = None) -> Array:
        array = lifted(a)
        return Array(
            tf.fill(tf.shape(array.tensor), tf.constant(value, array.dtype if dtype is None else np.dtype(dtype)))
        )

    return like


def _arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Array:
    first, last = (0, start) if stop is None else (start, stop)
    given = [lifted(one) for one in (first, last, step)]
    _only(all(one.ndim == 0 and one.dtype.kind in "iu" for one in given), "counts in steps that are not whole")
    wanted = np.dtype(dtype) if dtype is not None else result_dtype(*given)
    return Array(tf.cast(tf.range(*(tf.cast(one.tensor, tf.int64) for one in given)), wanted))


def _array(a: Any, dtype: Any = None, *, copy: Any = None, ndmin: int = 0) -> Array:
    array = lifted(a)
    _only(array.ndim >= ndmin, "adds axes while it makes an array")
    return _astype(array, array.dtype if dtype is None else dtype)


def _asarray(a: Any, dtype: Any = None) -> Array:
    array = lifted(a)
    same = dtype is None or np.dtype(dtype) == array.dtype
    return array if same and not array.scalar else _astype(array, array.dtype if dtype is None else dtype)


def _astype(a: Any, dtype: Any, copy: bool = True) -> Array:
    array, wanted = lifted(a), np.dtype(dtype)
    _only(wanted.kind in "biufc" and wanted.char not in "gG", f"makes an array of {wanted}")
    tensor = array.tensor
    if array.dtype.kind == "c" and wanted.kind != "c":
        tensor = tf.math.real(tensor)
    if wanted.kind == "b":
        tensor = tf.not_equal(tensor, tf.zeros([], tensor.dtype)) if tensor.dtype != tf.bool else tensor
    # TensorFlow folds a cast to the same dtype away, and the array must not be the same one
    return Array(tf.cast(tensor, wanted))


def _scalar(dtype: Any) -> Callable[..., Array]:
    def made(value: Any = 0) -> Array:
        array = _astype(value, dtype)
        return Array(array.tensor, scalar=array.ndim == 0)

    return made


def _item(a: Any) -> Array:
    array = lifted(a)
    kind = {"i": int, "u": int, "f": float}.get(array.dtype.kind)
    if kind is None:
        raise CannotTraceError("takes a number of Python's from an array of another kind")
    wide = tf.cast(tf.reshape(array.tensor, []), tf.int64 if kind is int else tf.float64)
    return Array(wide, kind)


def _median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
    array = lifted(a)
    _only(not keepdims, "keeps the axis of a median")
    wanted = _result(np.median, array)
    values = tf.cast(array.tensor, wanted)
    values = tf.reshape(values, [-1]) if axis is None else values
    at = 0 if axis is None else _axes(axis, array.ndim)[0]
    values = tf.sort(values, axis=at)
    length = tf.shape(values)[at]
    middle = [tf.gather(values, (length - odd) // 2, axis=at) for odd in (1, 0)]
    result = (middle[0] + middle[1]) / tf.constant(2, wanted)
    return Array(result, scalar=result.shape.rank == 0)


def _only(holds: bool, what: str) -> None:
    if not holds:
        raise CannotTraceError(what)


_SUM = _reduction(np.sum, tf.reduce_sum)
_MAX = _reduction(np.max, tf.reduce_max)
_MIN = _reduction(np.min, tf.reduce_min)
FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.sum: _SUM,
    np.mean: _reduction(np.mean, tf.reduce_mean),
    np.max: _MAX,
    np.min: _MIN,
    np.prod: _reduction(np.prod, tf.reduce_prod),
    np.any: _reduction(np.any, _truth(tf.reduce_any)),
    np.all: _reduction(np.all, _truth(tf.reduce_all)),
    np.std: _spread(np.std),
    np.var: _spread(np.var),
    np.median: _median,
    np.argmax: _place(tf.argmax),
    np.argmin: _place(tf.argmin),
    np.cumsum: _cumulative(np.cumsum, tf.cumsum),
    np.cumprod: _cumulative(np.cumprod, tf.math.cumprod),
    np.reshape: _reshape,
    np.transpose: _transpose,
    np.swapaxes: _swapaxes,
    np.moveaxis: _moveaxis,
    np.expand_dims: _expand_dims,
    np.squeeze: _squeeze,
    np.ravel: _flat,
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.hstack: _hstack,
    np.vstack: _vstack,
    np.atleast_1d: _at_least_1d,
    np.tile: _tile,
    np.repeat: _repeat,
    np.pad: _pad,
    np.flip: _flip,
    np.roll: _roll,
    np.where: _where,
    np.clip: _clip,
    np.diff: _diff,
    np.round: _round,
    np.around: _round,
    np.sort: _sort,
    np.argsort: _argsort,
    np.take: _take,
    np.dot: _dot,
    np.outer: _outer,
    np.einsum: _einsum,
    np.linalg.norm: _norm,
    np.fft.rfft: _rfft,
    np.fft.irfft: _irfft,
    np.fft.fft: _fft,
    np.fft.ifft: _ifft,
    np.fft.rfftfreq: _frequencies(np.fft.rfftfreq),
    np.fft.fftfreq: _frequencies(np.fft.fftfreq),
    np.zeros: _filled(0),
    np.ones: _filled(1),
    np.full: _full,
    np.zeros_like: _like(0),
    np.ones_like: _like(1),
    np.arange: _arange,
    np.array: _array,
    np.asarray: _asarray,
    np.ascontiguousarray: _asarray,
    np.copy: lambda a: _astype(a, lifted(a).dtype),
    np.real: lambda a: lifted(a).real,
    np.imag: lambda a: lifted(a).imag,
    np.angle: lambda a: Array(tf.math.angle(lifted(a).tensor)),
    np.shape: lambda a: lifted(a).shape,
    np.ndim: lambda a: lifted(a).ndim,
    np.size: lambda a: lifted(a).size,
    **{one: _scalar(one) for one in (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64)},
    **{one: _scalar(one) for one in (np.uint8, np.uint16, np.uint32, np.uint64, np.complex64, np.complex128, np.bool_)},
}
"""Function or scalar type of NumPy's -> what does the same here."""
METHODS: Final[dict[str, Callable[..., Any]]] = {
    **{one.__name__: FUNCTIONS[one] for one in (np.sum, np.mean, np.prod, np.any, np.all, np.std, np.var)},
    **{one.__name__: FUNCTIONS[one] for one in (np.argmax, np.argmin, np.cumsum, np.cumprod, np.swapaxes, np.squeeze)},
    **{one.__name__: FUNCTIONS[one] for one in (np.ravel, np.repeat, np.clip, np.round, np.take, np.dot, np.copy)},
    "max": _MAX,
    "min": _MIN,
    "reshape": _reshape,
    "transpose": _transpose,
    "flatten": lambda a, order="C": Array(_flat(_astype(a, a.dtype), order).tensor),
    "astype": _astype,
    "item": _item,
    "conj": functools.partial(ufunc, np.conjugate),
}
"""Name of a method of arrays -> a function of the array and its arguments."""
