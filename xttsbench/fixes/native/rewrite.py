"""A dataset's graph in which Python functions that compute with arrays are functions of TensorFlow's ops.

Each is traced and compared with Python on calls that were recorded; the rest is refused. A few elements are run as the
graph stands, and the arguments and results of its Python functions recorded: the function is run again on them to learn
its types, and what is traced has to give those results before it is used.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from xttsbench.fixes.graph.edit import add_functions, does_not_apply, ending_at, flat_spec, source_of
from xttsbench.fixes.native.observe import RefusedError, users_function
from xttsbench.fixes.native.trace import Traced, trace
from xttsbench.fixes.open_generator.rewrite import Body
from xttsbench.fixes.pool.packing import without_tensorflow
from xttsbench.pipeline.cut import TRANSPARENT, bypassed, dataset, rename_calls, with_callers
from xttsbench.pipeline.nodes import FunctionLibrary, called, copied, dataset_nodes
from xttsbench.pipeline.python.state import called as user_called
from xttsbench.pipeline.python.state import python_state
from xttsbench.pipeline.source import PYTHON_OPS, Registered, display_name, locate, lookup, recording

_FIX: Final = "native"
_CALLS: Final = 8  # calls of a function that are recorded, and that its traced version is compared with
_ELEMENTS: Final = 16
_RECORDING_S: Final = 3.0
_LEFT_OUT: Final = re.compile(f"{TRANSPARENT.pattern}|^Shuffle")
TOLERANCE: Final[Mapping[str, float]] = {"f2": 2e-3, "f4": 1e-4, "f8": 1e-9, "c8": 1e-4, "c16": 1e-9}
"""Largest difference between a traced function's results and Python's, relative to the largest value of the array.
Whole numbers, truth values and text must be the same, and whole rows are held to the guard's own tolerance later."""
_SINGLE: Final = 20.0
"""Factor by which single values may be farther off where the root mean square of the differences is a tenth of the
tolerance: the logarithm of a power that is all but cancelled moves by 2e-4 of the largest one in single precision,
either way.
"""


@dataclass(frozen=True)
class Checked:
    """A Python function of a graph: as ops that gave its results, or why not.

    Attributes:
        token: of TensorFlow's registry.
        name: as the user wrote it.
        traced: ``None`` where it is refused.
        refused: a phrase with file and line, after "it".
        calls: arguments and results that were recorded.
        exact: whether all that was recorded was the same to the last bit.
    """

    token: str
    name: str
    traced: Traced | None = None
    refused: str | None = None
    calls: tuple[tuple[tuple[Any, ...], Any], ...] = ()
    exact: bool = False


def checked(graph: Any) -> list[Checked]:
    """Every Python function of a graph but generators, traced where that can be."""
    nodes = {
        node.attr["token"].s.decode(): node for function in graph.library.function for node in python_nodes(function)
    }
    known = {token: one for token in nodes if (one := lookup(token)) is not None and _is_users(one)}
    objections = {token: _objection(registered) for token, registered in known.items()}
    recorders = _recorded(graph, [token for token in known if objections[token] is None])
    return [
        _checked(graph, token, registered, nodes[token], objections[token] or recorders[token])
        for token, registered in known.items()
    ]


def _checked(graph: Any, token: str, registered: Registered, node: Any, known: str | _Recorder) -> Checked:
    """One of them, by what speaks against it, or by calls of it that were recorded."""
    one = Checked(token, display_name(registered.user))
    place = locate(registered.user)
    try:
        if isinstance(known, str):
            raise RefusedError(known, place.file, place.line)
        traced, exact = _traced(registered, node, known, _shapes(graph, token))
        return replace(one, traced=traced, calls=tuple(known.calls), exact=exact)
    except RefusedError as error:
        return replace(one, refused=str(error))


def python_nodes(function: Any) -> Iterator[Any]:
    """The nodes of a function of the graph that call Python."""
    return (node for node in function.node_def if node.op in PYTHON_OPS)


def _is_users(registered: Registered) -> bool:
    """Whether a function is the user's: no generator, nor what an opened one was made of."""
    function = without_tensorflow(registered.called)
    return registered.kind != "generator" and not isinstance(getattr(function, "__self__", function), Body)


def _objection(registered: Registered) -> str | None:
    """Objection to a function before it is run, as a phrase; ``None`` for none."""
    function = without_tensorflow(registered.called)
    held = python_state(function)
    if held.state is not None:
        return f"keeps state: {held.state}"
    if held.random is not None:
        return f"draws at random: {held.random}"
    if held.reads is not None:
        return f"reads what others change: {held.reads}"
    return None if users_function(user_called(function)) is not None else "has no source of the user's"


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
            kept = tuple(map(_copied, arguments)) if wanted else ()
            result = original(*arguments)
            if wanted:
                with self.lock:
                    self.calls.append((kept, tf.nest.map_structure(_copied, result)))
            return result

        return recorded


def _copied(value: Any) -> Any:
    """A copy of an argument or a result: the function may use its memory again."""
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
            own = [recorders[token] for token in library.python_tokens(called(node)) if token in recorders]
            for _ in itertools.islice(dataset(variant, flat_spec(node, _FIX)), _ELEMENTS):
                if time.monotonic() > until or all(len(one.calls) >= _CALLS for one in own):
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
            inside = [one for one in python_nodes(definition) if one.attr["token"].s.decode() == token]
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


def _traced(
    registered: Registered, node: Any, recorder: _Recorder, shapes: list[tf.TensorShape] | None
) -> tuple[Traced, bool]:
    """A function traced, compared with the calls that were recorded, and whether all was the same to the last bit.

    Raises:
        RefusedError: it cannot be traced, no call of it was seen, or its results are others.
    """
    place = locate(registered.user)

    def refusal(why: str) -> RefusedError:
        return RefusedError(why, place.file, place.line)

    given, results = ([tf.as_dtype(one) for one in node.attr[name].list.type] for name in ("Tin", "Tout"))
    if not recorder.calls:
        raise refusal("was not called by the first elements")
    if not results:
        raise refusal("returns nothing, so that it is called for something else")
    specs, unsure = [], []
    for number, dtype in enumerate(given):
        ranks = {np.ndim(call[0][number]) for call in recorder.calls}
        shape = shapes[number] if shapes is not None else tf.TensorShape(None)
        if shape.rank is None:
            if len(ranks) > 1:
                raise refusal("is given arrays of several ranks")
            shape = tf.TensorShape([None] * ranks.pop())
            unsure.append(number)
        specs.append(tf.TensorSpec(shape, dtype))
    function = trace(
        without_tensorflow(registered.called),
        specs,
        results,
        seen=[arguments for arguments, _ in recorder.calls],
        tensors=registered.kind == "py_function",
        unsure=unsure,
    )
    exact = True
    for arguments, expected in recorder.calls:
        try:
            found = function(*(tf.convert_to_tensor(one, dtype) for one, dtype in zip(arguments, given, strict=True)))
        except (tf.errors.OpError, ValueError) as error:
            text = str(error).strip().splitlines()
            raise refusal(f"fails as ops: {text[0] if text else ''}") from error
        why, same = difference(expected, found, results)
        exact = exact and same
        if why is not None:
            raise refusal(f"gives other values as ops: {why}")
    return function, exact


def difference(expected: Any, found: Any, dtypes: Sequence[tf.DType]) -> tuple[str | None, bool]:
    """Difference of a traced function's results from Python's, as a phrase, and whether they are the same bits.

    The words are ``None`` where all is within :data:`TOLERANCE`.
    """
    given, exact = list(expected) if isinstance(expected, list | tuple) else [expected], True
    for number, (one, other, dtype) in enumerate(zip(given, found, dtypes, strict=True)):
        ours, theirs = np.asarray(one), np.asarray(other)
        if ours.shape != np.shape(theirs):
            return f"result {number} has the shape {list(np.shape(theirs))}, and Python's {list(ours.shape)}", False
        if dtype == tf.string:
            same = np.vectorize(lambda a, b: _bytes(a) == _bytes(b), otypes=[bool])(ours, theirs)
        elif dtype.is_floating or dtype.is_complex:
            same, equal = _close(ours, theirs, dtype)
            exact = exact and equal
        else:
            same = np.asarray(ours == theirs)
        if not same.all():
            at = tuple(int(one) for one in np.argwhere(~same)[0]) if same.ndim else ()
            return f"result {number} at {list(at)} is {theirs[at]!s}, and Python's {ours[at]!s}", False
    return None, exact


def _close(ours: Any, theirs: Any, dtype: tf.DType) -> tuple[Any, bool]:
    """Mask of the values within :data:`TOLERANCE`, and whether all are the same to the last bit."""
    wide = np.complex128 if dtype.is_complex else np.float64
    first, second = ours.astype(wide), theirs.astype(wide)
    finite = np.isfinite(first)
    allowed = TOLERANCE.get(np.dtype(dtype.as_numpy_dtype).str[1:], 0.0) * np.abs(first[finite]).max(initial=0.0)
    same, loose = (np.isclose(first, second, rtol=0, atol=allowed * times, equal_nan=True) for times in (1.0, _SINGLE))
    if not same.all() and loose.all():
        same |= bool(np.sqrt(np.mean(np.abs(first - second)[finite] ** 2)) <= allowed / 10)
    return same, bool(np.array_equal(first, second, equal_nan=True))


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


_numbers = itertools.count()


def native(graph: Any) -> Any:
    """The graph with every Python function that can be traced as ops; the others stay as they are.

    Raises:
        InvalidInputError: there is no Python function, or none that can be traced: each with file, line and reason.
    """
    found = checked(graph)
    traced = {one.token: one.traced.function for one in found if one.traced is not None}
    if not found:
        raise does_not_apply(_FIX, "the dataset has no Python function other than generators")
    if not traced:
        raise does_not_apply(_FIX, "; ".join(f"{one.name} cannot be traced: it {one.refused}" for one in found))
    return _with(graph, traced)


def _with(graph: Any, traced: Mapping[str, Any]) -> Any:
    """The graph with calls of traced functions in place of calls of Python, in copies of the functions they are in."""
    edited = copied(graph)
    functions = edited.library.function
    changed = {
        function.signature.name
        for function in functions
        if any(node.attr["token"].s.decode() in traced for node in python_nodes(function))
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
    for one in traced.values():
        add_functions(edited, (one.function_def, *one.graph.as_graph_def().library.function))
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
