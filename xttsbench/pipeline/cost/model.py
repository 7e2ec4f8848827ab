"""From tf.data's performance model to a cost per op: pure, so that it is tested with hand-built models.

TensorFlow keeps one node per live iterator. An op under ``repeat`` gets a new one each epoch, the inner datasets of
``interleave`` come and go, and the counters of what is gone are gone too. So costs are taken per element, over every
incarnation that was seen, and scaled by how many elements a batch of the whole pipeline takes at that op.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from xttsbench.records.pipeline import PipelineOp

_INNER_DATASETS: Final = re.compile(r"^(FlatMap|(Legacy)?(Parallel)?Interleave|GroupByWindow)")
"""Ops that run datasets made by their function; the model puts those after the op's own inputs."""
_ADORNED: Final = re.compile(r"^(Finite|Forever|Empty|Memory|File|From)|Dataset|(V\d+)$")


@dataclass(frozen=True, slots=True)
class ModelNode:
    """One iterator in TensorFlow's model."""

    id: int
    name: str
    elements: int
    time_ns: int
    """Its own processing time, waits and sleeps included, time in its inputs excluded."""
    ratio: float | None = None
    """Elements that it takes from its input for one of its own, where TensorFlow knows."""
    inputs: tuple[int, ...] = ()
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Tuned values in force (``state_value``), by name."""


@dataclass(frozen=True, slots=True)
class OpCost:
    """What the model says of one op."""

    cost_s: float | None
    elements: int
    elements_per_batch: float | None


def merge(snapshots: Sequence[Mapping[int, ModelNode]]) -> dict[int, ModelNode]:
    """All nodes seen in a run's snapshots, each with what it did after the first snapshot.

    What filled buffers and caches before the first snapshot is thereby left out, except for a node that did nothing
    since: that one keeps its whole history.
    """
    merged: dict[int, ModelNode] = {}
    for snapshot in snapshots:
        for node in snapshot.values():
            known = merged.get(node.id)
            inputs = dict.fromkeys((*(known.inputs if known else ()), *node.inputs))
            merged[node.id] = replace(node, inputs=tuple(sorted(inputs)))  # ids grow in order of creation
    for start in snapshots[0].values() if len(snapshots) > 1 else ():
        node = merged[start.id]
        if node.elements > start.elements:
            merged[node.id] = replace(
                node, elements=node.elements - start.elements, time_ns=node.time_ns - start.time_ns
            )
    return merged


def match(
    nodes: Mapping[int, ModelNode], root: int, ops: Sequence[PipelineOp], *, rewritten: bool = False
) -> tuple[dict[str, list[int]], int]:
    """Ids of the model nodes of each op, and how many nodes beside the root and inner datasets belong to none.

    Both are walked from the end; a node without an op (an injected prefetch, the inside of a cache) and an op without
    a node are stepped over. ``ops`` is in order from the sources to the end. With ``rewritten``, the run had the
    default rewrites on: an op may have become parallel, or one with the op that reads it.
    """
    by_name = {op.name: op for op in ops}
    matched: dict[str, list[int]] = {}
    waiting = [(list(nodes[root].inputs), ops[-1].name)] if ops else []
    ignored = 0
    while waiting:
        ids, name = waiting.pop()
        op = by_name[name]
        skipped, found = _skip_to(ids, op, nodes, rewritten)
        if not found:  # the op has no node of its own: try its input on the same nodes
            waiting.extend((ids, upstream) for upstream in op.inputs if ids and len(op.inputs) == 1)
            continue
        ignored += skipped
        matched.setdefault(name, []).extend(found)
        for number, upstream in enumerate(op.inputs):
            fused = [i for i in found if rewritten and nodes[i].name.startswith("MapAndBatch")]
            if fused and "Batch" in op.op and "Map" in by_name[upstream].op:
                waiting.append((fused, upstream))
                continue
            waiting.append(([child for i in found for child in _input_nodes(nodes[i], op, number)], upstream))
    return matched, ignored


def costs(
    nodes: Mapping[int, ModelNode], matched: Mapping[str, Sequence[int]], ops: Sequence[PipelineOp]
) -> dict[str, OpCost]:
    """Cost per batch of the whole pipeline, for every op that has a node. ``cost_s`` is ``None`` without elements.

    Where TensorFlow knows how many inputs an op takes per element (``batch``, ``map``), that ratio is used, since
    counts run ahead in buffers; else (``filter``, ``interleave``) the counts are.
    """
    result: dict[str, OpCost] = {}
    taken: dict[str, float] = {ops[-1].name: 1.0} if ops else {}
    for op in reversed(ops):
        ids = matched.get(op.name, ())
        own = [nodes[i] for i in ids]
        elements = sum(node.elements for node in own)
        per_batch = taken.get(op.name)
        ratio = next((node.ratio for node in own if node.ratio), None)
        upstream = {name: sum(nodes[i].elements for i in matched.get(name, ())) for name in op.inputs}
        counted = op.op.startswith("Concatenate") or (ratio is None and bool(own))
        for name in op.inputs:
            if per_batch is None:
                continue
            if not counted:
                taken[name] = per_batch * (ratio or 1.0)
            elif elements:
                taken[name] = per_batch * upstream[name] / elements
        if own:
            seconds = _per_element_s(own, op, nodes)
            cost_s = seconds * per_batch if seconds is not None and per_batch is not None else None
            result[op.name] = OpCost(cost_s, elements, per_batch)
    return result


def _skip_to(ids: list[int], op: PipelineOp, nodes: Mapping[int, ModelNode], rewritten: bool) -> tuple[int, list[int]]:
    """Step over nodes with one input each until their name is the op's; empty where none is."""
    skipped = 0
    while ids:
        here = [i for i in ids if _same(nodes[i].name, op.op, rewritten)]
        if here:
            return skipped, here
        skipped += len(ids)
        ids = [child for i in ids if len(nodes[i].inputs) == 1 for child in nodes[i].inputs]
    return 0, []


def _input_nodes(node: ModelNode, op: PipelineOp, number: int) -> tuple[int, ...]:
    """The nodes of an op's input: where it has one and no inner datasets, every child is an epoch of that input."""
    if len(op.inputs) == 1 and not _INNER_DATASETS.match(op.op):
        return node.inputs
    return node.inputs[number : number + 1]


def _per_element_s(own: Sequence[ModelNode], op: PipelineOp, nodes: Mapping[int, ModelNode]) -> float | None:
    """Seconds per element of an op, inner datasets included; ``None`` where nothing was produced."""
    elements = sum(node.elements for node in own)
    inner_s: float | None = 0.0
    parallel_inner = False
    if _INNER_DATASETS.match(op.op):
        roots = [nodes[i] for node in own for i in node.inputs[len(op.inputs) :]]
        produced = sum(node.elements for node in roots)
        inner_s = sum(node.time_ns for node in _below(roots, nodes)) / 1e9 / produced if produced else None
        # The threads of a parallel interleave wait for one another; that wait is booked as the op's own time.
        parallel_inner = op.parallelism is not None or "Parallel" in op.op
    if not elements or inner_s is None:
        return None
    return inner_s + (0.0 if parallel_inner else sum(node.time_ns for node in own) / 1e9 / elements)


def _below(roots: Iterable[ModelNode], nodes: Mapping[int, ModelNode]) -> Iterable[ModelNode]:
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(nodes[i] for i in node.inputs if i in nodes)


def _same(node: str, op: str, rewritten: bool) -> bool:
    node, op = _plain(node), _plain(op)
    if not rewritten:
        return node == op
    op = op.removeprefix("Parallel")
    return node.removeprefix("Parallel") == op or (node == "MapAndBatch" and op in ("Map", "Batch"))


def _plain(name: str) -> str:
    """``ParallelMapDatasetV2`` and ``ParallelMapV2`` -> ``ParallelMap``; ``ForeverRepeat`` -> ``Repeat``."""
    while (shorter := _ADORNED.sub("", name)) != name:
        name = shorter
    return name
