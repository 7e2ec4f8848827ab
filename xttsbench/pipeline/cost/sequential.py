"""A graph without concurrency: parallel ops as their sequential twins, prefetches and the like taken out.

Stages that run at the same time hide one another's cost, and threads that wait for a processor add to it. In a
sequential graph, the time of a run is the sum of what its ops cost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from xttsbench.pipeline.graph.library import called
from xttsbench.pipeline.graph.read import dataset_inputs, dataset_nodes

_TWINS: Final = {
    "ParallelMapDataset": "MapDataset",
    "ParallelMapDatasetV2": "MapDataset",
    "ParallelFilterDataset": "FilterDataset",
    "ParallelBatchDataset": "BatchDatasetV2",
    "ParallelInterleaveDatasetV2": "InterleaveDataset",
    "ParallelInterleaveDatasetV3": "InterleaveDataset",
    "ParallelInterleaveDatasetV4": "InterleaveDataset",
    "LegacyParallelInterleaveDatasetV2": "InterleaveDataset",
}
_CONCURRENT: Final = {*_TWINS, "PrefetchDataset"}
_SUFFIX: Final = "_xttsbench_sequential"
"""TensorFlow keeps one function of a name per process, so a changed one needs another."""
TRANSPARENT: Final = re.compile(
    r"^(Cache|Options|Prefetch|Repeat|Skip|Snapshot|Take|Save|AssertCardinality|Model)Dataset"
)
"""Ops that hand on the elements of their input, and that mean the whole epoch (or a file) rather than an element."""


def sequential_node(node: Any) -> None:
    """Turn a parallel dataset node of a ``GraphDef`` or a function into its sequential twin, in place."""
    twin = _TWINS.get(node.op)
    if twin is None:
        return
    before, after = op_def_registry.get(node.op), op_def_registry.get(twin)
    kept: list[str] = []
    data = iter([name for name in node.input if not name.startswith("^")])
    wanted = {argument.name for argument in after.input_arg}
    for argument in before.input_arg:
        count = len(node.attr[argument.type_list_attr].list.type) if argument.type_list_attr else 1
        names = [name for _, name in zip(range(count), data, strict=False)]
        kept.extend(names if argument.name in wanted else ())
    control = [name for name in node.input if name.startswith("^")]
    del node.input[:]
    node.input.extend([*kept, *control])
    node.op = twin
    known = {attribute.name for attribute in after.attr}
    for name in [name for name in node.attr if name not in known and not name.startswith("_")]:
        del node.attr[name]


def sequential(graph: Any) -> Any:
    """A copy of a graph in which no dataset op, in its functions neither, runs anything beside its reader.

    Prefetches in its functions are taken out; those of the outer pipeline stay (see :func:`bypassed`).
    """
    edited = tf.compat.v1.GraphDef()
    edited.CopyFrom(graph)
    changed = {f.signature.name for f in edited.library.function if any(n.op in _CONCURRENT for n in f.node_def)}
    if changed:
        renamed = _with_callers(edited.library.function, changed)
        for function in edited.library.function:
            if function.signature.name in renamed:
                function.signature.name += _SUFFIX
            _without_prefetch(function)
            for node in function.node_def:
                sequential_node(node)
                _rename_calls(node, renamed)
        for node in edited.node:
            _rename_calls(node, renamed)
    for node in edited.node:
        sequential_node(node)
    return edited


def bypassed(graph: Any, kinds: re.Pattern[str]) -> Any:
    """A copy of a graph without the dataset ops of some kinds: their readers read their (first) input instead."""
    edited = tf.compat.v1.GraphDef()
    edited.CopyFrom(graph)
    by_name = {node.name: node for node in edited.node}
    past = {n.name: dataset_inputs(n, by_name)[0] for n in dataset_nodes(edited) if kinds.match(n.op)}
    for node in edited.node:
        for number, name in enumerate(node.input):
            node.input[number] = _before(name, past)
    return edited


def _before(name: str, past: Mapping[str, str]) -> str:
    while name in past:
        name = past[name]
    return name


def _without_prefetch(function: Any) -> None:
    past = {f"{n.name}:handle:0": n.input[0] for n in function.node_def if n.op == "PrefetchDataset"}
    for node in function.node_def:
        for number, name in enumerate(node.input):
            node.input[number] = _before(name, past)
    for key, name in function.ret.items():
        function.ret[key] = _before(name, past)
    kept = [node for node in function.node_def if node.op != "PrefetchDataset"]
    del function.node_def[:]
    function.node_def.extend(kept)


def _with_callers(functions: Iterable[Any], changed: Collection[str]) -> set[str]:
    """The changed functions and all that reach them."""
    calls = {f.signature.name: {c for n in f.node_def for c in (n.op, *called(n))} for f in functions}
    found = set(changed)
    while more := {name for name, reached in calls.items() if name not in found and reached & found}:
        found |= more
    return found


def _rename_calls(node: Any, renamed: Collection[str]) -> None:
    if node.op in renamed:
        node.op += _SUFFIX
    for value in node.attr.values():
        if value.HasField("func") and value.func.name in renamed:
            value.func.name += _SUFFIX
        for function in value.list.func:
            if function.name in renamed:
                function.name += _SUFFIX
