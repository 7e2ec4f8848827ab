"""Calls in a function that is traced: of the user's own functions, of NumPy, of Python, or of what is refused.

A call without a traced array gives the same each time that the function runs, if what it calls is known to depend on
its arguments alone; it is made once, while the function is traced. So only libraries that compute are called.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native.array import Array, CannotTraceError, Method, holds_traced, lifted
from xttsbench.fixes.native.numpy_functions import FUNCTIONS, METHODS, numpy_function
from xttsbench.fixes.native.origins import OPERATORS, Origins
from xttsbench.fixes.native.ufuncs import ufunc
from xttsbench.pipeline.graph.registry import is_tensorflow
from xttsbench.pipeline.purity.source import call_of, is_users

_COMPUTING: Final = (
    *("builtins", "numpy", "math", "cmath", "operator", "_operator", "functools", "itertools", "collections", "re"),
    *("string", "enum", "dataclasses", "copy", "typing", "fractions", "statistics", "scipy", "librosa", "tensorflow"),
    *("posixpath", "_struct", "struct", "_collections", "_functools", "keras"),
)
"""Packages whose functions give what their arguments say, but for those below."""
_OUTSIDE: Final = (
    "numpy.random",
    "scipy.io",
    "numpy.lib._npyio",
    "scipy.stats",
    "librosa.core.audio",
    "tensorflow.io.gfile",
)
_OUTSIDE_NAMES: Final = (
    *("open", "input", "print", "exec", "eval", "compile", "globals", "locals", "vars", "setattr", "delattr"),
    *("__import__", "breakpoint", "id", "hash", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "save", "savez"),
    *("savetxt", "tofile", "stream", "dump"),
)
_HANDS_ON: Final = (
    *(zip, enumerate, list, tuple, dict, reversed, isinstance, hasattr, getattr, type, callable, slice, iter, next),
)
"""Functions of Python's that look at what they are given no closer than at its length."""
_MATH: Final = {
    **{getattr(math, one): getattr(np, one) for one in ("sqrt", "exp", "log", "log2", "log10", "log1p", "sin", "cos")},
    **{getattr(math, one): getattr(np, one) for one in ("tan", "tanh", "hypot", "radians", "fabs")},
}
_MOST_CALLS: Final = 20_000
"""A function that makes more is a long loop, which would be as many ops."""


class Calls:
    """Makes the calls of one trace."""

    def __init__(self, rewritten: Callable[[Any], Any], origins: Origins) -> None:
        """Take what makes of a user's function one whose calls and subscripts come here, and where arrays are noted."""
        self._rewritten, self.origins = rewritten, origins
        self.names: dict[str, str] = {}
        """The user's names of tensors, by the tensors' own."""
        self._count = 0

    def call(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """What a call in the function's source gives.

        Raises:
            CannotTraceError: it cannot be written as ops, or what it gives depends on more than its arguments.
        """
        result = self._made(function, arguments, named)
        if isinstance(result, np.ndarray):
            self.origins.call(function, arguments, named, result)
        return result

    def _made(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self._count += 1
        if self._count > _MOST_CALLS:
            raise CannotTraceError(f"makes more than {_MOST_CALLS} calls, too many for a graph")
        if isinstance(function, Method):
            return function(*arguments, **named)
        if isinstance(function, functools.partial):
            return self._made(function.func, (*function.args, *arguments), {**function.keywords, **named})
        inner = getattr(function, "__wrapped__", None)
        if isinstance(function, functools._lru_cache_wrapper):
            return self._made(inner, arguments, named)
        method = getattr(function, "__func__", None) if isinstance(function, types.MethodType) else None
        if isinstance(method, types.FunctionType) and is_users(method):  # compiled ones have code as well
            return self._rewritten(method)(function.__self__, *arguments, **named)
        if isinstance(function, types.FunctionType) and is_users(function):
            return self._rewritten(function)(*arguments, **named)
        own = _own_call(function)
        if own is not None:
            return self._rewritten(own)(function, *arguments, **named)
        traced = holds_traced((arguments, named))
        if traced and isinstance(function, types.BuiltinFunctionType | type) and function in _PYTHON:
            return _PYTHON[function](*arguments, **named)
        if isinstance(function, np.ufunc) and (traced or _symbolic(arguments)):
            return ufunc(function, *arguments, **named)
        if _is_numpys(function) and (traced or _symbolic(arguments)):
            return _fitting(numpy_function(function), function, arguments, named)
        if is_tensorflow(function) and not _is_outside(function):
            return function(*tf.nest.map_structure(_bare, arguments), **tf.nest.map_structure(_bare, named))
        if not traced:
            _refuse_outside(function)
            return function(*arguments, **named)
        return self._with_arrays(function, arguments, named)

    def _with_arrays(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if isinstance(owner, np.ndarray | np.generic) and name in METHODS:
            return METHODS[name](lifted(owner), *arguments, **named)
        if isinstance(owner, list) and name in ("append", "extend", "insert"):
            return function(*arguments, **named)
        if any(function is one for one in _HANDS_ON):
            return function(*arguments, **named)
        if isinstance(function, types.BuiltinFunctionType) and function in _MATH:
            return _number(ufunc(_MATH[function], *arguments), float)
        raise CannotTraceError(f"hands an array to {_name(function)}, which is not known here")

    def item(self, value: Any, key: Any) -> Any:
        """What a subscript in the function's source gives."""
        if isinstance(value, np.ndarray | list | tuple) and holds_traced(key) and not isinstance(key, slice):
            return lifted(value)[key]
        if isinstance(value, list | tuple) and holds_traced(key):
            raise CannotTraceError("takes as much of a list as the values of an array say")
        if type(value).__module__ == "os":
            raise CannotTraceError("reads the environment")
        if holds_traced(key) and not isinstance(value, Array | tf.Tensor | np.ndarray):
            raise CannotTraceError(f"looks up the value of an array in a {type(value).__name__}")
        result = value[_bare(key) if isinstance(value, tf.Tensor) else key]
        if isinstance(result, np.ndarray):
            self.origins.item(value, key, result)
        return result

    def operated(self, symbol: str, first: Any, second: Any) -> Any:
        """What an operator in the function's source gives."""
        result = OPERATORS[symbol](first, second)
        if isinstance(result, np.ndarray):
            self.origins.operator(symbol, first, second, result)
        return result

    def named(self, name: str, value: Any) -> Any:
        """A value that a variable in the function's source gets."""
        if isinstance(value, Array | tf.Tensor) and not hasattr(tensor := _bare(value), "numpy"):
            self.names.setdefault(tensor.name, name)
        return value

    def as_array(self, value: Any) -> Any:
        """What ``value.numpy()`` gives, of a tensor that is not known yet an array that is traced."""
        return Array(value) if isinstance(value, tf.Tensor) and _symbolic((value,)) else value.numpy()


def _fitting(operation: Any, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    try:
        return operation(*arguments, **named)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise CannotTraceError(f"calls {_name(function)} in a way that is not known here ({error})") from error


def _symbolic(values: Any) -> bool:
    return any(isinstance(one, tf.Tensor) and not hasattr(one, "numpy") for one in tf.nest.flatten(values))


def _bare(value: Any) -> Any:
    return value.tensor if isinstance(value, Array) else value


def _own_call(function: Any) -> Any:
    """The method that the call of an object of the user's class runs."""
    if isinstance(function, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc):
        return None
    call = call_of(function)
    return call if isinstance(call, types.FunctionType) and is_users(call) else None


def _is_numpys(function: Any) -> bool:
    known = isinstance(function, types.FunctionType | types.BuiltinFunctionType | type) and function in FUNCTIONS
    return known or (
        str(getattr(function, "__module__", None)).split(".")[0] == "numpy" and not isinstance(function, type)
    )


def _refuse_outside(function: Any) -> None:
    if isinstance(function, type) and is_users(getattr(function, "__init__", None)):
        return
    if _is_outside(function):
        raise CannotTraceError(f"calls {_name(function)}: what that gives or does is not known before it runs")


def _is_outside(function: Any) -> bool:
    module = _module(function)
    known = module.split(".")[0] in _COMPUTING and not module.startswith(_OUTSIDE)
    return not known or getattr(function, "__name__", "") in _OUTSIDE_NAMES


def _module(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        return str(type(owner).__module__)
    return str(getattr(function, "__module__", None) or type(function).__module__)


def _name(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__name__
    module = _module(function)
    return str(name) if module == "builtins" else f"{module}.{name}"


def _number(array: Array, kind: type) -> Array:
    if array.ndim:
        array = Array(tf.reshape(array.tensor, []))
    return Array(tf.cast(array.tensor, tf.int64 if kind is int else tf.float64), kind)


def _length(value: Any) -> Any:
    return value.length(0) if isinstance(value, Array) and value.ndim else len(value)


def _int(value: Any) -> Array:
    return _number(lifted(value), int)


def _float(value: Any) -> Array:
    return _number(lifted(value), float)


def _rounded(value: Any, digits: Any = None) -> Array:
    if digits is not None or lifted(value).ndim:
        raise CannotTraceError("rounds to digits")
    return _number(ufunc(np.rint, value), int)


def _extreme(function: Any) -> Any:
    def extreme(*values: Any) -> Any:
        given = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        if len(given) < 2 or any(lifted(one).ndim for one in given):
            raise CannotTraceError("takes the largest or smallest of what is not single numbers")
        return functools.reduce(lambda a, b: ufunc(function, a, b), given)

    return extreme


def _sum(values: Any, start: Any = 0) -> Any:
    return functools.reduce(lambda a, b: a + b, values, start)


def _is_instance(value: Any, kinds: Any) -> bool:
    if not isinstance(value, Array):
        return isinstance(value, kinds)
    stands_for = value.number(0) if value.number else value.dtype.type(0) if value.scalar else np.zeros(1, value.dtype)
    return isinstance(stands_for, kinds)


_PYTHON: Final[dict[Any, Any]] = {
    len: _length,
    int: _int,
    float: _float,
    abs: lambda value: ufunc(np.absolute, value),
    round: _rounded,
    max: _extreme(np.maximum),
    min: _extreme(np.minimum),
    sum: _sum,
    isinstance: _is_instance,
}
"""Function of Python's -> what does the same with traced arrays."""
