"""NumPy's functions and the methods of its arrays, each as ops of TensorFlow; what is missing here is refused.

Which dtype a result has is asked of NumPy itself: of its ufuncs by the dtypes of their loops, of other functions by
calling them on arrays of one element. TensorFlow's ops are given operands of that dtype, so that nothing is promoted
by its own rules, which differ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.arrays import (
    Array,
    CannotTraceError,
    NumPy,
    axes,
    holds_traced,
    lifted,
    only,
    result_dtype,
    shaping,
    ufunc,
)
from xttsbench.fixes.native.arrays.indexing import item, replaced
from xttsbench.fixes.native.arrays.shaping import alike, axes_of, dimensions, flat


def numpy_function(function: Any) -> Callable[..., Any]:
    """Equivalent of a function of NumPy's for traced arrays.

    Raises:
        CannotTraceError: it is not known here.
    """
    found = FUNCTIONS.get(function)
    if found is None:
        module = str(getattr(function, "__module__", None) or "numpy")
        raise CannotTraceError(f"calls {module}.{getattr(function, '__name__', function)}, which is not known here")
    return found


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return axes.places(condition)
    first, second = lifted(x), lifted(y)
    wanted = result_dtype(first, second)
    truth = tf.cast(lifted(condition).tensor, tf.bool)
    return Array(tf.where(truth, tf.cast(first.tensor, wanted), tf.cast(second.tensor, wanted)))


def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> Array:
    array = lifted(a)
    if a_min is not None:
        array = ufunc(np.maximum, array, a_min)
    return array if a_max is None else ufunc(np.minimum, array, a_max)


def _round(a: Any, decimals: int = 0) -> Array:
    array = lifted(a)
    if array.dtype.kind in "iu":
        only(decimals == 0, "rounds whole numbers to tens")
        return array
    if not decimals:
        return Array(tf.round(array.tensor), scalar=array.scalar)
    scale = tf.constant(10.0 ** abs(decimals), array.tensor.dtype)
    up = decimals > 0
    inside = tf.round(array.tensor * scale if up else array.tensor / scale)
    return Array(inside / scale if up else inside * scale, scalar=array.scalar)


def _dot(a: Any, b: Any) -> Any:
    first, second = lifted(a), lifted(b)
    if not first.ndim or not second.ndim:
        return ufunc(np.multiply, first, second)
    only(second.ndim <= 2, "multiplies more than matrices with numpy.dot")
    wanted = result_dtype(first, second)
    return Array.of(tf.tensordot(tf.cast(first.tensor, wanted), tf.cast(second.tensor, wanted), [[-1], [0]]))


def _einsum(subscripts: Any, *operands: Any) -> Array:
    only(isinstance(subscripts, str), "calls numpy.einsum without a string")
    return Array.of(tf.einsum(subscripts, *alike(operands)))


def _transform(function: Any, operation: Any, *, real: bool = False, sized: bool = False) -> Callable[..., Array]:
    """A Fourier transform along an axis, in the precision that NumPy takes; of another length where it is ``sized``."""

    def transformed(a: Any, n: Any = None, axis: Any = -1) -> Array:
        array = lifted(a)
        only(n is None or sized, f"gives numpy.fft.{function.__name__} a length")
        sizes = [] if n is None else [[tf.cast(n.tensor, tf.int32) if isinstance(n, Array) else int(n)]]
        at, result = axes_of(axis, array.ndim)[0], function(np.ones(4, array.dtype)).dtype
        single = result in (np.float32, np.complex64)
        inside = (tf.float32 if single else tf.float64) if real else tf.complex64 if single else tf.complex128

        def turned(tensor: Any) -> Any:
            return tensor if at == array.ndim - 1 else tf.experimental.numpy.swapaxes(tensor, at, -1)

        return Array(tf.cast(turned(operation(tf.cast(turned(array.tensor), inside), *sizes)), result))

    return transformed


def _frequencies(function: Any) -> Any:
    def frequencies(n: Any, d: Any = 1.0) -> Any:
        only(not holds_traced((n, d)), "makes frequencies for a length that is known only when it runs")
        return function(n, d)

    return frequencies


def _full(shape: Any, fill_value: Any, dtype: Any = None) -> Array:
    value = lifted(fill_value)
    return Array(tf.fill(dimensions(shape), tf.cast(value.tensor, value.dtype if dtype is None else np.dtype(dtype))))


def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Array:
    array = lifted(a)
    value = tf.cast(lifted(fill_value).tensor, array.dtype if dtype is None else np.dtype(dtype))
    return Array(tf.fill(tf.shape(array.tensor), value))


def _filled(value: int) -> Callable[..., Array]:
    return lambda shape, dtype=float: _full(shape, value, dtype)


def _filled_like(value: int) -> Callable[..., Array]:
    return lambda a, dtype=None: _full_like(a, value, dtype)


def _arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Array:
    first, last = (0, start) if stop is None else (start, stop)
    given = [lifted(one) for one in (first, last, step)]
    only(all(one.ndim == 0 and one.dtype.kind in "iu" for one in given), "counts in steps that are not whole")
    wanted = np.dtype(dtype) if dtype is not None else result_dtype(*given)
    return Array(tf.cast(tf.range(*(tf.cast(one.tensor, tf.int64) for one in given)), wanted))


def _array(a: Any, dtype: Any = None, *, copy: Any = None, ndmin: int = 0) -> Array:
    array = lifted(a)
    only(array.ndim >= ndmin, "adds axes while it makes an array")
    return _astype(array, array.dtype if dtype is None else dtype)


def _asarray(a: Any, dtype: Any = None) -> Array:
    array = lifted(a)
    same = dtype is None or np.dtype(dtype) == array.dtype
    return array if same and not array.scalar else _astype(array, array.dtype if dtype is None else dtype)


def _astype(a: Any, dtype: Any, copy: bool = True) -> Array:
    array, wanted = lifted(a), np.dtype(dtype)
    only(wanted.kind in "biufc" and wanted.char not in "gG", f"makes an array of {wanted}")
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
    only(array.dtype.kind in "iuf", "takes a number of Python's from an array of another kind")
    wide, kind = (tf.float64, float) if array.dtype.kind == "f" else (tf.int64, int)
    return Array(tf.cast(tf.reshape(array.tensor, []), wide), kind)


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    **axes.FUNCTIONS,
    **shaping.FUNCTIONS,
    np.where: _where,
    np.clip: _clip,
    np.round: _round,
    np.around: _round,
    np.dot: _dot,
    np.outer: lambda a, b: ufunc(np.multiply, flat(a)[:, None], flat(b)[None, :]),
    np.einsum: _einsum,
    np.fft.rfft: _transform(np.fft.rfft, tf.signal.rfft, real=True, sized=True),
    np.fft.irfft: _transform(np.fft.irfft, tf.signal.irfft, sized=True),
    np.fft.fft: _transform(np.fft.fft, tf.signal.fft),
    np.fft.ifft: _transform(np.fft.ifft, tf.signal.ifft),
    np.fft.rfftfreq: _frequencies(np.fft.rfftfreq),
    np.fft.fftfreq: _frequencies(np.fft.fftfreq),
    np.zeros: _filled(0),
    np.empty: _filled(0),
    np.ones: _filled(1),
    np.full: _full,
    np.full_like: _full_like,
    np.zeros_like: _filled_like(0),
    np.empty_like: _filled_like(0),
    np.ones_like: _filled_like(1),
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
_ALSO_METHODS: Final = (
    *("sum", "mean", "prod", "any", "all", "std", "var", "max", "min", "argmax", "argmin", "cumsum", "cumprod"),
    *("swapaxes", "squeeze", "repeat", "clip", "round", "take", "dot", "copy", "reshape", "transpose", "argsort"),
    *("ravel", "nonzero"),
)
METHODS: Final[dict[str, Callable[..., Any]]] = {
    **{name: FUNCTIONS[getattr(np, name)] for name in _ALSO_METHODS},
    "flatten": lambda a, order="C": Array(flat(_astype(a, a.dtype), order).tensor),
    "astype": _astype,
    "item": _item,
    "conj": functools.partial(ufunc, np.conjugate),
}
"""Name of a method of arrays -> a function of the array and its arguments."""
Array._numpy = NumPy(numpy_function, METHODS, item, replaced)
