"""Maps that run several calls of their function at a time, order kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import tensorflow as tf

from xttsbench.fixes.graph.edit import does_not_apply
from xttsbench.fixes.graph.hazards import MAPS, Reader
from xttsbench.pipeline.nodes import add_constant, constant_input, copied, data_inputs, dataset_nodes, set_inputs
from xttsbench.records.fix import Fix, FixSet

_CALLS_ARE_LAST: Final = ("ParallelMapDataset", "ParallelMapDatasetV2")
"""Parallel maps; the number of calls is their last input."""


def parallel_map(graph: Any, *, calls: int = tf.data.AUTOTUNE) -> Any:
    """Every sequential ``map`` of the outer pipeline made parallel, order kept.

    A ``map`` inside the function of ``interleave`` or ``flat_map`` stays: there the outer op is the one to make
    parallel.

    Raises:
        InvalidInputError: there is no sequential map.
    """
    edited = copied(graph)
    maps = [node for node in dataset_nodes(edited) if node.op == "MapDataset"]
    if not maps:
        raise does_not_apply("parallel-map", "the dataset has no sequential map")
    for node in maps:
        set_inputs(node, [*data_inputs(node), add_constant(edited, f"{node.name}/num_parallel_calls", calls)])
        node.op = "ParallelMapDatasetV2"
        node.attr.pop("force_synchronous", None)
        node.attr["deterministic"].s = b"true"
    return edited


def parallel_calls(graph: Any, *, calls: int) -> Any:
    """Every map of the outer pipeline that is parallel already given ``calls`` calls, whatever it asked for.

    Raises:
        InvalidInputError: there is no parallel map, or all of them have this number of calls.
    """
    fix = f"calls:{calls}"
    edited = copied(graph)
    by_name = {node.name: node for node in edited.node}
    maps = [node for node in dataset_nodes(edited) if node.op in _CALLS_ARE_LAST]
    if not maps:
        raise does_not_apply(fix, "the dataset has no parallel map (parallel-map makes the sequential ones parallel)")
    changed = [node for node in maps if constant_input(node, "num_parallel_calls", by_name) != calls]
    if not changed:
        raise does_not_apply(fix, f"every parallel map makes {calls} calls at a time already")
    for node in changed:
        if node.op == "ParallelMapDataset":  # of TensorFlow 1, whose number is an int32
            node.op = "ParallelMapDatasetV2"
            node.attr["deterministic"].s = b"false" if node.attr["sloppy"].b else b"default"
            node.attr.pop("sloppy", None)
        number = add_constant(edited, f"{node.name}/num_parallel_calls", calls)
        set_inputs(node, [*data_inputs(node)[:-1], number])
    return edited


def hazards(reader: Reader, fix: Fix, _every: FixSet) -> Iterator[str]:
    """State of the maps that would be called several times at once."""
    sequential = [name for name, node in reader.nodes.items() if node.op == "MapDataset"]
    return reader.shared_state(sequential if fix.kind == "parallel-map" else reader.named(MAPS))
