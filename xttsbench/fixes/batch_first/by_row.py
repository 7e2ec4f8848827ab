"""A map's function for one element, turned into one for a batch of them: row by row the same results.

The ops of the function are vectorised one by one (TensorFlow's ``pfor``, what ``tf.vectorized_map`` is made of), so
the result is right by construction where each op's conversion is. Those that ``pfor`` lacks and that pipelines often
use are here: look-ups in tables, ops on strings that take any shape, ``decode_raw``, and Python functions, for which
one call into Python goes through the rows there, instead of one call for each row.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.core.function.polymorphism import function_type
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.ops import gen_script_ops, script_ops
from tensorflow.python.ops.parallel_for import control_flow_ops, pfor
from tensorflow.python.saved_model import function_deserialization

from xttsbench.errors import first_line
from xttsbench.fixes.graph.functions import needed_nodes
from xttsbench.pipeline.nodes import FunctionLibrary, called
from xttsbench.pipeline.source import PYTHON_OPS

_ANY_SHAPE: Final = [
    "AsString",
    "DecodeRaw",
    "StaticRegexFullMatch",
    "StaticRegexReplace",
    "StringLength",
    "StringLower",
    "StringStrip",
    "StringToHashBucketFast",
    "StringToNumber",
    "StringUpper",
]
"""Ops that do the same to each entry of their first input, whatever its shape; ``decode_raw`` adds a dimension."""
_LOOK_UPS: Final = ("LookupTableFind", "LookupTableFindV2")
_IN_USER_CODE: Final = re.compile(r"(?s)^in user code:.*?\n\s+\w+Error: ")
"""Text that AutoGraph puts before an error."""
_held: Final[dict[str, Callable[..., Any]]] = {}
"""Functions for batches by their token; TensorFlow's registry holds them weakly, and graphs name only the token."""
_lock = threading.Lock()


class NotVectorisedError(ValueError):
    """A function cannot work on several rows at once: an op has no conversion, or the function cannot be read."""


def by_row(
    library: FunctionLibrary, name: str, spec: Sequence[tf.TensorSpec], captured: Sequence[tf.TensorSpec]
) -> tuple[Any, list[Any]]:
    """A function that takes batches of what the named one takes, and returns batches of what it returns.

    Args:
        library: the functions of the graph.
        name: of the function; it takes the components of an element and what it captures.
        spec: types and shapes of the components of one element.
        captured: types and shapes of what it captures, which is the same for all rows.

    Returns:
        Its ``FunctionDef``, under a new name, and those that it needs besides. Batches may be of any size, and the
        function may be called with several at once where the given one could. Checks (``Assert``) that no result is
        computed from are left out: they pass, or the original would have failed.

    Raises:
        NotVectorisedError: an op of the function is not known to work on several rows at once.
    """
    _refuse_effects(library, library.get(name))
    functions, count = _loaded(library, name), len(spec)

    def batched(*arguments: Any) -> list[Any]:
        for function in functions.values():
            function.add_to_graph(tf.compat.v1.get_default_graph())

        def one_row(number: Any) -> list[Any]:
            row = [tf.gather(argument, number) for argument in arguments[:count]]
            return list(functions[name]._call_flat([*row, *arguments[count:]], captured_inputs=[]))

        rows = tf.shape(arguments[0])[0]
        return list(control_flow_ops.pfor(one_row, rows, fallback_to_while_loop=False))

    batches = [tf.TensorSpec(tf.TensorShape([None]).concatenate(one.shape), one.dtype) for one in spec]
    try:
        with conversions():
            traced = tf.function(batched, autograph=False).get_concrete_function(*batches, *captured)
    except Exception as error:  # conversions raise whatever TensorFlow's ops raise when they are built
        said = _IN_USER_CODE.sub("", str(error))
        raise NotVectorisedError(first_line(said)) from error
    if traced.captured_inputs:
        raise NotVectorisedError("its function for batches needs a tensor from outside")
    return _results_only(traced.function_def), list(traced.graph.as_graph_def().library.function)


def _refuse_effects(library: FunctionLibrary, definition: Any) -> None:
    """Python that is called for no result of the function would no longer be called."""
    needed = needed_nodes(definition)
    for node in (one for one in definition.node_def if one.name not in needed):
        if any(one.op in PYTHON_OPS for one in [node, *library.reach([node.op, *called(node)])]):
            raise NotVectorisedError(f"{node.name} calls Python for its effect alone")


def _results_only(traced: Any) -> Any:
    """A traced function without what its results do not need.

    The function for one row is part of the trace, and what has state in it would run once more for each batch.
    """
    needed = needed_nodes(traced)
    pruned = type(traced)()
    pruned.CopyFrom(traced)
    del pruned.node_def[:]
    for node in traced.node_def:
        if node.name in needed:
            kept = pruned.node_def.add()
            kept.CopyFrom(node)
            del kept.input[:]
            kept.input.extend(one for one in node.input if not one.startswith("^") or one[1:] in needed)
    pruned.control_ret.clear()
    del pruned.signature.control_output[:]
    return pruned


def _loaded(library: FunctionLibrary, name: str) -> dict[str, Any]:
    """A function and those that it calls, which come under new names: ``pfor`` looks into their graphs."""
    inner = function_pb2.FunctionDefLibrary()
    inner.function.extend(library.functions([name]))
    try:
        return dict(function_deserialization.load_function_def_library(inner, wrapper_function=_with_results))
    except (ValueError, KeyError, tf.errors.OpError) as error:
        raise NotVectorisedError(first_line(error)) from error


def _with_results(function: Any) -> Any:
    """A loaded function that says how many results it has: ``pfor`` converts so many, and loading leaves it out."""
    graph = function.graph
    results = tuple(tf.TensorSpec(one.shape, one.dtype) for one in graph.outputs)
    kind = function_type.from_structured_signature(
        graph.structured_input_signature, results, graph.function_captures.capture_types
    )
    return concrete_function.ConcreteFunction.from_func_graph(graph, kind, attrs={})


@contextmanager
def conversions() -> Iterator[None]:
    """Registers converters for ops that ``pfor`` lacks while the block runs, and silences its reports meanwhile."""
    ours: dict[str, Callable[[Any], Any]] = dict.fromkeys(_ANY_SHAPE, _any_shape)
    ours.update(dict.fromkeys(_LOOK_UPS, _look_up))
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
        results = []
        for row in range(int(rows)):
            result = function(*(one[row] if by else one for one, by in zip(arguments, stacked, strict=True)))
            results.append([_as_array(one) for one in (result if isinstance(result, list | tuple) else [result])])
        if any(len(result) != count for result in results):
            raise ValueError(f"{token} returned {[len(result) for result in results]} arrays for its rows, not {count}")
        return [np.stack([_unpadded(result[number]) for result in results]) for number in range(count)]

    functools.update_wrapper(for_rows, original, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    batched_token = str(script_ops._py_funcs.insert(for_rows))
    _held[batched_token] = for_rows
    return batched_token


def _as_array(value: Any) -> Any:
    """As TensorFlow makes it, which costs ten times as much: it reads NumPy's version anew for each array."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.char not in "SU":
        return np.asarray(value)
    return script_ops.FuncRegistry._convert(value)


def _unpadded(array: Any) -> Any:
    """Bytes of a fixed length as objects, so that none are added or lost where they are stacked."""
    return array.astype(object) if array.dtype.char == "S" else array
