"""A map moved past ops that only hand elements on, so that it stands right before the batch that they lead to."""

from __future__ import annotations

from typing import Any, Final

from xttsbench.fixes.graph.edit import copied, data_inputs, set_inputs
from xttsbench.fixes.graph.splice import flat_spec, readers, redirect, set_spec, source_of
from xttsbench.pipeline.graph.library import FunctionLibrary
from xttsbench.pipeline.graph.nodes import node_inputs

_FIX: Final = "batch-first"
MAPS: Final = ("MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2")
_HANDING_ON: Final = ("PrefetchDataset", "RepeatDataset", "TakeDataset")
_SHUFFLES: Final = ("ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3")
"""Passed by functions without Python only: they would be called in another order."""


def sunk(graph: Any, name: str) -> Any | None:
    """The graph with the nearest map above the named op right before it; the same where it stands there.

    ``None`` where something else comes in between, or where an op on the way is read by others too. The map's function
    must hold no state: it is called as often as before, on the same elements.
    """
    by_name = {node.name: node for node in graph.node}
    between: list[str] = []
    here = source_of(by_name[name], by_name)
    while here is not None and here.op in (*_HANDING_ON, *_SHUFFLES) and len(readers(graph, here.name)) == 1:
        between.append(here.name)
        here = source_of(here, by_name)
    if here is None or here.op not in MAPS or source_of(here, by_name) is None or len(readers(graph, here.name)) != 1:
        return None
    if not between:
        return graph
    tokens = FunctionLibrary(graph.library.function).python_tokens([here.attr["f"].func.name])
    if tokens and any(by_name[one].op in _SHUFFLES for one in between):
        return None
    edited = copied(graph)
    new = {node.name: node for node in edited.node}
    above, result = new[node_inputs(here)[0]], flat_spec(here, _FIX)
    redirect(edited, here.name, above.name)
    redirect(edited, between[0], here.name)
    mapped = new[here.name]
    set_inputs(mapped, [between[0], *data_inputs(mapped)[1:]])
    for one in between:
        set_spec(new[one], flat_spec(above, _FIX))
    set_spec(mapped, result)
    return edited
