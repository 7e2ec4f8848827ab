"""A filter moved before the maps in front of it, in a graph.

A filter may go before a map where all that it looks at is handed through untouched. It then takes the components that
the map was given: its function is written anew for them, under a name of its own, since TensorFlow keeps one function
of a name in a process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.graph.edit import does_not_apply, flat_spec, readers, redirect, set_spec, source_of
from xttsbench.fixes.graph.functions import inlined, needed_nodes, node_of, state
from xttsbench.fixes.graph.hazards import Reader
from xttsbench.pipeline.functions import is_random, passes, reads
from xttsbench.pipeline.nodes import FunctionLibrary, copied, data_inputs, dataset_nodes, node_inputs, set_inputs
from xttsbench.records.fix import Fix, FixSet

_FILTER_FIRST: Final = "filter-first"
_FILTERS: Final = ("FilterDataset", "ParallelFilterDataset")
_PLAIN_MAPS: Final = ("MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2")
_copies = itertools.count()  # numbers the functions written in this process


def filter_first(graph: Any) -> Any:
    """The graph with its first such filter before the maps that it does not need; names of nodes stay.

    The elements and their order stay, unless a Python function of a map that is passed counts its calls or draws
    numbers: it is now called for the kept elements alone.

    Raises:
        InvalidInputError: there is no such filter, or what would be passed or moved holds state.
    """
    library = FunctionLibrary(graph.library.function)
    why = "the dataset has no filter"
    for node in dataset_nodes(graph):
        if node.op not in _FILTERS:
            continue
        passed, components, why = _maps_not_needed(graph, library, node)
        if passed:
            edited, moved = _put_before(graph, node, passed, _FILTER_FIRST)
            old = inlined(library, library.get(node.attr["predicate"].func.name))
            taken, takes = len(flat_spec(node, _FILTER_FIRST)), flat_spec(moved, _FILTER_FIRST)
            new = edited.library.function.add()
            new.CopyFrom(_predicate(old, components, taken, takes))
            new.signature.name = f"{old.signature.name}_before_the_map_{next(_copies)}"
            moved.attr["predicate"].func.name = new.signature.name
            return edited
    raise does_not_apply(_FILTER_FIRST, why)


def filter_hazards(reader: Reader, _fix: Fix, _every: FixSet) -> Iterator[str]:
    """State of the filters and of the maps that they would go before."""
    filters = [name for name, node in reader.nodes.items() if node.op.endswith("FilterDataset")]
    for node in (*filters, *reader.maps_above(filters)):
        yield from (f"fewer calls, in another order would change its state: {told}" for told in reader.state(node))


def _maps_not_needed(graph: Any, library: FunctionLibrary, node: Any) -> tuple[list[Any], dict[int, int], str]:
    """The maps that a filter can go before, the nearest first; what it reads -> what that is before them; why no more.

    Each map is one that nothing else reads, holds no state, and hands through what the filter looks at.
    """
    by_name = {one.name: one for one in graph.node}
    predicate = node.attr["predicate"].func.name
    read = reads(library, predicate, len(flat_spec(node, _FILTER_FIRST)))
    if read is None:
        return [], {}, f"the function of {node.name} is not in the graph"
    held = state(library, [predicate], python=False)
    if held is not None:
        return [], {}, f"the function of {node.name} runs {held}, which may depend on what ran before it"
    passed, components, here = list[Any](), {number: number for number in read}, node
    while True:
        here = source_of(here, by_name)
        above = source_of(here, by_name) if here is not None and here.op in _PLAIN_MAPS else None
        if here is None or above is None:
            return passed, components, f"no map comes right before {node.name}"
        function = here.attr["f"].func.name
        handed = passes(library, function, len(flat_spec(above, _FILTER_FIRST)))
        held = state(library, [function], python=True)
        if len(readers(graph, here.name)) != 1:
            return passed, components, f"{here.name} is read by other ops as well"
        if held is not None or is_random(library, [function]):
            why = f"{here.name} runs {held or 'random ops'}, which would yield something else for fewer elements"
            return passed, components, why
        if not handed.keys() >= set(components.values()):
            return passed, components, f"{node.name} looks at what {here.name} computes"
        components = {number: handed[at] for number, at in components.items()}
        passed.append(here)


def _put_before(graph: Any, node: Any, passed: Sequence[Any], fix: str) -> tuple[Any, Any]:
    """A copy of the graph with a node before the maps that it passes, the nearest first; and the node in it."""
    edited = copied(graph)
    by_name = {one.name: one for one in edited.node}
    moved, farthest = by_name[node.name], by_name[passed[-1].name]
    above = by_name[node_inputs(farthest)[0]]
    redirect(edited, moved.name, passed[0].name)
    set_inputs(moved, [above.name, *data_inputs(moved)[1:]])
    set_inputs(farthest, [moved.name, *data_inputs(farthest)[1:]])
    set_spec(moved, flat_spec(above, fix))
    return edited, moved


def _predicate(old: Any, components: Mapping[int, int], count: int, spec: Sequence[tf.TensorSpec]) -> Any:
    """The filter's function for the elements before the maps.

    Args:
        old: its definition, calls written out; it takes ``count`` components and what it captures.
        components: number of each component that it reads -> number of that component before the maps.
        count: components of the elements that it took.
        spec: components of the elements that it takes now.
    """
    taken, captured = list(old.signature.input_arg[:count]), list(old.signature.input_arg[count:])
    new = type(old)()
    new.CopyFrom(old)
    del new.signature.input_arg[:]
    new.arg_attr.clear()
    prefix = "component_"
    while any(one.name.startswith(prefix) for one in (*captured, *old.node_def)):
        prefix += "_"
    for number, one in enumerate(spec):
        new.signature.input_arg.add(name=f"{prefix}{number}", type=one.dtype.as_datatype_enum)
    new.signature.input_arg.extend(captured)
    for number in range(len(captured)):
        if count + number in old.arg_attr:
            new.arg_attr[len(spec) + number].CopyFrom(old.arg_attr[count + number])
    renamed = {taken[number].name: f"{prefix}{before}" for number, before in components.items()}
    gone = {argument.name for argument in taken} - set(renamed)
    needed = needed_nodes(old)
    del new.node_def[:]
    for node in old.node_def:
        if node.name not in needed:
            continue
        if any(one in gone for one in node_inputs(node)):
            raise does_not_apply(_FILTER_FIRST, f"{node.name} in the filter's function is given what the map computes")
        written = new.node_def.add()
        written.CopyFrom(node)
        del written.input[:]
        written.input.extend(_renamed(one, renamed) for one in node.input if node_of(one) not in gone)
    for key, reference in old.ret.items():
        new.ret[key] = _renamed(reference, renamed)
    return new


def _renamed(reference: str, names: Mapping[str, str]) -> str:
    name = node_of(reference)
    return reference.replace(name, names.get(name, name), 1)
