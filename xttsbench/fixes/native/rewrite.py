"""A dataset's graph in which Python functions that compute with arrays are functions of TensorFlow's ops.

A few elements are run as the graph stands, and the arguments and results of its Python functions recorded: they tell
ranks and what comes as a number, and a traced function has to give those results before it is used.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from xttsbench.fixes.graph.edit import does_not_apply, ending_at, flat_spec, source_of
from xttsbench.fixes.native.trace import RefusedError, is_traceable, trace
from xttsbench.fixes.processes.packing import without_tensorflow
from xttsbench.pipeline.cost.cut import TRANSPARENT, bypassed, dataset, rename_calls, with_callers
from xttsbench.pipeline.graph.edit import copied
from xttsbench.pipeline.graph.library import FunctionLibrary, called
from xttsbench.pipeline.graph.nodes import dataset_nodes
from xttsbench.pipeline.graph.registry import PYTHON_OPS, Registered, lookup, recording
from xttsbench.pipeline.graph.source import display_name, locate
from xttsbench.pipeline.purity.state import python_state

_FIX: Final = "native"
_CALLS: Final = 8
"""Calls of a function that are recorded, and that its traced version is compared with."""
_ELEMENTS: Final = 16
_RECORDING_S: Final = 5.0
_LEFT_OUT: Final = re.compile(f"{TRANSPARENT.pattern}|^Shuffle")
TOLERANCE: Final[Mapping[str, float]] = {"f2": 2e-3, "f4": 1e-4, "f8": 1e-9, "c8": 1e-4, "c16": 1e-9}
"""Largest difference between a traced function's results and Python's, relative to the largest value of the array.
A logarithm of small powers, normalised, moves single values by 3e-5; whole rows are held to the guard's own tolerance
later. Whole numbers, truth values and text must be the same."""
_numbers = itertools.count()


def native(graph: Any) -> Any:
    """The graph with every Python function that can be traced as ops; the others stay as they are.

    Raises:
        InvalidInputError: there is no Python function, or none that can be traced: each with file, line and reason.
    """
    nodes = {node.attr["token"].s.decode(): node for function in graph.library.function for node in _python(function)}
    found = {token: one for token in nodes if (one := lookup(token)) is not None and one.kind != "generator"}
    if not found:
        raise does_not_apply(_FIX, "the dataset has no Python function other than generators")
    refused: dict[str, RefusedError] = {}
    for token, registered in found.items():
        why = _objection(registered)
        if why is not None:
            place = locate(registered.user)
            refused[token] = RefusedError(why, place.file, place.line)
    recorders = _recorded(graph, [token for token in found if token not in refused])
    traced: dict[str, Any] = {}
    for token, recorder in recorders.items():
        try:
            traced[token] = _traced(found[token], nodes[token], recorder, _shapes(graph, token))
        except RefusedError as error:
            refused[token] = error
    if not traced:
        reasons = [
            f"{display_name(found[token].user)} cannot be traced: it {error}" for token, error in refused.items()
        ]
        raise does_not_apply(_FIX, "; ".join(reasons))
    return _with(graph, traced)


def _python(function: Any) -> Iterator[Any]:
    return (node for node in function.node_def if node.op in PYTHON_OPS)


def _objection(registered: Registered) -> str | None:
    """What speaks against a function before it is run, in words."""
    function = without_tensorflow(registered.called)
    held = python_state(function)
    if held.state is not None:
        return f"keeps state: {held.state}"
    if held.random is not None:
        return f"draws at random: {held.random}"
    if held.reads is not None:
        return f"reads what others change: {held.reads}"
    return None if is_traceable(function) else "has no source of the user's"


@dataclass
class _Recorder:
    """The first calls of one function: what it was given and what it returned."""

    calls: list[tuple[tuple[Any, ...], Any]] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function to put in the original's place."""

        def recorded(*arguments: Any) -> Any:
            with self.lock:
                wanted = len(self.calls) < _CALLS
            kept = tuple(one.copy() if isinstance(one, np.ndarray) else one for one in arguments) if wanted else ()
            result = original(*arguments)
            if wanted:
                with self.lock:
                    self.calls.append((kept, tf.nest.map_structure(_held, result)))
            return result

        return recorded


def _held(value: Any) -> Any:
    """A copy of a result: the function may use its memory again."""
    return value.copy() if isinstance(value, np.ndarray) else value


def _recorded(graph: Any, tokens: list[str]) -> dict[str, _Recorder]:
    """Calls of Python functions while a few elements of each op that runs one are made."""
    recorders = {token: _Recorder() for token in tokens}
    library = FunctionLibrary(graph.library.function)
    with recording({token: recorder.wrap for token, recorder in recorders.items()}):
        for node in dataset_nodes(graph):
            if not any(token in recorders for token in library.python_tokens(called(node))):
                continue
            cut = ending_at(bypassed(graph, _LEFT_OUT), node.name)
            variant = tf.raw_ops.DatasetFromGraph(graph_def=cut.SerializeToString())
            until = time.monotonic() + _RECORDING_S
            for _ in itertools.islice(dataset(variant, flat_spec(node, _FIX)), _ELEMENTS):
                if time.monotonic() > until:
                    break
    return recorders


def _shapes(graph: Any, token: str) -> list[tf.TensorShape] | None:
    """Static shapes of a Python function's arguments where the graph says them; ``None`` where that is not known."""
    library = FunctionLibrary(graph.library.function)
    by_name = {node.name: node for node in graph.node}
    for node in dataset_nodes(graph):
        for name in called(node):
            definition, above = library.get(name), source_of(node, by_name)
            if definition is None or above is None:
                continue
            inside = [one for one in _python(definition) if one.attr["token"].s.decode() == token]
            if not inside:
                continue
            try:
                given = [one.shape for one in flat_spec(above, _FIX)]
                more = len(definition.signature.input_arg) - len(given)
                built = function_def_to_graph.function_def_to_graph(
                    definition, [*given, *[tf.TensorShape(None)] * more], include_library_functions=True
                )
                return [one.shape for one in built.get_operation_by_name(inside[0].name).inputs]
            except (ValueError, KeyError, tf.errors.OpError):
                return None
    return None


def _traced(registered: Registered, node: Any, recorder: _Recorder, shapes: list[tf.TensorShape] | None) -> Any:
    """A function traced, and compared with the calls that were recorded.

    Raises:
        RefusedError: it cannot be traced, no call of it was seen, or its results are others.
    """
    place = locate(registered.user)
    given, eager = [tf.as_dtype(one) for one in node.attr["Tin"].list.type], registered.kind == "py_function"
    results = [tf.as_dtype(one) for one in node.attr["Tout"].list.type]
    if not recorder.calls:
        raise RefusedError("was not called by the first elements", place.file, place.line)
    if not results:
        raise RefusedError("returns nothing, so that it is called for something else", place.file, place.line)
    specs = []
    for number, dtype in enumerate(given):
        ranks = {np.ndim(call[0][number]) for call in recorder.calls}
        shape = shapes[number] if shapes is not None else tf.TensorShape(None)
        if shape.rank is None:
            if len(ranks) > 1:
                raise RefusedError("is given arrays of several ranks", place.file, place.line)
            shape = tf.TensorShape([None] * ranks.pop())
        specs.append(tf.TensorSpec(shape, dtype))
    scalars = [isinstance(one, np.generic) for one in recorder.calls[0][0]]
    function = trace(without_tensorflow(registered.called), specs, results, scalars=scalars, tensors=eager)
    for arguments, expected in recorder.calls:
        try:
            found = function(*(tf.convert_to_tensor(one, dtype) for one, dtype in zip(arguments, given, strict=True)))
        except (tf.errors.OpError, ValueError) as error:
            text = str(error).strip().splitlines()
            raise RefusedError(f"fails as ops: {text[0] if text else ''}", place.file, place.line) from error
        why = _difference(expected, found, results)
        if why is not None:
            raise RefusedError(f"gives other values as ops: {why}", place.file, place.line)
    return function


def _difference(expected: Any, found: Any, dtypes: list[tf.DType]) -> str | None:
    """How the results of a traced function differ from Python's, in words; ``None`` where they are the same."""
    given = list(expected) if isinstance(expected, list | tuple) else [expected]
    for number, (one, other, dtype) in enumerate(zip(given, found, dtypes, strict=True)):
        ours, theirs = np.asarray(one), other.numpy()
        if ours.shape != np.shape(theirs):
            return f"result {number} has the shape {list(np.shape(theirs))}, and Python's {list(ours.shape)}"
        if dtype.is_floating or dtype.is_complex:
            wide = np.complex128 if dtype.is_complex else np.float64
            first, second = ours.astype(wide), np.asarray(theirs).astype(wide)
            allowed = TOLERANCE.get(np.dtype(dtype.as_numpy_dtype).str[1:], 0.0)
            size = float(np.abs(first[np.isfinite(first)]).max(initial=0.0))
            same = np.isclose(first, second, rtol=0, atol=allowed * size, equal_nan=True)
        else:
            same = np.asarray(ours == theirs)
        if not same.all():
            at = tuple(int(one) for one in np.argwhere(~same)[0]) if same.ndim else ()
            return f"result {number} at {list(at)} is {np.asarray(theirs)[at]!s}, and Python's {ours[at]!s}"
    return None


def _with(graph: Any, traced: Mapping[str, Any]) -> Any:
    """The graph with calls of traced functions in place of calls of Python, in copies of the functions they are in."""
    edited = copied(graph)
    functions = edited.library.function
    changed = {
        function.signature.name
        for function in functions
        if any(node.attr["token"].s.decode() in traced for node in _python(function))
    }
    renamed, suffix = with_callers(functions, changed), f"_xttsbench_native_{next(_numbers)}"
    for function in functions:
        if function.signature.name in renamed:
            function.signature.name += suffix
        for node in function.node_def:
            rename_calls(node, renamed, suffix)
            token = node.attr["token"].s.decode() if node.op in PYTHON_OPS else ""
            if token in traced:
                _call(node, traced[token])
    for node in edited.node:
        rename_calls(node, renamed, suffix)
    known = {function.signature.name for function in functions}
    for one in traced.values():
        for definition in (one.function_def, *one.graph.as_graph_def().library.function):
            if definition.signature.name not in known:
                known.add(definition.signature.name)
                functions.add().CopyFrom(definition)
    library = FunctionLibrary(functions)
    for function in functions:
        if function.signature.name.endswith(suffix):
            function.signature.is_stateful = library.stateful([function.signature.name])
    return edited


def _call(node: Any, function: Any) -> None:
    """Turn a node that calls Python into one that calls a function of the graph, in place."""
    given, results = list(node.attr["Tin"].list.type), list(node.attr["Tout"].list.type)
    node.op = "PartitionedCall"
    for name in [name for name in node.attr if not name.startswith("_")]:
        del node.attr[name]
    node.attr["Tin"].list.type.extend(given)
    node.attr["Tin"].list.SetInParent()
    node.attr["Tout"].list.type.extend(results)
    node.attr["f"].func.name = function.function_def.signature.name
    for name in ("config", "config_proto", "executor_type"):
        node.attr[name].s = b""
