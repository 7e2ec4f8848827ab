"""Calls in a function that is traced: of the user's own functions, of NumPy, of Python, or of what is refused.

A call without a traced array gives the same each time that the function runs, if what it calls is known to depend on
its arguments alone; it is made once, while the function is traced. So only libraries that compute are called.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np
import tensorflow as tf

from xttsbench.fixes.native import files, text
from xttsbench.fixes.native.arrays import (
    UFUNCS,
    Array,
    CannotTraceError,
    Method,
    Spread,
    Symbolic,
    holds_traced,
    lifted,
    only,
    ufunc,
)
from xttsbench.fixes.native.arrays.functions import FUNCTIONS, METHODS, numpy_function
from xttsbench.fixes.native.control import CALL, loops, rows
from xttsbench.fixes.native.control.branches import negated, truth
from xttsbench.fixes.native.libraries import library_function
from xttsbench.fixes.native.written.origins import OPERATORS, Origins
from xttsbench.pipeline.source import call_of, is_tensorflow, is_users

# Packages whose functions give what their arguments say, but for those below
_COMPUTING: Final = (
    *("builtins", "numpy", "math", "cmath", "operator", "_operator", "functools", "itertools", "collections", "re"),
    *("string", "enum", "dataclasses", "copy", "typing", "fractions", "statistics", "scipy", "librosa", "tensorflow"),
    *("pathlib", "posixpath", "_struct", "struct", "_collections", "_functools", "keras"),
    *("decimal", "unicodedata", "bisect"),
)
_OUTSIDE: Final = (
    *("numpy.random", "scipy.io", "numpy.lib._npyio", "scipy.stats", "librosa.core.audio", "tensorflow.io.gfile"),
)
_OUTSIDE_NAMES: Final = (
    *("open", "input", "print", "exec", "eval", "compile", "globals", "locals", "vars", "setattr", "delattr"),
    *("__import__", "breakpoint", "id", "hash", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "save", "savez"),
    *("savetxt", "tofile", "stream", "dump"),
)
_OF_FILES: Final = frozenset(dir(Path)) - frozenset(dir(PurePath))  # what paths have that looks at files
_HANDS_ON: Final = (*(zip, enumerate, tuple, dict, reversed, isinstance, getattr, type, callable, slice, iter, next),)
"""Functions of Python's that look at what they are given no closer than at its length."""
_WITH_TRACED: Final = {**text.FUNCTIONS, **files.OF_PATHS, **files.FUNCTIONS}
_OF_TEXT: Final[Mapping[str, Callable[..., Any]]] = {"join": text.join_method, "format": text.format_method}
_IN_PLACE: Final[Mapping[str, Any]] = {
    symbol: getattr(operator, f"i{one.__name__.strip('_')}") for symbol, one in OPERATORS.items()
}
_MATH: Final = {
    getattr(math, name): getattr(np, name)
    for name in (
        "sqrt",
        "exp",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "tanh",
        "hypot",
        "radians",
        "fabs",
    )
}
_MOST_CALLS: Final = 20_000  # more are a long loop, which would be as many ops


class Calls:
    """Makes the calls of one trace."""

    def __init__(self, rewritten: Callable[[Any], Any], origins: Origins) -> None:
        """Take what makes of a user's function one whose calls and subscripts come here, and where arrays are noted."""
        self._rewritten, self.origins = rewritten, origins
        self.names: dict[str, str] = {}  # the user's names of tensors, by the tensors' own
        self.seen: dict[
            str, tuple[Any, ...]
        ] = {}  # of arguments that are tensors, in the recorded calls, by their names
        self.graph: Any = None  # that of the function; names in those of branches are others
        self._count = 0

    def call(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """Result of a call in the function's source.

        Raises:
            CannotTraceError: it cannot be written as ops, or what it gives depends on more than its arguments.
        """
        result = self._made(function, arguments, named)
        if isinstance(result, np.ndarray):
            self.origins.call(function, arguments, named, result)
        return result

    def _made(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self._count += holds_traced((arguments, named))
        only(self._count <= _MOST_CALLS, f"makes more than {_MOST_CALLS} calls, too many for a graph")
        if isinstance(function, Method) or isinstance(getattr(function, "__self__", None), Symbolic):
            return function(*arguments, **named)
        if isinstance(function, functools.partial):
            return self._made(function.func, (*function.args, *arguments), {**function.keywords, **named})
        if isinstance(function, functools._lru_cache_wrapper):
            return self._made(function.__wrapped__, arguments, named)
        method = getattr(function, "__func__", None) if isinstance(function, types.MethodType) else None
        if isinstance(method, types.FunctionType) and is_users(method):  # compiled ones have code as well
            return self._rewritten(method)(function.__self__, *arguments, **named)
        if isinstance(function, types.FunctionType) and is_users(function):
            return self._rewritten(function)(*arguments, **named)
        if (own := _own_call(function)) is not None:
            return self._rewritten(own)(function, *arguments, **named)
        traced = holds_traced((arguments, named))
        if traced and (same := _of(_PYTHON, function)) is not None:
            return same(*arguments, **named)
        if traced and function is map:
            return rows.listed(arguments[1], lambda one: self.call(arguments[0], one))
        if (same := _of(_WITH_TRACED if traced else files.FUNCTIONS, function)) is not None:
            return _fitting(same, function, arguments, named)
        if (same := library_function(function, traced=traced)) is not None:
            return _fitting(functools.partial(same, self.call), function, arguments, named)
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
        if isinstance(owner, list) and name == "extend":
            return owner.extend(rows.spread(*arguments))
        if isinstance(owner, list) and name in ("append", "insert"):
            return function(*arguments, **named)
        if isinstance(owner, str | bytes) and name in _OF_TEXT:
            return _OF_TEXT[name](owner, *arguments, **named)
        if isinstance(owner, Mapping) and name == "get":
            return rows.looked_up(self.origins, owner, *(arguments if len(arguments) > 1 else (*arguments, None)))
        if isinstance(owner, str | list | tuple) and name in ("index", "find"):
            return rows.place_in(self.origins, owner, *arguments, strict=name == "index")
        if isinstance(arguments[0], Symbolic) and getattr(function, "__objclass__", None) in (str, bytes):
            return getattr(arguments[0], name)(*arguments[1:], **named)
        if any(function is one for one in _HANDS_ON):
            return function(*arguments, **named)
        if (same := _of(_MATH, function)) is not None:
            return _number(ufunc(same, *arguments), float)
        raise CannotTraceError(f"hands an array to {_name(function)}, which is not known here")

    def item(self, value: Any, key: Any) -> Any:
        """Result of a subscript in the function's source."""
        value = rows.as_row(value) if rows.is_open(value) else value
        if isinstance(value, np.ndarray | list | tuple) and holds_traced(key) and not isinstance(key, slice):
            return lifted(value)[key]
        if isinstance(value, Mapping) and isinstance(key, Symbolic):
            return rows.looked_up(self.origins, value, key)
        if isinstance(value, Symbolic) and not isinstance(value, Array):
            return value[key]  # type: ignore[index]
        if isinstance(value, list | tuple) and holds_traced(key):
            raise CannotTraceError("takes as much of a list as the values of an array say")
        only(type(value).__module__ != "os", "reads the environment")
        if holds_traced(key) and not isinstance(value, Array | tf.Tensor | np.ndarray):
            raise CannotTraceError(f"looks up the value of an array in a {type(value).__name__}")
        result = value[_bare(key) if isinstance(value, tf.Tensor) else key]
        if isinstance(result, np.ndarray):
            self.origins.item(value, key, result)
        return result

    def stored(self, target: Any, key: Any, value: Any, symbol: str | None = None) -> Any:
        """Value of a variable after ``variable[key] = value``, or ``variable[key] += value`` and the like."""
        if isinstance(target, np.ndarray) and holds_traced((key, value)):
            only(_names_of(target) == 1, "assigns to an array that has several names")
            target = lifted(target.copy())
        if symbol is not None:
            shared = target._viewed[0] if isinstance(target, Array) else False
            value = OPERATORS[symbol](self.item(target, key), value)
            if isinstance(target, Array):
                target._viewed[0] = shared  # the part is not kept
        target[key] = value
        return target

    def operated(self, symbol: str, first: Any, second: Any) -> Any:
        """Result of an operator in the function's source."""
        if symbol == "%" and isinstance(first, str) and holds_traced(second):
            return text.percent(first, second)
        if symbol == "/" and isinstance(first, PurePath) and isinstance(second, text.Text):
            return files.made_path(first, second)
        if symbol == "*" and isinstance(first, list) and isinstance(second, Array) and not second.ndim:
            return rows.repeated(first, second)
        result = OPERATORS[symbol](first, second)
        if isinstance(result, np.ndarray):
            self.origins.operator(symbol, first, second, result)
        return result

    def increased(self, symbol: str, first: Any, second: Any) -> Any:
        """Result of ``+=`` and the like in the function's source."""
        if symbol == "+" and isinstance(first, list) and isinstance(second, Symbolic):
            first.extend(rows.spread(second))
            return first
        return _IN_PLACE[symbol](first, second)

    def is_in(self, key: Any, table: Any) -> Any:
        """Result of ``key in table`` in the function's source."""
        if isinstance(key, Symbolic) or isinstance(table, text.Text):
            return rows.is_in(self.origins, key, table)
        return key in table

    def is_not_in(self, key: Any, table: Any) -> Any:
        """Result of ``key not in table`` in the function's source."""
        return negated(self.is_in(key, table))

    def named(self, name: str, value: Any) -> Any:
        """A value that a variable in the function's source gets."""
        tensor = _bare(value) if isinstance(value, Array | text.Text | tf.Tensor) else None
        if tensor is not None and not hasattr(tensor, "numpy") and tensor.graph is self.graph:
            self.names.setdefault(tensor.name, name)
        return value

    def as_array(self, value: Any) -> Any:
        """Result of ``value.numpy()``; of a tensor that is not known yet, a traced value."""
        if not (isinstance(value, tf.Tensor) and _symbolic((value,))):
            return value.numpy()
        if value.dtype != tf.string:
            return Array(value)
        only(value.shape.rank == 0, "computes with an array of text")
        return text.Text(value, self.seen.get(value.name), bytes)


def _names_of(target: Any) -> int:
    """Number of variables of the traced functions that hold an array, or a view of it."""
    count = 0
    for frame, _ in traceback.walk_stack(sys._getframe(2)):
        if CALL in frame.f_globals:
            for name, one in frame.f_locals.items():
                held = isinstance(one, np.ndarray) and (one is target or one.base is target)
                count += held and name not in frame.f_code.co_freevars
    return count


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
    if isinstance(value, text.Text | text.Texts):
        return value.tensor
    return value.lifted().tensor if isinstance(value, Symbolic) else value


def _own_call(function: Any) -> Any:
    """The method that the call of an object of the user's class runs."""
    if isinstance(function, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc):
        return None
    call = call_of(function)
    return call if isinstance(call, types.FunctionType) and is_users(call) else None


def _of(table: Mapping[Any, Any], function: Any) -> Any:
    """Entry of a table for a function; ``None`` for others, and for objects that are called."""
    kinds = (types.BuiltinFunctionType, types.FunctionType, type, np.ufunc)
    return table.get(function) if isinstance(function, kinds) else None


def _is_numpys(function: Any) -> bool:
    module = str(getattr(function, "__module__", None)).split(".")[0]
    return _of(FUNCTIONS, function) is not None or (module == "numpy" and not isinstance(function, type))


def is_known(function: Any) -> bool:
    """Whether a function is one of NumPy's or Python's that is known here by itself."""
    tables = (files.FUNCTIONS, FUNCTIONS, UFUNCS)
    return not isinstance(function, type) and any(_of(table, function) is not None for table in tables)


def _refuse_outside(function: Any) -> None:
    if isinstance(function, type) and is_users(getattr(function, "__init__", None)):
        return
    if _is_outside(function):
        raise CannotTraceError(f"calls {_name(function)}: what that gives or does is not known before it runs")


def _is_outside(function: Any) -> bool:
    module = _module(function)
    known = module.split(".")[0] in _COMPUTING and not module.startswith(_OUTSIDE)
    name = getattr(function, "__name__", "")
    return not known or name in _OUTSIDE_NAMES or (module == "pathlib" and name in _OF_FILES)


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
    if rows.is_open(value):
        return sum(_length(one.items) if isinstance(one, Spread) else 1 for one in value)
    if isinstance(value, text.Text | text.Texts | rows.Row | loops.Grown):
        return value.length()
    return value.length(0) if isinstance(value, Array) and value.ndim else len(value)


def _converted(kind: type) -> Callable[[Any], Any]:
    def converted(value: Any) -> Any:
        if isinstance(value, text.Text):
            return text.number_of(value, kind)
        if isinstance(value, rows.Each):
            return rows.converted(kind)(value)
        found = _number(lifted(value), kind)
        if isinstance(value, Array) and value.seen is not None:
            found.seen = tuple(kind(one) for one in value.seen)
        return found

    return converted


def _listed(value: Any) -> Any:
    if isinstance(value, rows.Row):
        return rows.Row(value.items)
    return value if isinstance(value, text.Texts) else list(value)


def _has(value: Any, name: str) -> bool:
    return hasattr(value.kind if isinstance(value, text.Text) else value, name)


def _rounded(value: Any, digits: Any = None) -> Array:
    only(digits is None and not lifted(value).ndim, "rounds to digits")
    return _number(ufunc(np.rint, value), int)


def _whole(function: Any) -> Any:
    return lambda value: _number(ufunc(function, value), int)


def _extreme(function: Any) -> Any:
    def extreme(*values: Any) -> Any:
        if len(values) == 1 and isinstance(values[0], rows.Row) and values[0].items.ndim == 1:
            of_all = FUNCTIONS[np.max if function is np.maximum else np.min](values[0].items)
            return Array(of_all.tensor, values[0].items.number, scalar=True)
        given = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        single = len(given) > 1 and not any(lifted(one).ndim for one in given)
        only(single, "takes the largest or smallest of what is not single numbers")
        return functools.reduce(lambda a, b: ufunc(function, a, b), given)

    return extreme


def _sum(values: Any, start: Any = 0) -> Any:
    if isinstance(values, rows.Row):
        whole = tf.reduce_sum(values.items.tensor, 0)
        return Array.of(whole, values.items.number) + start
    return functools.reduce(lambda a, b: a + b, values, start)


def _is_instance(value: Any, kinds: Any) -> bool:
    if isinstance(value, text.Text):
        return issubclass(value.kind, kinds)
    if not isinstance(value, Array):
        return isinstance(value, kinds)
    stands_for = value.number(0) if value.number else value.dtype.type(0) if value.scalar else np.zeros(1, value.dtype)
    return isinstance(stands_for, kinds)


_PYTHON: Final[dict[Any, Any]] = {
    len: _length,
    int: _converted(int),
    float: _converted(float),
    bool: lambda value: Array(truth(value), scalar=True),
    ord: rows.code_of,
    range: rows.TracedRange,
    list: _listed,
    hasattr: _has,
    abs: lambda value: ufunc(np.absolute, value),
    round: _rounded,
    max: _extreme(np.maximum),
    min: _extreme(np.minimum),
    sum: _sum,
    enumerate: loops.enumerated,
    zip: loops.zipped,
    math.ceil: _whole(np.ceil),
    math.floor: _whole(np.floor),
    math.trunc: _whole(np.trunc),
    isinstance: _is_instance,
}
"""Function of Python's -> what does the same with traced arrays."""
