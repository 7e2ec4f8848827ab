"""The graph of a dataset as data: its ops in order, their parameters, functions, state and options.

``DatasetToGraphV2`` shows the pipeline as it was written; TensorFlow's default rewrites (parallel maps, injected
prefetch, fusion) come later and are not in it. Data held in memory (``from_tensor_slices``) is embedded in the graph:
reading 200 MB of it takes about 2 s and holds up to three copies for a moment, so a graph is read once and passed on.
What cannot be written into a graph (``prefetch_to_device``) is described by the Python objects alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.graph.describe import describe
from xttsbench.pipeline.graph.functions import byte_offset, has_side_effects, is_random
from xttsbench.pipeline.graph.library import FunctionLibrary
from xttsbench.pipeline.graph.nodes import (
    dataset_nodes,
    graph_options,
    option_fields,
)
from xttsbench.pipeline.graph.places import beneath, calls_of, place_of, places, user_place
from xttsbench.pipeline.graph.registry import PYTHON_OPS, lookup
from xttsbench.pipeline.graph.source import display_name, locate, user_function, walk, wrapped_functions
from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction

_BUFFERED: Final = ("Prefetch", "Shuffle")


def python_side_ops(dataset: Any) -> tuple[tuple[PipelineOp, ...], FunctionLibrary]:
    """The ops, sources first, and the library of the functions that they run.

    Names are the class name and a number; an attribute that is no constant gives ``None``. Objects that only wrap
    another's dataset (options among them) are no op of their own.
    """
    datasets = [current for current in walk(dataset) if not _is_wrapper(current)]
    names = {id(current): f"{_op(current)}/{number}" for number, current in enumerate(datasets)}
    definitions: dict[str, Any] = {}
    ops = []
    for current in datasets:
        wrapped = wrapped_functions(current)
        definitions.update((f.signature.name, f) for w in wrapped for f in _definitions(w.function))
        library = FunctionLibrary(definitions.values())
        functions = [w.function.name.decode() for w in wrapped]
        name = names[id(current)]
        ops.append(
            PipelineOp(
                name=name,
                op=_op(current),
                inputs=tuple(names[id(one)] for one in _inputs(current)),
                function=functions[0] if functions else None,
                parallelism=_constant(current, "_num_parallel_calls"),
                buffer_size=_constant(current, "_buffer_size") if _op(current).startswith(_BUFFERED) else None,
                batch_size=_constant(current, "_batch_size"),
                cycle_length=_constant(current, "_cycle_length"),
                filename=_text(current, "_filename"),
                stateful=library.stateful(functions),
                python_functions=tuple(library.python_tokens(functions)),
                random=_shuffles(current) or is_random(library, functions),
                side_effects=has_side_effects(library, functions),
                byte_offset=byte_offset(library, functions),
                location=_location(current, wrapped, name),
                calls=calls_of(current),
            )
        )
    return tuple(ops), FunctionLibrary(definitions.values())


def _is_wrapper(dataset: Any) -> bool:
    return type(dataset).__name__ == "_OptionsDataset" or beneath(dataset) is not dataset


def _inputs(dataset: Any) -> list[Any]:
    """The datasets that one reads, wrappers looked through."""
    found = []
    waiting = list(reversed(dataset._inputs()))
    while waiting:
        current = waiting.pop()
        below = beneath(current)
        if below is not current:
            waiting.append(below)
        elif _is_wrapper(current):
            waiting.extend(reversed(current._inputs()))
        else:
            found.append(current)
    return found


def _location(dataset: Any, wrapped: list[Any], name: str) -> Location:
    place = user_place(place_of(dataset))
    if place is not None:
        return Location(file=place[0], line=place[1], op=name)
    users = [user for one in wrapped if (user := user_function(one._func)) is not None]
    return locate(users[0], name) if users else Location()


def _shuffles(dataset: Any) -> bool:
    if not _op(dataset).startswith("Shuffle"):
        return False
    seeds = [_constant(dataset, name) for name in ("_seed", "_seed2")]
    fixed = None not in seeds and any(seeds) and getattr(dataset, "_reshuffle_each_iteration", None) is False
    return not fixed


def _op(dataset: Any) -> str:
    return type(dataset).__name__.lstrip("_")


def _definitions(function: Any) -> list[Any]:
    """The definitions of a traced function and of all that it calls."""
    graph = tf.Graph()
    with graph.as_default():
        function.add_to_graph(graph)
    return list(graph.as_graph_def().library.function)


def _constant(dataset: Any, attribute: str) -> int | None:
    value = tf.get_static_value(getattr(dataset, attribute, None)) if hasattr(dataset, attribute) else None
    return None if value is None else int(value)


def _text(dataset: Any, attribute: str) -> str | None:
    value = tf.get_static_value(getattr(dataset, attribute, None)) if hasattr(dataset, attribute) else None
    return value.decode(errors="replace") if isinstance(value, bytes) else None


_IGNORE_EXTERNAL_STATE: Final = 1
"""``external_state_policy`` under which Python functions, tables and random state may be in the graph."""


def read_graph(dataset: Any) -> Any:
    """The ``GraphDef`` of a dataset, before TensorFlow's default rewrites.

    Raises:
        tf.errors.OpError: the dataset cannot be serialised (``copy_to_device``, over 2 GB of embedded data).
    """
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=dataset._variant_tensor, external_state_policy=_IGNORE_EXTERNAL_STATE
    )
    graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    if not graph.node:  # what TensorFlow gives, without an error, where the graph passes protobuf's limit
        raise tf.errors.ResourceExhaustedError(None, None, "The graph with its embedded data is larger than 2 GB.")
    return graph


def inspect(dataset: Any, graph: Any = None) -> Pipeline:
    """Describe a dataset without running it; ``graph`` saves reading it again.

    An op's location is the line that made it where :mod:`xttsbench.pipeline.graph.places` was watching, else that
    of its function. The Python functions are found but not classified (see
    :mod:`xttsbench.pipeline.cost.python_functions`).
    """
    unserialisable: str | None = None
    if graph is None:
        try:
            graph = read_graph(dataset)
        except tf.errors.OpError as error:
            unserialisable = error.message
    if graph is None:
        ops, library = python_side_ops(dataset)
        options = dataset.options()._to_proto()
    else:
        library = FunctionLibrary(graph.library.function)
        nodes, by_name = dataset_nodes(graph), {node.name: node for node in graph.node}
        ops = describe(nodes, by_name, library, places(dataset, graph))
        options = graph_options(graph)
    return Pipeline(
        ops=ops,
        python_functions=_python_functions(ops, library),
        unserialisable=unserialisable,
        **option_fields(options),
    )


def _python_functions(ops: Sequence[PipelineOp], library: FunctionLibrary) -> tuple[PythonFunction, ...]:
    """One record per Python function, at the first op that runs it."""
    kinds = library.all_tokens()
    found: dict[str, PythonFunction] = {}
    for op in ops:
        for token in op.python_functions:
            if token in found:
                continue
            registered = lookup(token)
            if registered is None:  # the function is gone; a run would fail, the graph still shows it
                kind, name, location = PYTHON_OPS[kinds[token]], token, Location(op=op.name)
            else:
                kind, name = registered.kind, display_name(registered.user)
                location = locate(registered.user, op.name)
            found[token] = PythonFunction(token=token, kind=kind, name=name, location=location)
    return tuple(found.values())


def strip_unserialisable_tail(dataset: Any, graph: Any = None) -> tuple[Pipeline, Any, Any]:
    """A dataset's description, the longest beginning of it that has a graph, and that graph.

    Ops after that beginning are those that the Python objects show, in their order; ``unserialisable`` says why they
    have no graph. Where no beginning has one, the dataset itself and ``None`` come back.
    """
    inner, graph = (dataset, graph) if graph is not None else _longest(dataset)
    if inner is dataset:
        return inspect(dataset, graph), dataset, graph
    whole = inspect(dataset)
    if graph is None:
        return whole, dataset, None
    begun = inspect(inner, graph)
    kept = len(python_side_ops(inner)[0])
    tail = list(whole.ops[kept:])
    if tail and begun.ops:
        tail[0] = tail[0].model_copy(update={"inputs": (begun.ops[-1].name,)})
    return (
        whole.model_copy(update={"ops": (*begun.ops, *tail), "python_functions": begun.python_functions}),
        inner,
        graph,
    )


def _longest(dataset: Any) -> tuple[Any, Any]:
    current = dataset
    while True:
        try:
            return current, read_graph(current)
        except tf.errors.OpError:
            inputs = current._inputs()
        if len(inputs) != 1:
            return current, None
        current = inputs[0]
