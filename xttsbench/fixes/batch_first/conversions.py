"""Ops that TensorFlow's ``pfor`` does not know and that pipelines often use, on several rows at once.

Look-ups in tables, ops on strings that take any shape, ``decode_raw``, resizing, and Python functions: one call into
Python that goes through the rows there, instead of one call for each row.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_script_ops, script_ops
from tensorflow.python.ops.parallel_for import pfor

_ANY_SHAPE: Final = (
    "AsString",
    "DecodeBase64",
    "EncodeBase64",
    "RegexFullMatch",
    "RegexReplace",
    "StaticRegexFullMatch",
    "StaticRegexReplace",
    "StringLength",
    "StringLower",
    "StringStrip",
    "StringToHashBucket",
    "StringToHashBucketFast",
    "StringToHashBucketStrong",
    "StringToNumber",
    "StringUpper",
    "DecodeRaw",
)
"""Ops that do the same to each entry of their first input, whatever its shape; ``decode_raw`` adds a dimension."""
_LOOK_UPS: Final = ("LookupTableFind", "LookupTableFindV2")
_RESIZES: Final = ("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor")
_held: Final[dict[str, Callable[..., Any]]] = {}
"""Functions for batches by their token; TensorFlow's registry holds them weakly, and graphs name only the token."""
_lock = threading.Lock()


class NotVectorisedError(ValueError):
    """A function cannot work on several rows at once: an op has no conversion, or the function cannot be read."""


@contextmanager
def conversions() -> Iterator[None]:
    """What ``pfor`` does not know, known to it while the block runs; what it reports on the way is kept quiet."""
    ours: dict[str, Callable[[Any], Any]] = dict.fromkeys(_ANY_SHAPE, _any_shape)
    ours.update(dict.fromkeys(_LOOK_UPS, _look_up))
    ours.update(dict.fromkeys(_RESIZES, _resize))
    ours.update(dict.fromkeys(("PyFunc", "PyFuncStateless"), _python))
    known = pfor._pfor_converter_registry
    logger = logging.getLogger("tensorflow")
    with _lock:
        added = {op: convert for op, convert in ours.items() if op not in known}
        level = logger.level
        known.update(added)
        logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            logger.setLevel(level)
            for op in added:
                del known[op]


def _any_shape(given: Any) -> Any:
    """The op itself, on all rows; further inputs have to be the same for all of them."""
    return _again(given, [given.stacked_input(0), *(given.unstacked_input(n) for n in range(1, given.num_inputs))])


def _look_up(given: Any) -> Any:
    """All keys at once; the table and the value for missing keys are the same for all rows."""
    return _again(given, [given.unstacked_input(0), given.stacked_input(1), given.unstacked_input(2)])


def _resize(given: Any) -> Any:
    """Pictures are in batches already: those of all rows become one batch, and rows of batches again."""
    pictures, size = given.stacked_input(0), given.unstacked_input(1)
    shape = tf.shape(pictures)
    (whole,) = _again(given, [tf.reshape(pictures, tf.concat([[-1], shape[2:]], 0)), size])
    rows = tf.reshape(whole.t, tf.concat([shape[:2], tf.shape(whole.t)[1:]], 0))
    rows.set_shape(tf.TensorShape([None]).concatenate(given.op.outputs[0].shape))
    return [pfor.wrap(rows, True)]


def _again(given: Any, inputs: Sequence[Any]) -> list[Any]:
    operation = given.op
    made = pfor._create_op(operation.type, inputs, [one.dtype for one in operation.outputs], operation.node_def.attr)
    for old, new in zip(operation.outputs, made.outputs, strict=True):
        if old.shape.rank is not None and new.shape.rank is None:  # of a table, what it holds says the shape
            new.set_shape(tf.TensorShape([None]).concatenate(old.shape))
    return [pfor.wrap(one, True) for one in made.outputs]


def _python(given: Any) -> list[Any]:
    """One call into Python for all rows."""
    operation = given.op
    kinds = [one.dtype for one in operation.outputs]
    if not kinds:
        raise NotVectorisedError("its Python function returns nothing")
    token = _for_rows(operation.get_attr("token").decode(), [one.is_stacked for one in given.inputs], len(kinds))
    rows = tf.reshape(given.pfor.loop_len_vector, [])
    call = gen_script_ops.py_func if operation.type == "PyFunc" else gen_script_ops.py_func_stateless
    made = call(input=[rows, *(one.t for one in given.inputs)], token=token, Tout=kinds)
    return [pfor.wrap(one, True) for one in (made if isinstance(made, list | tuple) else [made])]


def _for_rows(token: str, stacked: Sequence[bool], count: int) -> str:
    """The token of a Python function that calls another for each row and stacks its results.

    The other one is looked up at each call, so that its calls can be recorded. Its results become arrays in the way
    that TensorFlow makes them, so that a wrong type or number raises the same error.
    """
    original = script_ops._py_funcs.get(token)
    if original is None:
        raise NotVectorisedError(f"its Python function {token} is gone")

    def for_rows(rows: Any, *arguments: Any) -> list[Any]:
        function = script_ops._py_funcs.get(token)
        results = [
            _as_arrays(function(*(one[row] if by else one for one, by in zip(arguments, stacked, strict=True))))
            for row in range(int(rows))
        ]
        if any(len(result) != count for result in results):
            raise ValueError(f"{token} returned {[len(result) for result in results]} arrays for its rows, not {count}")
        return [_stacked([result[number] for result in results]) for number in range(count)]

    functools.update_wrapper(for_rows, original, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    batched_token = str(script_ops._py_funcs.insert(for_rows))
    _held[batched_token] = for_rows
    return batched_token


def _as_arrays(result: Any) -> list[Any]:
    """What a Python function returned as TensorFlow takes it: a list or tuple is one array for each result."""
    if not isinstance(result, list | tuple):
        result = [result]
    return [_as_array(one) for one in result]


def _as_array(value: Any) -> Any:
    """As TensorFlow makes it, which costs ten times as much: it reads NumPy's version anew for each array."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.char not in "SU":
        return np.asarray(value)
    return script_ops.FuncRegistry._convert(value)


def _stacked(rows: Sequence[Any]) -> Any:
    """One array of equally shaped ones. Bytes of a fixed length are not padded, so that none are added or lost."""
    return np.stack([one.astype(object) if one.dtype.char == "S" else one for one in rows])
