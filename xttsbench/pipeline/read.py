"""The graph of a dataset as data: one record per op with its parameters, functions, captures and the line that made it.

``DatasetToGraphV2`` shows the pipeline as it was written; TensorFlow's default rewrites (parallel maps, injected
prefetch, fusion) come later and are not in it. Data held in memory (``from_tensor_slices``) is embedded in the graph:
reading 200 MB of it takes about 2 s and holds up to three copies for a moment, so a graph is read once and passed on.
What cannot be written into a graph (``prefetch_to_device``) is described by the Python objects alone. The datasets that
an op's function makes are its ``inner`` ops, and those may have inner ops again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline import nodes
from xttsbench.pipeline.functions import (
    byte_offset,
    captures,
    has_side_effects,
    header_bytes,
    is_random,
    passes,
    reads,
    shuffles,
)
from xttsbench.pipeline.places import Made, Places, beneath, calls_of, place_of, places, user_place
from xttsbench.pipeline.source import (
    PYTHON_OPS,
    display_name,
    locate,
    lookup,
    user_function,
    users_behind,
    walk,
    wrapped_functions,
)
from xttsbench.records.base import Location
from xttsbench.records.pipeline import AUTOTUNE, Pipeline, PipelineOp, PythonFunction

_MAIN_FUNCTION: Final = ("f", "predicate", "reduce_func", "next_func")
"""Attributes that hold an op's main function, where it has several."""
_BUFFERED: Final = ("PrefetchDataset", "ShuffleDataset", "ShuffleAndRepeatDataset", "ParallelBatchDataset")
_MAPS: Final = ("MapDataset", "ParallelMapDataset", "MapAndBatchDataset")
_READING: Final = (*_MAPS, "FilterDataset", "ParallelFilterDataset", "TakeWhileDataset")
"""Ops whose function takes the element and no state of its own."""
_FILES: Final = ("filename", "filenames", "path", "file_pattern")
_DEEPEST: Final = 10  # datasets made inside functions inside functions that are still described


def describe(
    datasets: Sequence[Any],
    by_name: Mapping[str, Any],
    library: nodes.FunctionLibrary,
    places: Places,
    *,
    depth: int = 0,
) -> tuple[PipelineOp, ...]:
    """The records of dataset nodes, in their order. Options are no op of their own: readers look through them."""
    return tuple(
        _op(node, by_name, library, places, depth)
        for node in datasets
        if node.op not in ("OptionsDataset", "DatasetFromGraph")
    )


def _main_function(node: Any) -> str | None:
    """Name of the function that does a dataset node's work, where it has one."""
    main = [node.attr[key].func.name for key in _MAIN_FUNCTION if key in node.attr]
    return (main or nodes.called(node) or [None])[0]


def _op(
    node: Any, by_name: Mapping[str, Any], library: nodes.FunctionLibrary, places: Places, depth: int
) -> PipelineOp:
    functions, function = nodes.called(node), _main_function(node)
    definition = library.get(function)
    components = 0 if definition is None else len(definition.signature.input_arg) - len(nodes.captured_inputs(node))
    files = next((found for name in _FILES if (found := nodes.text_inputs(node, name, by_name)) is not None), None)
    return PipelineOp(
        name=node.name,
        op=node.op,
        inputs=tuple(_through_options(name, by_name) for name in nodes.dataset_inputs(node, by_name)),
        function=function,
        parallelism=nodes.constant_input(node, "num_parallel_calls", by_name),
        buffer_size=nodes.constant_input(node, "buffer_size", by_name) if node.op.startswith(_BUFFERED) else None,
        batch_size=nodes.constant_input(node, "batch_size", by_name),
        cycle_length=AUTOTUNE if node.name in places.autotuned else nodes.constant_input(node, "cycle_length", by_name),
        filename=None if files is None else ", ".join(files),
        compression="".join(nodes.text_inputs(node, "compression_type", by_name) or ()) or None,
        deterministic=node.attr["deterministic"].s.decode() if "deterministic" in node.attr else None,
        stateful=library.stateful(functions),
        python_functions=tuple(library.python_tokens(functions)),
        captures=captures(node, by_name, library),
        random=shuffles(node, by_name) or is_random(library, functions),
        side_effects=has_side_effects(library, functions),
        reads=reads(library, function, components) if node.op.startswith(_READING) else None,
        passes=passes(library, function, components) if node.op.startswith(_MAPS) else {},
        byte_offset=byte_offset(library, functions) or header_bytes(node, by_name),
        inner=_inner(functions, library, places, depth),
        location=_location(node, function, places),
        calls=places.calls.get(node.name, ()),
    )


def _inner(
    functions: Sequence[str], library: nodes.FunctionLibrary, places: Places, depth: int
) -> tuple[PipelineOp, ...]:
    """Ops of the datasets that the named functions make themselves, or in functions that they call."""
    found: list[PipelineOp] = []
    waiting: list[tuple[str, Made | None]] = [(name, places.made.get(name)) for name in functions]
    seen: set[str] = set()
    while waiting and depth < _DEEPEST:
        name, made = waiting.pop(0)
        definition = library.get(name)
        if definition is None or name in seen:
            continue
        seen.add(name)
        by_name = {node.name: node for node in definition.node_def}
        datasets = nodes.ordered(by_name, [node.name for node in definition.node_def if nodes.is_dataset(node)])
        found.extend(describe(datasets, by_name, library, _inner_places(made or Made()), depth=depth + 1))
        for node in definition.node_def:
            if not nodes.is_dataset(node):
                waiting.extend((one, _called_trace(made, one)) for one in (node.op, *nodes.called(node)))
    return tuple(found)


def _inner_places(made: Made) -> Places:
    """Notes on one trace as the places of that function's nodes."""
    own = {name: found for name, place in made.places.items() if (found := user_place(place)) is not None}
    users = {name: user for name, function in made.users.items() if (user := user_function(function)) is not None}
    return Places(own, made.functions, users)


def _called_trace(made: Made | None, function: str) -> Made | None:
    """Notes on the trace of a called function, whose name is that of its graph between a mark and a number."""
    calls = [] if made is None else made.calls
    found = [inner for name, inner in calls if re.fullmatch(rf"__\w+?_{re.escape(name)}_\d+", function)]
    return found[0] if len(found) == 1 else None


def _location(node: Any, function: str | None, places: Places) -> Location:
    """The line of the call that made the op; where that was not noted, the line of its function."""
    if node.name in places.nodes:
        file, line = places.nodes[node.name]
        return Location(file=file, line=line, op=node.name)
    if function in places.users:
        return locate(places.users[function], node.name)
    return Location()


def _through_options(name: str, by_name: Mapping[str, Any]) -> str:
    while by_name[name].op == "OptionsDataset":
        name = nodes.node_inputs(by_name[name])[0]
    return name


_BUFFERED_KINDS: Final = ("Prefetch", "Shuffle")


def _python_side_ops(dataset: Any) -> tuple[tuple[PipelineOp, ...], nodes.FunctionLibrary]:
    """The ops, sources first, and the library of the functions that they run.

    Names are the class name and a number; an attribute that is no constant gives ``None``. Objects that only wrap
    another's dataset (options among them) are no op of their own.
    """
    datasets = [current for current in walk(dataset) if not _is_wrapper(current)]
    names = {id(current): f"{_class_name(current)}/{number}" for number, current in enumerate(datasets)}
    definitions: dict[str, Any] = {}
    ops = []
    for current in datasets:
        wrapped = wrapped_functions(current)
        definitions.update((f.signature.name, f) for w in wrapped for f in _definitions(w.function))
        library = nodes.FunctionLibrary(definitions.values())
        functions = [w.function.name.decode() for w in wrapped]
        name, kind = names[id(current)], _class_name(current)
        ops.append(
            PipelineOp(
                name=name,
                op=kind,
                inputs=tuple(names[id(one)] for one in _inputs(current)),
                function=functions[0] if functions else None,
                parallelism=_constant(current, "_num_parallel_calls"),
                buffer_size=_constant(current, "_buffer_size") if kind.startswith(_BUFFERED_KINDS) else None,
                batch_size=_constant(current, "_batch_size"),
                cycle_length=_constant(current, "_cycle_length"),
                filename=_text(current, "_filename"),
                stateful=library.stateful(functions),
                python_functions=tuple(library.python_tokens(functions)),
                random=_shuffles(current) or is_random(library, functions),
                side_effects=has_side_effects(library, functions),
                byte_offset=byte_offset(library, functions),
                location=_object_location(current, wrapped, name),
                calls=calls_of(current),
            )
        )
    return tuple(ops), nodes.FunctionLibrary(definitions.values())


def _is_wrapper(dataset: Any) -> bool:
    return type(dataset).__name__ == "_OptionsDataset" or beneath(dataset) is not dataset


def _inputs(dataset: Any) -> list[Any]:
    """The datasets that one reads, wrappers looked through."""
    found = []
    for current in map(beneath, dataset._inputs()):
        found.extend(_inputs(current) if _is_wrapper(current) else [current])
    return found


def _object_location(dataset: Any, wrapped: list[Any], name: str) -> Location:
    place = user_place(place_of(dataset))
    if place is not None:
        return Location(file=place[0], line=place[1], op=name)
    users = [user for one in wrapped if (user := user_function(one._func)) is not None]
    return locate(users[0], name) if users else Location()


def _shuffles(dataset: Any) -> bool:
    if not _class_name(dataset).startswith("Shuffle"):
        return False
    seeds = [_constant(dataset, name) for name in ("_seed", "_seed2")]
    return None in seeds or not any(seeds) or getattr(dataset, "_reshuffle_each_iteration", None) is not False


def _class_name(dataset: Any) -> str:
    return type(dataset).__name__.lstrip("_")


def _definitions(function: Any) -> list[Any]:
    graph = tf.Graph()
    with graph.as_default():
        function.add_to_graph(graph)
    return list(graph.as_graph_def().library.function)


def _static(dataset: Any, attribute: str) -> Any:
    return tf.get_static_value(getattr(dataset, attribute)) if hasattr(dataset, attribute) else None


def _constant(dataset: Any, attribute: str) -> int | None:
    value = _static(dataset, attribute)
    return None if value is None else int(value)


def _text(dataset: Any, attribute: str) -> str | None:
    value = _static(dataset, attribute)
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

    An op's location is the line that made it where :mod:`xttsbench.pipeline.places` was watching, else that
    of its function. The Python functions are found but not classified (see
    :mod:`xttsbench.pipeline.python_functions`).
    """
    unserialisable: str | None = None
    try:
        graph = read_graph(dataset) if graph is None else graph
    except tf.errors.OpError as error:
        unserialisable = error.message
        ops, library = _python_side_ops(dataset)
        options = dataset.options()._to_proto()
    else:
        library = nodes.FunctionLibrary(graph.library.function)
        datasets, by_name = nodes.dataset_nodes(graph), {node.name: node for node in graph.node}
        ops = describe(datasets, by_name, library, places(dataset, graph))
        options = nodes.graph_options(graph)
    return Pipeline(
        ops=ops,
        python_functions=_python_functions(ops, library),
        unserialisable=unserialisable,
        **nodes.option_fields(options),
    )


def _python_functions(ops: Sequence[PipelineOp], library: nodes.FunctionLibrary) -> tuple[PythonFunction, ...]:
    """One record per Python function, at the first op that runs it."""
    kinds = library.all_tokens()
    found: dict[str, PythonFunction] = {}
    for op in ops:
        for token in (one for one in op.python_functions if one not in found):
            registered = lookup(token)
            if registered is None:  # the function is gone; a run would fail, the graph still shows it
                kind, name, location = PYTHON_OPS[kinds[token]], token, Location(op=op.name)
            else:
                kind, own = registered.kind, users_behind(registered.user)
                name, location = display_name(own), locate(own, op.name)
            found[token] = PythonFunction(token=token, kind=kind, name=name, location=location)
    return tuple(found.values())


def strip_unserialisable_tail(dataset: Any) -> tuple[Pipeline, Any, Any]:
    """A dataset's description, the longest beginning of it that has a graph, and that graph.

    Ops after that beginning are those that the Python objects show, in their order; ``unserialisable`` says why they
    have no graph. Where no beginning has one, the dataset itself and ``None`` come back.
    """
    begun, graph = dataset, None
    while graph is None:
        try:
            graph = read_graph(begun)
        except tf.errors.OpError:
            inputs = begun._inputs()
            if len(inputs) != 1:
                return inspect(dataset), dataset, None
            begun = inputs[0]
    found = inspect(begun, graph)
    if begun is dataset:
        return found, dataset, graph
    whole = inspect(dataset)
    tail = list(whole.ops[len(_python_side_ops(begun)[0]) :])
    if tail and found.ops:
        tail[0] = tail[0].model_copy(update={"inputs": (found.ops[-1].name,)})
    update = {"ops": (*found.ops, *tail), "python_functions": found.python_functions}
    return whole.model_copy(update=update), begun, graph
