"""A Python function that computes with arrays as ops of TensorFlow: its own source, run once on traced arrays.

Its source, and that of the user's functions that it calls, is compiled anew with every call and subscript handed to
:class:`xttsbench.fixes.native.calls.Calls`; all else is Python as it stands, on objects that stand for arrays. Loops
and branches over what is known run while it is traced. What depends on the values of arrays, on the outside, or on
what an earlier call left is refused, with the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util import nest

from xttsbench.fixes.graph.functions import state
from xttsbench.fixes.native.arrays import Array, CannotTraceError, lifted, only
from xttsbench.fixes.native.rewritten import Rewritten
from xttsbench.fixes.native.text import Text, Texts, text
from xttsbench.fixes.native.written.origins import Origins
from xttsbench.pipeline.functions import is_random
from xttsbench.pipeline.nodes import FunctionLibrary
from xttsbench.pipeline.source import locate

_MOST_OPS: Final = 5_000
"""Ops of a traced function; more are a loop written out."""


class RefusedError(Exception):
    """A function that cannot be traced: why, as a sentence with file and line."""

    def __init__(self, reason: str, file: str | None, line: int | None) -> None:
        """Take a phrase and its place, as far as it is known."""
        super().__init__(reason if file is None else f"{reason} ({file}:{line})")
        self.reason, self.file, self.line = reason, file, line


@dataclass(frozen=True)
class Traced:
    """A function as ops.

    Attributes:
        function: a ``ConcreteFunction``.
        called: the user's names of tensors, by the tensors' names in its graph.
        origins: what gives the arrays that it has not been given.
    """

    function: Any
    called: dict[str, str]
    origins: Origins

    def __call__(self, *tensors: Any) -> Any:
        """What it gives, a tensor for each result."""
        return self.function(*tensors)


def trace(function: Any, *arguments: Any, **named: Any) -> Traced:
    """What a Python function computes, as ops: as it is written, else with branches and loops that values decide.

    Takes what :func:`_trace` does.

    Raises:
        RefusedError: it cannot be traced, or returns something else than is expected.
    """
    try:
        return _trace(function, *arguments, branches=False, **named)
    except RefusedError as error:
        if not error.reason.startswith(("decides by", "goes through")):
            raise
    return _trace(function, *arguments, branches=True, **named)


def _trace(
    function: Any,
    specs: Sequence[tf.TensorSpec],
    results: Sequence[tf.DType],
    *,
    scalars: Sequence[bool] = (),
    tensors: bool = False,
    unsure: Sequence[int] = (),
    seen: Sequence[Sequence[Any]] = (),
    structure: Any = None,
    branches: bool,
) -> Traced:
    """What a Python function computes, as ops.

    Args:
        function: as it is given to ``numpy_function`` or ``py_function``.
        specs: dtypes and shapes of its arguments; the ranks are known.
        results: dtypes that the graph expects of it.
        scalars: of each argument, whether it comes as a number of NumPy's in place of an array.
        tensors: whether it is given tensors (``py_function``).
        unsure: numbers of the arguments of which the rank was only seen, which is checked whenever the function runs.
        seen: the arguments of the recorded calls: what is read from a file is what those name.
        structure: of an element, where it is the body of a generator: its dtypes, to which the parts are converted.
        branches: whether its branches are handed over.

    Raises:
        RefusedError: it cannot be traced, or returns something else than is expected.
    """
    places: list[tuple[str, int]] = []
    rewriter = Rewritten(function, branches=branches)

    def whole(*tensors_given: Any) -> list[Any]:
        given = [
            tf.ensure_shape(one, one.shape) if number in unsure else one for number, one in enumerate(tensors_given)
        ]
        rewriter.calls.graph = tf.compat.v1.get_default_graph()
        values: list[Any] = list(zip(*seen, strict=True)) or [None] * len(given)
        arguments = given if tensors else [_argument(*one) for one in zip(given, scalars, values, strict=True)]
        rewriter.calls.seen = {
            one.name: tuple(map(_plain, known)) for one, known in zip(given, values, strict=True) if known
        }
        try:
            result = rewriter.calls.call(function, *arguments)
            return _results(result, results, tensors) if structure is None else _parts(result, structure)
        except BaseException as error:
            places.extend(rewriter.places(error))
            raise

    try:
        with tf.device(None):
            traced = tf.function(whole, autograph=False).get_concrete_function(*specs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's function raises what it likes
        known = locate(function)
        file, line = places[-1] if places else (known.file, known.line)
        raise RefusedError(_reason(error), file, line) from error
    where = locate(function)
    library = FunctionLibrary([traced.function_def, *traced.graph.as_graph_def().library.function])
    held = state(library, [traced.function_def.signature.name], python=False)
    if held is not None or is_random(library, [traced.function_def.signature.name]):
        raise RefusedError(f"runs {held or 'random ops'}, which holds state", where.file, where.line)
    if traced.captured_inputs:
        raise RefusedError("reads a tensor or variable from outside", where.file, where.line)
    if len(traced.function_def.node_def) > _MOST_OPS:
        raise RefusedError(f"is more than {_MOST_OPS} ops, a loop written out", where.file, where.line)
    return Traced(traced, rewriter.calls.names, rewriter.calls.origins)


def _plain(value: Any) -> Any:
    return value.numpy() if isinstance(value, tf.Tensor) else value


def _argument(tensor: Any, scalar: bool, seen: Sequence[Any] | None) -> Array | Text:
    if tensor.dtype == tf.string:
        only(not tensor.shape.rank, "is given an array of text")
        return Text(tensor, seen, bytes)
    array = Array(tensor, scalar=scalar)
    array.seen = None if seen is None or not scalar else tuple(seen)
    array._viewed[0] = True  # its memory is TensorFlow's
    return array


def _results(result: Any, expected: Sequence[tf.DType], tensors: bool) -> list[Any]:
    """What the function returns as tensors, one for each that is expected."""
    given = list(result) if isinstance(result, list | tuple) else [result]
    if len(given) != len(expected):
        raise CannotTraceError(f"returns {len(given)} results, and the graph expects {len(expected)}")
    found = []
    for one, dtype in zip(given, expected, strict=True):
        tensor = one.tensor if isinstance(one, Text) else one if isinstance(one, tf.Tensor) else lifted(one).tensor
        if tensor.dtype != dtype:
            if not tensors or isinstance(one, tf.Tensor):
                raise CannotTraceError(f"returns {tensor.dtype.name}, and the graph expects {dtype.name}")
            tensor = tf.cast(tensor, dtype)
        found.append(tf.identity(tensor))
    return found


def _parts(element: Any, structure: Any) -> list[Any]:
    """An element of a generator as flat tensors, each converted as TensorFlow converts what is yielded."""
    try:
        flat = nest.flatten_up_to(structure, element)
    except (TypeError, ValueError) as error:
        raise CannotTraceError(f"gives an element of another structure than {structure}") from error
    return [tf.identity(_as(one, dtype)) for one, dtype in zip(flat, nest.flatten(structure), strict=True)]


def _as(value: Any, dtype: tf.DType) -> Any:
    if dtype == tf.string:
        if isinstance(value, list | tuple):
            return tf.stack([_as(one, dtype) for one in value])
        return value.tensor if isinstance(value, Texts) else text(value).tensor
    given = lifted(value).tensor
    if not np.can_cast(given.dtype.as_numpy_dtype, dtype.as_numpy_dtype, "same_kind"):
        raise CannotTraceError(f"gives {given.dtype.name} where {dtype.name} is expected")
    return tf.cast(given, dtype)


def _reason(error: BaseException) -> str:
    if isinstance(error, CannotTraceError):
        return str(error)
    text = str(error).strip().splitlines()
    return f"raises {type(error).__name__} while it is traced: {text[0] if text else 'without a message'}"
