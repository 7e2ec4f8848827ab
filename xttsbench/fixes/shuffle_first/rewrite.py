"""A shuffle moved before the maps in front of it: the order is drawn as before, of what the maps are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from xttsbench.fixes.graph.edit import does_not_apply, flat_spec, readers, redirect, set_spec, source_of
from xttsbench.fixes.graph.hazards import MAPS, Reader
from xttsbench.pipeline.nodes import copied, data_inputs, dataset_nodes, node_inputs, set_inputs
from xttsbench.records.fix import Fix, FixSet

_FIX: Final = "shuffle-first"


def shuffle_first(graph: Any) -> Any:
    """The graph with its first shuffle that is right behind a map before it, and before all maps in a row.

    The elements and their order stay; a function that draws numbers draws them for other elements.

    Raises:
        InvalidInputError: no shuffle is right behind a map that nothing else reads.
    """
    by_name = {node.name: node for node in graph.node}
    for node in _shuffles(graph):
        passed = _passed(graph, node, by_name)
        if not passed:
            continue
        edited = copied(graph)
        by_name = {one.name: one for one in edited.node}
        moved, nearest, farthest = by_name[node.name], by_name[passed[0].name], by_name[passed[-1].name]
        above = by_name[node_inputs(farthest)[0]]
        redirect(edited, moved.name, nearest.name)
        set_inputs(moved, [above.name, *data_inputs(moved)[1:]])
        set_inputs(farthest, [moved.name, *data_inputs(farthest)[1:]])
        set_spec(moved, flat_spec(above, _FIX))
        return edited
    raise does_not_apply(_FIX, "no shuffle of the dataset is right behind a map that nothing else reads")


def hazards(reader: Reader, _fix: Fix, _every: FixSet) -> Iterator[str]:
    """State of the maps that it goes before, and what they read later than before."""
    for name in reader.maps_above([node.name for node in _shuffles(reader.graph)]):
        for told in reader.state(name):
            yield f"calls in another order would change its state: {told}"
        for told in reader.reads(name):
            yield f"calls that come later would find something else: {told}"


def _shuffles(graph: Any) -> list[Any]:
    return [node for node in dataset_nodes(graph) if node.op.startswith("ShuffleDataset")]


def _passed(graph: Any, shuffle: Any, by_name: Any) -> list[Any]:
    found, here = list[Any](), shuffle
    while (before := source_of(here, by_name)) is not None and MAPS.fullmatch(before.op) and "Batch" not in before.op:
        if len(readers(graph, before.name)) != 1 or source_of(before, by_name) is None:
            break
        found.append(before)
        here = before
    return found
