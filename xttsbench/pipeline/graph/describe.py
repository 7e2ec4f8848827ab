"""One record per dataset node: its parameters, what its functions do, what they capture, and where it was made.

The same is said of the nodes of a graph and of those inside a function; the ops of the datasets that an op's function
makes are its ``inner`` ops, and those may have inner ops again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from xttsbench.pipeline.graph.functions import (
    byte_offset,
    captures,
    has_side_effects,
    header_bytes,
    is_random,
    passes,
    reads,
    shuffles,
)
from xttsbench.pipeline.graph.library import FunctionLibrary, called
from xttsbench.pipeline.graph.nodes import (
    captured_inputs,
    constant_input,
    dataset_inputs,
    is_dataset,
    node_inputs,
    ordered,
    text_inputs,
)
from xttsbench.pipeline.graph.places import Made, Places, user_place
from xttsbench.pipeline.graph.source import locate, user_function
from xttsbench.records.base import Location
from xttsbench.records.pipeline import AUTOTUNE, PipelineOp

_MAIN_FUNCTION: Final = ("f", "predicate", "reduce_func", "next_func")
"""Attributes that hold an op's main function, where it has several."""
_BUFFERED: Final = ("PrefetchDataset", "ShuffleDataset", "ShuffleAndRepeatDataset", "ParallelBatchDataset")
_MAPS: Final = ("MapDataset", "ParallelMapDataset", "MapAndBatchDataset")
_READING: Final = (*_MAPS, "FilterDataset", "ParallelFilterDataset", "TakeWhileDataset")
"""Ops whose function takes the element and no state of its own."""
_FILES: Final = ("filename", "filenames", "path", "file_pattern")
_DEEPEST: Final = 10
"""Datasets made inside functions inside functions that are still described."""


def describe(
    nodes: Sequence[Any],
    by_name: Mapping[str, Any],
    library: FunctionLibrary,
    places: Places,
    *,
    depth: int = 0,
) -> tuple[PipelineOp, ...]:
    """The records of dataset nodes, in their order. Options are no op of their own: readers look through them."""
    return tuple(
        _op(node, by_name, library, places, depth)
        for node in nodes
        if node.op not in ("OptionsDataset", "DatasetFromGraph")
    )


def main_function(node: Any) -> str | None:
    """Name of the function that does a dataset node's work, where it has one."""
    main = [node.attr[key].func.name for key in _MAIN_FUNCTION if key in node.attr]
    return (main or called(node) or [None])[0]


def _op(node: Any, by_name: Mapping[str, Any], library: FunctionLibrary, places: Places, depth: int) -> PipelineOp:
    functions, function = called(node), main_function(node)
    definition = library.get(function)
    components = 0 if definition is None else len(definition.signature.input_arg) - len(captured_inputs(node))
    files = next((found for name in _FILES if (found := text_inputs(node, name, by_name)) is not None), None)
    return PipelineOp(
        name=node.name,
        op=node.op,
        inputs=tuple(_through_options(name, by_name) for name in dataset_inputs(node, by_name)),
        function=function,
        parallelism=constant_input(node, "num_parallel_calls", by_name),
        buffer_size=constant_input(node, "buffer_size", by_name) if node.op.startswith(_BUFFERED) else None,
        batch_size=constant_input(node, "batch_size", by_name),
        cycle_length=AUTOTUNE if node.name in places.autotuned else constant_input(node, "cycle_length", by_name),
        filename=None if files is None else ", ".join(files),
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


def _inner(functions: Sequence[str], library: FunctionLibrary, places: Places, depth: int) -> tuple[PipelineOp, ...]:
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
        nodes = ordered(by_name, [node.name for node in definition.node_def if is_dataset(node)])
        found.extend(describe(nodes, by_name, library, _inner_places(made or Made()), depth=depth + 1))
        for node in definition.node_def:
            if not is_dataset(node):
                waiting.extend((one, _called_trace(made, one)) for one in (node.op, *called(node)))
    return tuple(found)


def _inner_places(made: Made) -> Places:
    """What was noted in one trace, as the places of that function's nodes."""
    own = {name: user_place(place) for name, place in made.places.items()}
    users = {name: user_function(function) for name, function in made.users.items()}
    return Places(
        {name: place for name, place in own.items() if place is not None},
        made.functions,
        {name: user for name, user in users.items() if user is not None},
    )


def _called_trace(made: Made | None, function: str) -> Made | None:
    """What was noted in the trace of a called function, whose name is that of its graph between a mark and a number."""
    found = [] if made is None else [inner for name, inner in made.calls if _trace_of(name, function)]
    return found[0] if len(found) == 1 else None


def _trace_of(graph: str, function: str) -> bool:
    return re.fullmatch(rf"__\w+?_{re.escape(graph)}_\d+", function) is not None


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
        name = node_inputs(by_name[name])[0]
    return name
