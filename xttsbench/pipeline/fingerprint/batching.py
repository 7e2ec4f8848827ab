"""Whether a pipeline's elements are batches of samples, read from its graph."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from xttsbench.pipeline.graph.library import FunctionLibrary, called
from xttsbench.pipeline.graph.nodes import constant, constant_input, dataset_inputs, named_inputs, node_inputs

_BATCHES: Final = re.compile(r"(ParallelBatch|Batch|PaddedBatch|MapAndBatch|DenseToSparseBatch|Rebatch)Dataset(V\d+)?")
_KEEPS: Final = re.compile(
    r"(Experimental)?(Options|Prefetch|Model|Take|TakeWhile|Skip|Repeat|Shuffle|ShuffleAndRepeat|Cache|Map|ParallelMap"
    r"|Filter|ParallelFilter|Shard|AssertCardinality|ParseExample|Concatenate|Zip|Snapshot|Scan|ChooseFastest)"
    r"Dataset(V\d+)?"
)
"""Ops after which batches are still batches; what a function makes of them shows in their first dimension."""
_MAPS: Final = ("MapDataset", "ParallelMapDataset", "ScanDataset")


@dataclass(frozen=True, slots=True)
class Batching:
    """How elements are cut."""

    batched: bool = False
    size: int | None = None
    """Rows at most, where all of the pipeline's batches say so."""
    padding: tuple[Any, ...] | None = None
    """What rows are filled up with, by component; empty where it cannot be told by component, ``None`` where the rows
    are not filled up."""


def batching(graph: Any) -> Batching:
    """What the last data ops of a graph say; an op that takes batches apart ends the search."""
    by_name = {node.name: node for node in graph.node}
    ends = [name for node in graph.node if node.op == "_Retval" for name in node_inputs(node)]
    return _of(ends[0], by_name, FunctionLibrary(graph.library.function), mapped=False) if ends else Batching()


def _of(name: str, by_name: Mapping[str, Any], library: FunctionLibrary, *, mapped: bool) -> Batching:
    """Of one dataset node; ``mapped`` where a function comes between it and the result."""
    while (node := by_name.get(name)) is not None:
        if _BATCHES.fullmatch(node.op):
            return Batching(True, constant_input(node, "batch_size", by_name), _padding(node, by_name, mapped))
        if node.op == "GroupByWindowDataset":
            return _of_windows(node, library, mapped)
        inputs = dataset_inputs(node, by_name)
        if not _KEEPS.fullmatch(node.op) or not inputs:
            return Batching()
        mapped = mapped or node.op.startswith(_MAPS)
        if node.op.startswith(("Zip", "Concatenate")):
            return _together([_of(one, by_name, library, mapped=mapped) for one in inputs])
        name = inputs[0]
    return Batching()


def _of_windows(node: Any, library: FunctionLibrary, mapped: bool) -> Batching:
    """Of ``group_by_window`` and ``bucket_by_sequence_length``, whose function batches each window."""
    reduce = node.attr["reduce_func"].func.name if "reduce_func" in node.attr else next(iter(called(node)), "")
    for function in library.functions([reduce]):
        inside = {one.name: one for one in function.node_def}
        for one in function.node_def:
            if _BATCHES.fullmatch(one.op):
                return Batching(True, None, _padding(one, inside, mapped))
    return Batching()


def _together(parts: list[Batching]) -> Batching:
    if not parts or not all(part.batched for part in parts):
        return Batching()
    sizes = [part.size for part in parts]
    size = None if None in sizes else max(one for one in sizes if one is not None)
    return Batching(True, size, () if any(part.padding is not None for part in parts) else None)


def _padding(node: Any, by_name: Mapping[str, Any], mapped: bool) -> tuple[Any, ...] | None:
    if not node.op.startswith("PaddedBatch"):
        return None
    names = [name for argument, name in named_inputs(node) if argument == "padding_values"]
    try:
        values = [constant(name, by_name) for name in names]
    except ValueError:  # strings in a form that TensorFlow itself does not read
        return ()
    if mapped or any(value is None for value in values):
        return ()
    return tuple(value.item() for value in values if value is not None)
