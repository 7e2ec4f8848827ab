"""Traced arrays: tensors that behave as NumPy's arrays do while a function is traced.

NumPy hands every operation on such an object to it (``__array_ufunc__``, ``__array_function__``), so operators, NumPy's
functions and methods mean what they mean to NumPy: its own rules say which dtype a result has, and ufuncs become ops in
the dtypes of the loops that NumPy would take. What depends on the values of an array, which are not known yet, is
refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import tensorflow as tf
from numpy.lib.mixins import NDArrayOperatorsMixin


class CannotTraceError(BaseException):
    """Something that a function does and that cannot be written as ops of TensorFlow: what, as a phrase.

    No ``Exception``, so that the function itself does not catch it.
    """


def only(holds: bool, what: str) -> None:
    """Go on only where something holds.

    Raises:
        CannotTraceError: it does not.
    """
    if not holds:
        raise CannotTraceError(what)


def _refusal(says: str) -> Any:
    """A method that refuses, in words that name what it is a method of."""

    def refuse(self: Symbolic, *_: Any, **__: Any) -> Any:
        raise CannotTraceError(says.format(self.what))

    return refuse


class Symbolic:
    """Placeholder of a value that is known only when the function runs; ``what`` is its kind, as a phrase."""

    __slots__ = ()
    what = "an array"

    def lifted(self) -> Array:
        """As an array, where that can be."""
        raise CannotTraceError(f"computes with {self.what}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # NumPy and Python ask for protocols
        raise CannotTraceError(f"uses .{name} of {self.what}, which is not known here")

    __array__ = _refusal("hands {} to code that is not known here")
    __iter__ = _refusal("goes through {} whose length is known only when it runs")
    __bool__ = __contains__ = _refusal("decides by the value of {}")
    __index__ = __int__ = __float__ = __complex__ = __len__ = _refusal("needs the value of {} as a number of Python's")
    __str__ = __repr__ = __format__ = __fspath__ = _refusal("writes the value of {} as text")


@dataclass(frozen=True)
class NumPy:
    """NumPy's operations on arrays as ops, as ``functions`` knows them and arrays ask for them.

    Attributes:
        function: a function of NumPy's -> what does the same.
        methods: name of a method -> a function of the array and its arguments.
        item: what ``array[key]`` gives.
        replaced: the tensor after ``array[key] = value``.
    """

    function: Callable[[Any], Callable[..., Any]]
    methods: Mapping[str, Callable[..., Any]]
    item: Callable[[Any, Any], Any]
    replaced: Callable[[Any, Any, Any], Any]


class Array(NDArrayOperatorsMixin, Symbolic):
    """A tensor in place of an array, of a NumPy scalar, or of a number of Python's.

    Attributes:
        tensor: of a static rank.
        number: ``int`` or ``float`` where it stands for a number of Python's, whose dtype gives way to an array's.
        scalar: whether it is a number, NumPy's or Python's, which nothing changes in place.
        viewed: whether another array may share its memory, so that a change in place would be seen there.
        seen: its values in the recorded calls, where it is a number and they are known.
    """

    __slots__ = ("_viewed", "number", "scalar", "seen", "tensor")
    _numpy: ClassVar[NumPy]

    def __init__(self, tensor: Any, number: type | None = None, *, scalar: bool = False, view: Array | None = None):
        """Take a tensor; ``view`` is the array whose memory it may share."""
        self.tensor = tensor
        self.number = number
        self.seen: tuple[Any, ...] | None = None
        self.scalar = scalar or number is not None
        self._viewed: list[bool] = [False] if view is None else view._viewed
        if view is not None:
            self._viewed[0] = True

    @classmethod
    def of(cls, tensor: Any, number: type | None = None) -> Array:
        """Result of NumPy's: a number where it has no axis."""
        return cls(tensor, number, scalar=tensor.shape.rank == 0)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's, as the array would have it."""
        return np.dtype(self.tensor.dtype.as_numpy_dtype)

    @property
    def kind(self) -> Any:
        """Type for NumPy's promotion: a dtype, or the type of a number of Python's."""
        return self.number or self.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return int(self.tensor.shape.rank)

    @property
    def shape(self) -> tuple[Any, ...]:
        """A number for each axis, or an array that stands for one."""
        return tuple(self.length(axis) for axis in range(self.ndim))

    @property
    def size(self) -> Any:
        """The number of values."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[Any, ...]:
        """Bytes from one value to the next along each axis, as of an array that is no part of another."""
        only(self.ndim > 0, "asks for the strides of a number")
        found: list[Any] = [self.dtype.itemsize]
        for axis in range(self.ndim - 1, 0, -1):
            found.insert(0, found[0] * self.length(axis))
        return tuple(found)

    @property
    def T(self) -> Array:  # noqa: N802 - NumPy's name
        """With its axes the other way round."""
        return Array(tf.transpose(self.tensor), view=self)

    @property
    def real(self) -> Array:
        """The real part."""
        return Array(tf.math.real(self.tensor), view=self) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Array:
        """The imaginary part."""
        return Array(tf.math.imag(self.tensor) if self.dtype.kind == "c" else tf.zeros_like(self.tensor), view=self)

    def length(self, axis: int) -> Any:
        """Length of an axis: a number, or an array that stands for one where it is not known."""
        known = self.tensor.shape[axis]
        return int(known) if known is not None else Array(tf.shape(self.tensor, tf.int64)[axis], int)

    def __getattr__(self, name: str) -> Any:
        if name in self._numpy.methods:
            method = self._numpy.methods[name]
            return Method(lambda *arguments, **named: method(self, *arguments, **named))
        return super().__getattr__(name)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, out: Any = (), **named: Any) -> Any:
        only(method == "__call__", f"calls numpy.{function.__name__}.{method}, which is not known here")
        if not out:
            return ufunc(function, *inputs, **named)
        (target,) = out  # of ``+=`` and the like, which change an array in place
        only(
            target is inputs[0] and isinstance(target, Array),
            f"calls numpy.{function.__name__} with out, which is not known here",
        )
        return target._change(ufunc(function, *inputs, **named))

    def _change(self, result: Array) -> Array:
        """The array after ``+=`` and the like: a number is another one, an array is changed in place."""
        if self.scalar:
            return result
        only(not self._viewed[0], "changes in place an array that may share its memory with another")
        only(np.can_cast(result.dtype, self.dtype, "same_kind"), f"puts {result.dtype} into an array of {self.dtype}")
        self.tensor = tf.cast(result.tensor, self.dtype)
        return self

    def __array_function__(self, function: Any, _types: Any, arguments: Any, named: Mapping[str, Any]) -> Any:
        return self._numpy.function(function)(*arguments, **named)

    def __getitem__(self, key: Any) -> Array:
        return self._numpy.item(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        free = not (self._viewed[0] or self.scalar)
        only(free, "assigns to a part of an array that may share its memory with another")
        self.tensor = self._numpy.replaced(self, key, value)

    def __iter__(self) -> Iterator[Array]:
        length = self.length(0) if self.ndim else 0
        known = self.ndim > 0 and not isinstance(length, Array)
        only(known, "goes through an array whose length is known only when it runs")
        return iter([self[number] for number in range(length)])

    def lifted(self) -> Array:
        """Itself."""
        return self


class Method:
    """A method of an array, bound to it: called as such, and told from functions of the user's."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the method."""
        return self._call(*arguments, **named)


def lifted(value: Any) -> Array:
    """A value as an array: what NumPy's ``asarray`` makes of it, or of what holds traced arrays a stack of them.

    Raises:
        CannotTraceError: it is not made of numbers.
    """
    if isinstance(value, Symbolic):
        return value.lifted()
    if isinstance(value, tf.Tensor | tf.Variable):
        tensor = tf.convert_to_tensor(value)
        dtype = tensor.dtype
        number = dtype.is_floating or dtype.is_complex or dtype.is_integer or dtype.is_bool
        known = tensor.shape.rank is not None and number
        only(known, "computes with a tensor of which the rank or the type is not known")
        return Array(tensor)
    if holds_traced(value):
        only(isinstance(value, list | tuple), f"makes an array of a {type(value).__name__}")
        parts = [lifted(one) for one in value]
        dtype = result_dtype(*parts)
        if any(isinstance(one, Spread) for one in value):
            items = [one if isinstance(one, Spread) else Spread(Array(lifted(one).tensor[None])) for one in value]
            return Array(tf.concat([tf.cast(one.items.tensor, dtype) for one in items], 0))
        return Array(tf.stack([tf.cast(one.tensor, dtype) for one in parts]))
    array = np.asarray(value)
    known = array.dtype.kind in "biufc" and array.dtype.char not in "gG"
    only(known, f"computes with {type(value).__name__} of {array.dtype}")
    number = type(value) if type(value) in (int, float) else None
    return Array(tf.constant(array, array.dtype), number, scalar=np.isscalar(value))


class Spread(Symbolic):
    """Items of a list of Python's of which the number is known only when it runs."""

    __slots__ = ("items",)
    what = "a list"

    def __init__(self, items: Array) -> None:
        self.items = items

    def lifted(self) -> Array:
        """All of them."""
        return self.items


def result_dtype(*values: Array) -> np.dtype[Any]:
    """The dtype that NumPy gives what is made of some arrays; a number of Python's gives way."""
    kinds = [one.number(0) if one.number is not None else one.dtype for one in values]
    return np.dtype(np.result_type(*kinds))


def holds_traced(value: Any, depth: int = 4) -> bool:
    """Whether a value is a traced one, or holds one."""
    if isinstance(value, Symbolic):
        return True
    if not depth:
        return False
    if isinstance(value, Mapping):
        return any(holds_traced(one, depth - 1) for one in value.values())
    return isinstance(value, list | tuple | set | slice) and any(
        holds_traced(one, depth - 1)
        for one in ((value.start, value.stop, value.step) if isinstance(value, slice) else value)
    )


def ufunc(function: Any, *inputs: Any, dtype: Any = None, **named: Any) -> Array:
    """Result of a ufunc, by the loop that NumPy would take."""
    operation = UFUNCS.get(function)
    if operation is None or named:
        what = f" with {', '.join(named)}" if named else ""
        raise CannotTraceError(f"calls numpy.{function.__name__}{what}, which is not known here")
    given = [lifted(one) for one in inputs]
    numbers = all(one.number is not None for one in given)
    kinds = [one.dtype if numbers else one.kind for one in given]
    loop = {} if dtype is None else {"signature": (*(None for _ in given), np.dtype(dtype))}
    *wanted, result = function.resolve_dtypes((*kinds, None), **loop)
    for one, kind in zip(given, wanted, strict=True):
        _check_number(one, kind)
    found = operation(*(tf.cast(one.tensor, kind) for one, kind in zip(given, wanted, strict=True)))
    number = {"i": int, "f": float}.get(result.kind) if numbers else None
    return Array.of(tf.cast(found, result), number)


def _check_number(one: Array, wanted: np.dtype[Any]) -> None:
    """A number of Python's that the dtype cannot hold is an error to NumPy."""
    known = tf.get_static_value(one.tensor) if one.number is int and wanted.kind in "iu" else None
    if known is not None:
        wanted.type(int(known))  # raises OverflowError


def _divided(operation: Any) -> Any:
    """A whole number divided by zero, or what remains of it, is zero to NumPy, and an error to TensorFlow."""

    def divided(a: Any, b: Any) -> Any:
        known = tf.get_static_value(b)
        if a.dtype.is_floating or (known is not None and np.all(known)):
            return operation(a, b)
        zero = tf.equal(b, 0)
        return tf.where(zero, tf.zeros([], a.dtype), operation(a, tf.where(zero, tf.ones([], b.dtype), b)))

    return divided


def _in_double(function: Any) -> Any:
    """In double precision, so that what should be whole is: 3, not 2.9999998."""
    return lambda x: tf.cast(function(tf.cast(x, tf.float64)), x.dtype)


def _of_floats(function: Any) -> Any:
    """Whole numbers are rounded already."""
    return lambda x: function(x) if x.dtype.is_floating else x


def _or_truth(whole: Any, truth: Any) -> Any:
    """Chooses between two ops: one of numbers, and another of truth values."""
    return lambda *given: truth(*given) if given[0].dtype == tf.bool else whole(*given)


def _matmul(a: Any, b: Any) -> Any:
    only(a.shape.rank and b.shape.rank, "multiplies matrices with a number")
    gone = [axis for axis, one in ((-2, a), (-1, b)) if one.shape.rank == 1]
    result = tf.matmul(a[None] if -2 in gone else a, b[:, None] if -1 in gone else b)
    return tf.squeeze(result, gone) if gone else result


_SAME: Final = (
    *("subtract", "maximum", "minimum", "negative", "sign", "square", "sqrt", "reciprocal", "exp", "expm1", "log"),
    *("log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "less", "less_equal", "greater", "greater_equal", "equal"),
    *("not_equal",),
)
"""Names that NumPy and ``tf.math`` have for the same."""
_OF_TNP: Final = (
    *("arcsin", "arccos", "arctan", "arctan2", "hypot", "deg2rad", "logical_and", "logical_or", "logical_not"),
)
"""Functions that ``tf.experimental.numpy`` has as NumPy does; of others its dtypes or values differ."""
UFUNCS: Final[dict[Any, Callable[..., Any]]] = {
    **{getattr(np, name): getattr(tf.math, name) for name in _SAME},
    **{getattr(np, name): getattr(tf.experimental.numpy, name) for name in _OF_TNP},
    np.add: _or_truth(tf.add, tf.logical_or),
    np.multiply: _or_truth(tf.multiply, tf.logical_and),
    np.true_divide: tf.divide,
    np.floor_divide: _divided(tf.math.floordiv),
    np.remainder: _divided(tf.math.floormod),
    np.power: tf.pow,
    np.float_power: tf.pow,
    np.matmul: _matmul,
    np.positive: tf.identity,
    np.absolute: lambda x: x if x.dtype == tf.bool or x.dtype.is_unsigned else tf.abs(x),
    np.fabs: tf.abs,
    np.radians: tf.experimental.numpy.deg2rad,
    np.exp2: lambda x: tf.pow(tf.constant(2, x.dtype), x),
    np.log2: _in_double(lambda x: tf.math.log(x) / math.log(2)),
    np.log10: _in_double(lambda x: tf.math.log(x) / math.log(10)),
    np.floor: _of_floats(tf.floor),
    np.ceil: _of_floats(tf.math.ceil),
    np.trunc: _of_floats(lambda x: tf.where(x < 0, tf.math.ceil(x), tf.floor(x))),
    np.rint: tf.round,
    np.isnan: tf.math.is_nan,
    np.isinf: tf.math.is_inf,
    np.isfinite: tf.math.is_finite,
    np.conjugate: tf.math.conj,
    np.bitwise_and: _or_truth(tf.bitwise.bitwise_and, tf.logical_and),
    np.bitwise_or: _or_truth(tf.bitwise.bitwise_or, tf.logical_or),
    np.bitwise_xor: _or_truth(tf.bitwise.bitwise_xor, tf.math.logical_xor),
    np.invert: _or_truth(tf.bitwise.invert, tf.logical_not),
    np.left_shift: tf.bitwise.left_shift,
    np.right_shift: tf.bitwise.right_shift,
}
"""Ufunc of NumPy's -> what gives the same, of tensors in the dtype of the loop that NumPy takes."""
