"""File and line where each dataset was made, noted as it is constructed, and found again by its node.

A graph does not say which line made it, and ``batch`` or ``prefetch`` leave nothing else behind. Every Python dataset
runs one constructor, which is wrapped here: it looks up the stack for the innermost line of the user's own code
(installed libraries count where there is none, TensorFlow and Keras never). A dataset made inside a function that is
traced, for ``interleave`` or ``flat_map``, is gone once the trace is; there the place is noted with the traced graph.

The Python datasets and the graph's nodes are then walked side by side, from the end. The two have the same shape, but
some Python objects are only wrappers that share their input's tensor (readers of files, the compatibility classes of
TensorFlow 1). Kinds are compared on the way; where they do not agree, everything above stays unknown.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from xttsbench.pipeline import source
from xttsbench.pipeline.definitions import before_autograph
from xttsbench.pipeline.nodes import dataset_inputs, results
from xttsbench.records.pipeline import CallSite, kind_of_op

Place = tuple[str, int]
"""File and line as the frame had them: AutoGraph's generated file, where the code ran from one."""
Calls = tuple[CallSite, ...]

SOURCE: Final = "_xttsbench_source"
"""Attribute of a dataset made from a graph that holds the dataset which the graph was read from."""
_PLACE: Final = "_xttsbench_place"
_CALLS: Final = "_xttsbench_calls"
_DEEPEST: Final = 12  # calls of the user's around the one that made a dataset that are noted
_MADE: Final = "_xttsbench_made"
_COPYING: Final = "apply_rewrite" if hasattr(dataset_ops, "apply_rewrite") else "_apply_rewrite"
"""TensorFlow's function that copies a dataset, which is public from 2.21 on."""

_lock = threading.Lock()
_watchers: list[object] = []  # one per installation that has not ended


@dataclass(slots=True)
class Made:
    """Datasets, functions and graphs made while one function was traced."""

    places: dict[str, Place] = field(default_factory=dict)  # node name of each dataset -> where it was made
    functions: dict[str, Made] = field(default_factory=dict)
    """Name of each function of these datasets -> what was made while that one was traced."""
    users: dict[str, Any] = field(default_factory=dict)
    """Name of each function of these datasets -> the Python function that was traced."""
    calls: list[tuple[str, Made]] = field(default_factory=list)
    """Name of each graph traced inside this one (a ``tf.function`` that makes datasets), and what was made there."""


def install() -> Callable[[], None]:
    """Have every dataset made from now on remember its place; the returned function ends that.

    Installing twice is counted; the constructor is restored when the last one ends, unless someone has wrapped it
    since: then the wrapper stays in place and does nothing.
    """
    watcher = object()
    with _lock:
        for owner, name, wrap in () if _watchers else _WRAPPED:
            if not hasattr(original := getattr(owner, name), _PLACE):
                wrapper = functools.wraps(original)(wrap(original))
                setattr(wrapper, _PLACE, wrapper)
                setattr(owner, name, wrapper)
        _watchers.append(watcher)
    return functools.partial(_uninstall, watcher)


def place_of(dataset: Any) -> Place | None:
    """Place where a dataset object was made; ``None`` where it was made unobserved or outside of anybody's code."""
    return getattr(dataset, _PLACE, None)


def calls_of(dataset: Any) -> Calls:
    """The user's calls that were running when a dataset object was made, innermost first; none where unobserved."""
    return getattr(dataset, _CALLS, ())


def files_of(dataset: Any) -> list[str]:
    """The user's own files that a dataset's ops, and their functions, come from."""
    files: list[str | None] = []
    for one in source.walk(dataset):
        users = (source.user_function(function._func) for function in source.wrapped_functions(one))
        files += [call.file for call in calls_of(one)]
        files += [source.locate(user).file for user in users if user is not None]
    own = (file for file in files if file is not None and "__autograph_generated_file" not in file)
    return [file for file in dict.fromkeys(own) if source.whose(file) == "user"]


def _made_in(function: Any) -> Made | None:
    """Notes on the trace of a ``ConcreteFunction``; ``None`` where the trace was not observed."""
    return getattr(getattr(function, "graph", None), _MADE, None)


def _uninstall(watcher: object) -> None:
    with _lock:
        if watcher in _watchers:
            _watchers.remove(watcher)
        for owner, name, _ in () if _watchers else _WRAPPED:
            wrapper = getattr(owner, name)
            if wrapper == getattr(wrapper, _PLACE, None):  # else it lies under another one
                setattr(owner, name, wrapper.__wrapped__)


def _remembering(original: Callable[..., None]) -> Callable[..., None]:
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _watchers and (calls := user_calls(sys._getframe(1))):
            place = calls[0].file, calls[0].line
            self.__dict__[_PLACE], self.__dict__[_CALLS] = place, calls
            variant = self.__dict__.get("_variant_tensor_attr")
            if not isinstance(variant, tf.__internal__.EagerTensor) and variant is not None:
                _note(self, variant, place)

    return construct


def _keeping_source(original: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlow copies some datasets (the selector of ``choose_from_datasets``); the copy names its original."""

    def copying(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        copied = original(dataset, *args, **kwargs)
        copied.__dict__[SOURCE] = dataset
        return copied

    return copying


_WRAPPED: Final = ((dataset_ops.DatasetV2, "__init__", _remembering), (dataset_ops, _COPYING, _keeping_source))


def user_calls(frame: FrameType | None) -> Calls:
    """The calls of the user's own code that run in a frame and around it, innermost first; else one of a library's."""
    found: list[CallSite] = []
    fallback: Calls = ()
    while frame is not None and len(found) < _DEEPEST:
        kind = source.whose(frame.f_code.co_filename)
        if kind == "user":
            found.append(_site(frame))
        elif kind == "library" and not fallback:
            fallback = (_site(frame),)
        frame = frame.f_back
    return tuple(found) or fallback


def _site(frame: FrameType) -> CallSite:
    """File, line and columns of the call that a frame is at.

    The columns are unknown in code that AutoGraph wrote. What AutoGraph wrote ends elsewhere than in the user's file.
    """
    code = frame.f_code
    end_line = end_column = None
    if "__autograph_generated_file" not in code.co_filename:
        positions = code.co_positions()
        _, end_line, _, end_column = next(itertools.islice(positions, frame.f_lasti // 2, None), (None,) * 4)
    return CallSite(file=code.co_filename, line=frame.f_lineno, end_line=end_line, end_column=end_column)


def _note(dataset: Any, variant: Any, place: Place) -> None:
    """Keep the place with the graph that is being traced; the Python object does not outlive the trace."""
    if (graph := getattr(variant, "graph", None)) is None:
        return
    made = _made(graph)
    made.places.setdefault(variant.op.name, place)  # the op's own dataset, not a wrapper made around it later
    for wrapped in source.wrapped_functions(dataset):
        name = getattr(wrapped.function, "name", None)
        if name is not None:
            name = name.decode() if isinstance(name, bytes) else name
            made.users[name] = wrapped._func
            if (inner := _made_in(wrapped.function)) is not None:
                made.functions[name] = inner


def _made(graph: Any) -> Made:
    """Notes on a graph's trace, begun on the first request and then listed with the graph around it."""
    made: Made | None = getattr(graph, _MADE, None)
    if made is None:
        made = Made()
        setattr(graph, _MADE, made)
        outer = getattr(graph, "outer_graph", None)
        if getattr(outer, "outer_graph", None) is not None:  # itself a function's graph
            _made(outer).calls.append((str(graph.name), made))
    return made


_SAME: Final = {"DenseToRagged": "DenseToRaggedBatch", "Choose": "DirectedInterleave", "RaggedBatch": "DenseToRagged"}


@dataclass(frozen=True, slots=True)
class Places:
    """Places of a pipeline's nodes, and notes on the traces of its functions."""

    nodes: dict[str, Place] = field(default_factory=dict)  # name of a node -> file and line of the call that made it
    made: dict[str, Made] = field(default_factory=dict)  # name of a function -> what was made in its trace
    users: dict[str, Any] = field(default_factory=dict)  # name of a function -> the user's function
    autotuned: frozenset[str] = frozenset()
    """Nodes whose cycle length was left to AUTOTUNE; TensorFlow writes the number that it chose into the graph."""
    calls: dict[str, Calls] = field(default_factory=dict)
    """Name of a node -> the user's calls that were running when it was made, innermost first."""


def places(dataset: Any, graph: Any) -> Places:
    """The places of a graph's nodes and functions, as far as ``dataset`` and the objects under it tell."""
    known = dict(_pairs(dataset, graph))
    nodes = {name: place for name, one in known.items() if (place := user_place(place_of(one))) is not None}
    cycles = {name: tf.get_static_value(vars(one).get("_cycle_length")) for name, one in known.items()}
    autotuned = {name for name, cycle in cycles.items() if cycle == tf.data.AUTOTUNE}
    calls = {name: calls_of(one) for name, one in known.items()}
    traced = {
        wrapped.function.name.decode(): wrapped
        for one in source.walk(dataset)
        for wrapped in source.wrapped_functions(one)
    }
    made = {name: inner for name, wrapped in traced.items() if (inner := _made_in(wrapped.function)) is not None}
    users = {
        name: user for name, wrapped in traced.items() if (user := source.user_function(wrapped._func)) is not None
    }
    return Places(nodes, made, users, frozenset(autotuned), calls)


def user_place(place: Place | None) -> Place | None:
    """A noted place in the user's own file; ``None`` where it was in AutoGraph's and cannot be led back."""
    if place is None:
        return None
    file, line = before_autograph(*place)
    return None if file is None or line is None else (file, line)


def beneath(dataset: Any) -> Any:
    """The dataset that made the tensor which ``dataset`` only wraps; most are their own."""
    for _ in range(50):
        made = vars(dataset).get(SOURCE)
        children = [value for value in vars(dataset).values() if isinstance(value, tf.data.Dataset)]
        if type(dataset).__name__ == "_VariantDataset" and made is not None:
            dataset = made
            continue
        sharing = next((child for child in children if child._variant_tensor is dataset._variant_tensor), None)
        if sharing is None:
            return dataset
        dataset = sharing
    return dataset


def _pairs(dataset: Any, graph: Any) -> Iterator[tuple[str, Any]]:
    by_name = {node.name: node for node in graph.node}
    waiting = [(dataset, name) for name in results(graph)[:1]]
    seen: set[str] = set()
    while waiting:
        current, name = waiting.pop()
        node = by_name.get(name)
        current = beneath(current)
        if node is None or name in seen or not _agree(current, node):
            continue
        seen.add(name)
        yield name, current
        inputs, above = [*current._inputs(), *source.captured_datasets(current)], dataset_inputs(node, by_name)
        if len(above) == len(inputs):
            waiting.extend(zip(inputs, above, strict=True))
        elif len(above) >= len(current._inputs()):  # captured ones come last, and not all of them were found
            waiting.extend(zip(current._inputs(), above, strict=False))


def _agree(dataset: Any, node: Any) -> bool:
    """Whether an object and a node are of one kind; a user's own class, or a bare variant, may be any node."""
    if not source.is_tensorflow(type(dataset)) or type(dataset).__name__ == "_VariantDataset":
        return True
    ours, theirs = kind_of_op(type(dataset).__name__), kind_of_op(node.op)
    return ours.lower() == theirs.lower() or _SAME.get(ours) == theirs or _SAME.get(theirs) == ours
