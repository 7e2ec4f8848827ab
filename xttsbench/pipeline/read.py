"""The graph of a dataset as data: one record per op with its parameters, functions, captures and the line that made it.

``DatasetToGraphV2`` shows the pipeline as it was written; TensorFlow's default rewrites (parallel maps, injected
prefetch, fusion) come later and are not in it. Data held in memory (``from_tensor_slices``) is embedded in the graph:
reading 200 MB of it takes about 2 s and holds up to three copies for a moment, so a graph is read once and passed on.
What cannot be written into a graph (``prefetch_to_device``) is described by the Python objects alone. The datasets that
an op's function makes are its ``inner`` ops, and those may have inner ops again.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from xttsbench.files import mount_of
from xttsbench.pipeline import nodes
from xttsbench.pipeline.functions import (
    captures,
    has_side_effects,
    is_random,
    passes,
    reads,
    shuffles,
)
from xttsbench.pipeline.places import Made, Place, Places, beneath, calls_of, place_of, places, user_place
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
_URL: Final = re.compile(r"[A-Za-z][\w+.-]*://(?=\S+\Z)")
_MOST_NAMES: Final = 2**24  # bytes of a constant whose strings may be names of files
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
        files_on=_files_on(node, by_name),
        embedded_bytes=sum(
            one.ByteSize()
            for one in (*(by_name[name] for name in _constants(node, by_name)), *library.reach(functions))
            if one.op == "Const"
        ),
        endless=node.op == "RepeatDataset" and (nodes.constant_input(node, "count", by_name) or 0) < 0,
        drops_rest=bool(nodes.constant_input(node, "drop_remainder", by_name)),
        deterministic=node.attr["deterministic"].s.decode() if "deterministic" in node.attr else None,
        stateful=library.stateful(functions),
        python_functions=tuple(library.python_tokens(functions)),
        captures=captures(node, by_name, library),
        random=shuffles(node, by_name) or is_random(library, functions),
        side_effects=has_side_effects(library, functions),
        reads=reads(library, function, components) if node.op.startswith(_READING) else None,
        passes=passes(library, function, components) if node.op.startswith(_MAPS) else {},
        inner=_inner(functions, library, places, depth),
        location=_location(node, function, places),
        calls=places.calls.get(node.name, ()),
    )


def _constants(node: Any, by_name: Mapping[str, Any]) -> set[str]:
    """Names of the constants that a node reads itself."""
    behind = (nodes.behind_identities(name, by_name) for name in nodes.node_inputs(node))
    return {one.name for one in behind if one is not None and one.op == "Const"}


def _files_on(node: Any, by_name: Mapping[str, Any]) -> str | None:
    """File system, or scheme, of the first string of a node's constants that names a file; ``None`` where none does."""
    for name in sorted(_constants(node, by_name)):
        tensor = by_name[name].attr["value"].tensor
        if tensor.dtype == tf.string.as_datatype_enum and tensor.ByteSize() <= _MOST_NAMES:
            first = next(iter(nodes.array_of(tensor).ravel()), b"").decode(errors="replace")
            if (url := _URL.match(first)) is not None and url[0] != "file://":
                return url[0]
            first = first.removeprefix("file://")
            folder = os.path.dirname(first)
            if os.path.exists(first) or (folder and glob.has_magic(first) and os.path.isdir(folder)):
                mount = mount_of(Path(folder))
                return mount.fstype if mount is not None else None
    return None


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
    if node.name not in places.nodes and function in places.users:
        return locate(places.users[function], node.name)
    return _at(places.nodes.get(node.name), node.name)


def _at(place: Place | None, name: str) -> Location:
    return Location() if place is None else Location(file=place[0], line=place[1], op=name)


def _through_options(name: str, by_name: Mapping[str, Any]) -> str:
    while by_name[name].op == "OptionsDataset":
        name = nodes.node_inputs(by_name[name])[0]
    return name


_BUFFERED_KINDS: Final = ("Prefetch", "Shuffle")


def _python_side_ops(dataset: Any, library: nodes.FunctionLibrary) -> list[PipelineOp]:
    """The ops as the Python objects show them, sources first; ``library`` has the functions that they run.

    Names are the class name and a number; an attribute that is no constant gives ``None``. Objects that only wrap
    another's dataset (options among them) are no op of their own.
    """
    datasets = [current for current in walk(dataset) if not _is_wrapper(current)]
    kinds = [type(current).__name__.lstrip("_") for current in datasets]
    names = {
        id(current): f"{kind}/{number}" for number, (current, kind) in enumerate(zip(datasets, kinds, strict=True))
    }
    functions = [[one.function.name.decode() for one in wrapped_functions(current)] for current in datasets]
    return [
        PipelineOp(
            name=names[id(current)],
            op=kind,
            inputs=tuple(names[id(one)] for one in _inputs(current)),
            parallelism=_constant(current, "_num_parallel_calls"),
            buffer_size=_constant(current, "_buffer_size") if kind.startswith(_BUFFERED_KINDS) else None,
            batch_size=_constant(current, "_batch_size"),
            stateful=library.stateful(own),
            python_functions=tuple(library.python_tokens(own)),
            random=kind.startswith("Shuffle") or is_random(library, own),
            side_effects=has_side_effects(library, own),
            location=_at(user_place(place_of(current)), names[id(current)]),
            calls=calls_of(current),
        )
        for current, kind, own in zip(datasets, kinds, functions, strict=True)
    ]


def _python_side_library(dataset: Any) -> nodes.FunctionLibrary:
    """The functions that a dataset and all before it run, without a graph of the dataset."""
    with tf.Graph().as_default() as graph:
        for wrapped in itertools.chain.from_iterable(map(wrapped_functions, walk(dataset))):
            wrapped.function.add_to_graph(graph)
    return nodes.FunctionLibrary(graph.as_graph_def().library.function)


def _is_wrapper(dataset: Any) -> bool:
    return type(dataset).__name__ == "_OptionsDataset" or beneath(dataset) is not dataset


def _inputs(dataset: Any) -> list[Any]:
    """The datasets that one reads, wrappers looked through."""
    found = []
    for current in map(beneath, dataset._inputs()):
        found.extend(_inputs(current) if _is_wrapper(current) else [current])
    return found


def _constant(dataset: Any, attribute: str) -> int | None:
    value = tf.get_static_value(getattr(dataset, attribute, None))
    return None if value is None else int(value)


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

    What has no graph is described as far as the Python objects show it. An op's location is the line that made it where
    :mod:`xttsbench.pipeline.places` was watching, else that of its function. The Python functions are found but not
    classified (see :mod:`xttsbench.pipeline.python_functions`).
    """
    if graph is None:
        return strip_unserialisable_tail(dataset)[0]
    return described(graph, places(dataset, graph))


def described(graph: Any, made: Places | None = None) -> Pipeline:
    """Describe a graph, with the lines of its ops where they were noted."""
    library = nodes.FunctionLibrary(graph.library.function)
    datasets, by_name = nodes.dataset_nodes(graph), {node.name: node for node in graph.node}
    ops = describe(datasets, by_name, library, made or Places())
    functions = _python_functions(ops, library)
    return Pipeline(ops=ops, python_functions=functions, **nodes.option_fields(nodes.graph_options(graph)))


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
    begun, graph, why = dataset, None, None
    while graph is None:
        try:
            graph = read_graph(begun)
        except tf.errors.OpError as error:
            why, inputs = why or error.message, begun._inputs()
            if len(inputs) != 1:
                break
            begun = inputs[0]
    found = Pipeline() if graph is None else inspect(begun, graph)
    if why is None:
        return found, dataset, graph
    library = _python_side_library(dataset)
    tail = _python_side_ops(dataset, library)
    if graph is not None:
        tail = tail[len(_python_side_ops(begun, library)) :]
        tail[:1] = [one.model_copy(update={"inputs": (found.ops[-1].name,)}) for one in tail[:1]]
    known = {one.token for one in found.python_functions}
    more = (one for one in _python_functions(tail, library) if one.token not in known)
    update = {
        "ops": (*found.ops, *tail),
        "python_functions": (*found.python_functions, *more),
        "unserialisable": why,
        **nodes.option_fields(dataset.options()._to_proto()),
    }
    return found.model_copy(update=update), dataset if graph is None else begun, graph
