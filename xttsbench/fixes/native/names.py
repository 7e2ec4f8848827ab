"""Names of NumPy, ``math`` and Python beside what takes their place among TensorFlow's ops, as data.

A name that is in no table here has no equal, or one that means something else for some values: where a function calls
it with what comes from its arguments, it stays Python. Dtypes of operators and ufuncs are NumPy's own answer
(``resolve_dtypes``), so the tables have only what differs beyond that. Not here on purpose: ``take`` (negative indices
wrap in NumPy alone), ``argsort`` (ties), ``median`` and ``percentile`` (NaN), ``unwrap``, ``interp``, ``convolve``.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from xttsbench.owners import KERAS

OPERATORS: Final[Mapping[type[ast.AST], Any]] = {
    **{ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.true_divide},
    **{ast.FloorDiv: np.floor_divide, ast.Mod: np.remainder, ast.Pow: np.power, ast.MatMult: np.matmul},
    **{ast.BitAnd: np.bitwise_and, ast.BitOr: np.bitwise_or, ast.BitXor: np.bitwise_xor},
    **{ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal},
    **{ast.Eq: np.equal, ast.NotEq: np.not_equal},
}
"""Operator -> the ufunc of which it has the dtypes. Shifts are undefined beyond a number's bits, and left out."""

UFUNCS: Final[Mapping[Any, str]] = {
    getattr(np, name): f"tnp.{name}"
    for name in (
        *("add", "subtract", "multiply", "true_divide", "floor_divide", "remainder", "power", "matmul"),
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "maximum", "minimum"),
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "square", "absolute", "negative", "sign"),
        *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "sinh", "cosh", "tanh", "hypot", "reciprocal"),
        *("floor", "ceil", "isnan", "isinf", "isfinite", "deg2rad", "rad2deg", "bitwise_and", "bitwise_or"),
        *("bitwise_xor", "logical_and", "logical_or", "logical_xor", "logical_not", "conjugate"),
    )
} | {np.rint: "tf.round"}

KINDS: Final[Mapping[Any, str]] = {
    **dict.fromkeys((np.floor_divide, np.power, np.bitwise_and, np.bitwise_or, np.bitwise_xor), "iub"),
    np.power: "iufc",
    **dict.fromkeys((np.isnan, np.isinf, np.isfinite), "f"),
    **dict.fromkeys((np.floor, np.ceil, np.rint, np.hypot, np.arctan2, np.reciprocal), "f"),
    **dict.fromkeys((np.sign, np.negative), "if"),
}
"""Kinds of dtypes (NumPy's letters) for which a ufunc is the same, where that is not all: ``1.0 // 0.1`` is 9 in NumPy
and 10 in TensorFlow."""

SAME: Final[Mapping[Any, str]] = {
    getattr(np, name): kinds
    for names, kinds in {
        "sum mean": "iufb",
        "prod std var max min amax amin ptp": "iuf",
        "any": "b",
        "all count_nonzero": "iufb",
        "argmax argmin": "iu",  # NaN comes first in NumPy, and is passed over in TensorFlow
        "sort": "iu",  # the same
        "cumsum cumprod": "if",
        "diff clip": "if",
        "where nonzero": "iufb",
        "concatenate stack hstack vstack dstack append tile repeat": "iufbc",
        "reshape transpose swapaxes moveaxis expand_dims squeeze ravel flip fliplr flipud roll rot90": "iufbc",
        "broadcast_to atleast_1d atleast_2d": "iufbc",
        "zeros ones full": "iufb",
        "zeros_like ones_like full_like": "iufb",
        "array asarray ascontiguousarray": "iufbc",
        "dot einsum tensordot outer inner": "f",
        "linspace": "f",
        "angle": "fc",
        "real imag": "fc",
    }.items()
    for name in names.split()
}
"""Function of NumPy's -> kinds of dtypes for which that of ``tf.experimental.numpy`` is the same."""

PROMOTING: Final = frozenset({np.where, np.clip})
"""Functions whose Python numbers take the dtype of the arrays beside them."""


@dataclass(frozen=True, slots=True)
class Written:
    """Text in place of a call, by the arguments that it is given.

    Attributes:
        parameters: names of its arguments in their order.
        templates: names of the arguments that are given -> text, in which ``{name}`` is an argument.
        only: arguments that have one of these values, and are left out.
        kinds: kinds of dtypes of the first argument.
        floats: whether whole numbers are made ``float64`` first, as NumPy does.
        results: kinds of dtypes of the result.
        converts: whether the text gives ``int64``, and NumPy another dtype where it is asked for.
    """

    parameters: str
    templates: Mapping[str, str]
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    kinds: str = "iufbc"
    floats: bool = False
    results: str = "iufbc"
    converts: bool = False


def _written(template: str, **more: Any) -> Written:
    return Written("x", {"x": template}, **more)


_FFT: Final[Mapping[str, Any]] = {"axis": (-1,), "norm": (None, "backward")}
_PAD: Final = "tnp.pad({array}, {pad_width}, "
_ROUND: Final = Written("a decimals", {"a": "tf.round({a})"}, {"decimals": (0,)}, kinds="if")
_NORM: Final = "tf.norm({x}, axis={axis}"

WRITTEN: Final[Mapping[Any, Written]] = {
    np.fft.rfft: Written(
        "a n axis norm", {"a": "tf.signal.rfft({a})", "a n": "tf.signal.rfft({a}, [{n}])"}, _FFT, "iuf", floats=True
    ),
    np.fft.irfft: Written(
        "a n axis norm", {"a": "tf.signal.irfft({a})", "a n": "tf.signal.irfft({a}, [{n}])"}, _FFT, "c"
    ),
    np.fft.fft: Written("a n axis norm", {"a": "tf.signal.fft({a})"}, _FFT, "c"),
    np.fft.ifft: Written("a n axis norm", {"a": "tf.signal.ifft({a})"}, _FFT, "c"),
    np.linalg.norm: Written(
        "x ord axis keepdims",
        {"x": "tf.norm({x})", "x axis": f"{_NORM})", "x axis keepdims": f"{_NORM}, keepdims={{keepdims}})"},
        {"ord": (None,)},
        "f",
    ),
    np.pad: Written(
        "array pad_width mode constant_values",
        {
            "array pad_width": f"{_PAD}'constant')",
            "array pad_width mode": f"{_PAD}{{mode}})",
            "array pad_width constant_values": f"{_PAD}'constant', constant_values={{constant_values}})",
            "array pad_width mode constant_values": f"{_PAD}{{mode}}, constant_values={{constant_values}})",
        },
        kinds="iuf",
    ),
    np.arange: Written(
        "start stop step dtype",
        {
            **dict.fromkeys(("start", "start dtype"), "tf.range({start})"),
            **dict.fromkeys(("start stop", "start stop dtype"), "tf.range({start}, {stop})"),
            **dict.fromkeys(("start stop step", "start stop step dtype"), "tf.range({start}, {stop}, {step})"),
        },
        kinds="i",
        converts=True,
    ),
    np.round: _ROUND,
    np.around: _ROUND,
    np.copy: Written("a", {"a": "tf.identity({a})"}),
    np.shape: _written("tf.unstack(tf.shape({x}, tf.int64))"),
    np.size: _written("tf.size({x}, tf.int64)"),
    np.ndim: _written("len({x}.shape)"),
    builtins.len: _written("tf.shape({x}, tf.int64)[0]"),
    builtins.int: _written("tf.cast({x}, tf.int64)", kinds="iufb"),
    builtins.bool: _written("tf.cast({x}, tf.bool)", kinds="iufb"),
    builtins.float: _written("tf.cast({x}, tf.float64)", kinds="iufb"),
    builtins.abs: _written("tf.abs({x})", kinds="if"),
    builtins.round: _written("tf.cast(tf.round({x}), tf.int64)", kinds="f", results="i"),
    math.floor: _written("tf.cast(tf.floor({x}), tf.int64)", kinds="iuf", floats=True),
    math.ceil: _written("tf.cast(tf.math.ceil({x}), tf.int64)", kinds="iuf", floats=True),
    **{
        getattr(math, name): _written(f"tf.{name}({{x}})", kinds="iuf", floats=True, results="f")
        for name in ("sqrt", "exp", "sin", "cos", "tanh")
    },
    math.log: _written("tf.math.log({x})", kinds="iuf", floats=True),
    math.log10: _written("tnp.log10({x})", kinds="iuf", floats=True),
}
"""Function -> what is written in place of a call of it."""

MODES: Final = ("constant", "reflect", "symmetric")
"""Modes of ``np.pad`` that TensorFlow has."""
PAIRS: Final[Mapping[Any, str]] = {builtins.max: "tf.maximum", builtins.min: "tf.minimum"}
"""Function of two numbers of Python's of one type."""
LEFT: Final = frozenset({range, zip, enumerate, list, tuple, reversed, sum})
"""Functions of Python's that AutoGraph or operators carry over by themselves."""
CONTAINERS: Final = frozenset({"append", "extend", "insert", "get", "items", "keys", "values", "update", "pop"})
"""Methods of lists and dictionaries that hold tensors as well as arrays."""

METHODS: Final[Mapping[str, Any]] = {
    **{
        name: getattr(np, name)
        for name in (
            *("sum", "mean", "prod", "std", "var", "max", "min", "any", "all", "argmax", "argmin", "cumsum", "cumprod"),
            *("reshape", "transpose", "swapaxes", "squeeze", "ravel", "repeat", "clip", "dot", "round", "copy"),
        )
    },
    "flatten": np.ravel,
    "conj": np.conjugate,
}
"""Method of arrays -> the function of NumPy's that does the same with the array as its first argument."""
ATTRIBUTES: Final[Mapping[str, str]] = {
    "T": "tnp.transpose({x})",
    "shape": "tf.unstack(tf.shape({x}, tf.int64))",
    "size": "tf.size({x}, tf.int64)",
    "ndim": "len({x}.shape)",
    "dtype": "{x}.dtype.as_numpy_dtype",
    "real": "tnp.real({x})",
    "imag": "tnp.imag({x})",
}
"""Attribute of arrays -> what is written in its place."""
STATIC: Final = frozenset({"ndim", "dtype"})
"""Attributes of arrays that are known while a function is traced."""

COMPUTING: Final = frozenset(
    {
        *("builtins", "numpy", "math", "cmath", "operator", "_operator", "functools", "_functools", "itertools"),
        *("collections", "_collections", "scipy", "tensorflow", *KERAS, "dataclasses", "copy", "typing", "fractions"),
        *("statistics", "librosa"),
    }
)
"""Modules whose functions give the same for the same arguments, and do nothing else; the exceptions follow."""
OUTSIDE: Final = ("numpy.random", "scipy.io", "scipy.stats", "numpy.lib._npyio", "librosa.core.audio", "tensorflow.io")
OUTSIDE_NAMES: Final = frozenset(
    {
        *("open", "input", "print", "exec", "eval", "compile", "globals", "locals", "vars", "setattr", "delattr"),
        *("__import__", "breakpoint", "id", "hash", "next", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"),
        *("save", "savez", "savetxt", "tofile", "stream", "dump", "printoptions", "set_printoptions", "seterr"),
    }
)
