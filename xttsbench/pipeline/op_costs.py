"""Cost of each op from several readings, and the choice of the reading to believe: pure.

TensorFlow's performance model keeps one node per live iterator. An op under ``repeat`` gets a new one each epoch, the
inner datasets of ``interleave`` come and go, and the counters of what is gone are gone too. So its costs are taken per
element, over every incarnation that was seen, and scaled by how many elements a batch of the whole takes at that op.

The model saw the whole pipeline run, more elements and rarer ones, but under contention: the calls of a parallel op
wait for processors, locks and one another, and a wait may be booked on the op that waited. An op run by itself is
uncontended, on fewer elements. So a sequential op whose two costs agree keeps the model's; a parallel op, or one whose
costs disagree, has that of its own run, unless the sum of those explains a sequential run of the whole less well.

Calls of Python functions are timed on their own thread, in a run of the whole. Where an op has no cost of its own (its
graph cannot be read, or it was not reached), the calls are all that is known of it, and the least that it can have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from xttsbench.records.pipeline import CostSource, Pipeline, PipelineOp, PythonFunction

_INNER_DATASETS: Final = re.compile(r"^(FlatMap|(Legacy)?(Parallel)?Interleave|GroupByWindow)")
"""Ops that run datasets made by their function; the model puts those after the op's own inputs."""
_ADORNED: Final = re.compile(r"^(Finite|Forever|Empty|Memory|File|From)|Dataset|(V\d+)$")


@dataclass(frozen=True, slots=True)
class ModelNode:
    """One iterator in TensorFlow's model."""

    id: int
    name: str
    elements: int
    time_ns: int  # its own processing time, waits and sleeps included, time in its inputs excluded
    ratio: float | None = None  # elements that it takes from its input for one of its own, where TensorFlow knows
    inputs: tuple[int, ...] = ()
    parameters: Mapping[str, float] = field(default_factory=dict)  # tuned values in force (``state_value``), by name


@dataclass(frozen=True, slots=True)
class OpCost:
    """Cost and elements of one op, as the model has them."""

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
            # Where an op has one input and no inner datasets, every child is an epoch of that input.
            every = len(op.inputs) == 1 and not _INNER_DATASETS.match(op.op)
            place = slice(None) if every else slice(number, number + 1)
            waiting.append(([child for i in found for child in nodes[i].inputs[place]], upstream))
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
        own = [nodes[i] for i in matched.get(op.name, ())]
        elements = sum(node.elements for node in own)
        per_batch = taken.get(op.name)
        ratio = next((node.ratio for node in own if node.ratio), None)
        upstream = {name: sum(nodes[i].elements for i in matched.get(name, ())) for name in op.inputs}
        counted = op.op.startswith("Concatenate") or (ratio is None and bool(own))
        for name in op.inputs:
            if per_batch is not None and not counted:
                taken[name] = per_batch * (ratio or 1.0)
            elif per_batch is not None and elements:
                taken[name] = per_batch * upstream[name] / elements
        if own:
            result[op.name] = OpCost(_times(_per_element_s(own, op, nodes), per_batch), elements, per_batch)
    return result


def _skip_to(ids: list[int], op: PipelineOp, nodes: Mapping[int, ModelNode], rewritten: bool) -> tuple[int, list[int]]:
    """Step over nodes with one input each until their name is the op's; empty where none is."""
    skipped = 0
    while ids:
        if here := [i for i in ids if _same(nodes[i].name, op.op, rewritten)]:
            return skipped, here
        skipped += len(ids)
        ids = [child for i in ids if len(nodes[i].inputs) == 1 for child in nodes[i].inputs]
    return 0, []


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


@dataclass(frozen=True, slots=True)
class StageCost:
    """One op over held elements. Figures are ``None`` where the op was not run; ``why_not`` then says why."""

    cardinality: int
    wall_s: float | None = None  # seconds for one element that it yields, uncontended
    cpu_s: float | None = None
    elements: int = 0  # elements of it that the figures come from
    consumed: Mapping[str, float] | None = None
    """Elements of each input for one of its own, where its input was run to the end."""
    element_bytes: float | None = None
    why_not: str | None = None
    start_up_s: float = 0.0  # what its first call took beyond the others, which is no part of ``wall_s``
    handed_on_s: float | None = None
    """Seconds for one element of an op that only hands elements on, where nothing runs beside it; else ``None``."""

    @property
    def priced(self) -> bool:
        """Whether the op was run and yielded elements."""
        return self.wall_s is not None


AGREE: Final = 0.25
"""Relative difference up to which two costs agree."""
_ABOUT_AT_ONCE: Final = 0.9  # the same of calls at once, of which as many as run ahead are counted too
_ABOUT: Final = 0.5  # calls for an element of a map that differ by less from one are one
_HAND_ON: Final = r"(Prefetch|Cache|Repeat|Take|Skip|Snapshot|Save|AssertCardinality|CopyToDevice|MapOnGpu)Dataset"
_ONE_FOR_ONE: Final = re.compile(rf"((Parallel)?Map|Zip|Shuffle)Dataset|{_HAND_ON}")
_BATCHING: Final = ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset", "MapAndBatchDataset")
_MANY: Final = 1024  # from this many elements on, the counts of the model are believed before those of the op's own run


@dataclass(frozen=True, slots=True)
class Chosen:
    """Seconds per batch of the whole pipeline, and where they are from."""

    cost_s: float | None = None
    cpu_s: float | None = None
    elements_per_batch: float | None = None
    cost_from: CostSource | None = None


def elements_per_batch(
    ops: Sequence[PipelineOp], costs: Mapping[str, OpCost], stages: Mapping[str, StageCost]
) -> dict[str, float]:
    """Elements that a batch takes of each op; an op is missing where no ratio on its way to the end is known."""
    taken: dict[str, float] = {ops[-1].name: 1.0} if ops else {}
    for op in reversed(ops):
        for upstream in op.inputs if op.name in taken else ():
            if (ratio := _ratio(op, upstream, costs, stages)) is not None:
                taken[upstream] = taken.get(upstream, 0.0) + taken[op.name] * ratio
    return taken


def choose(
    ops: Sequence[PipelineOp],
    costs: Mapping[str, OpCost],
    stages: Mapping[str, StageCost],
    sequential_s: float | None = None,
) -> dict[str, Chosen]:
    """The cost of each op. ``sequential_s`` is what one batch of the whole takes where nothing runs at once."""
    taken = elements_per_batch(ops, costs, stages)
    alone_s = {name: _times(stage.wall_s, taken.get(name)) for name, stage in stages.items()}
    alone = {op.name: cost_s for op in ops if (cost_s := alone_s.get(op.name)) is not None}
    modelled = {name: cost.cost_s for name, cost in costs.items() if cost.cost_s is not None}
    trust_model = sequential_s is not None and _off(modelled, sequential_s) < _off(alone, sequential_s) - AGREE
    result = {}
    for op in ops:
        stage, per_batch = stages.get(op.name) or StageCost(0), taken.get(op.name)
        own_s, model_s = alone.get(op.name), modelled.get(op.name)
        agree = own_s is not None and model_s is not None and abs(own_s - model_s) <= AGREE * max(own_s, model_s)
        parallel = op.parallelism is not None or op.op.startswith("Parallel")
        keep = model_s is not None and (own_s is None or (not parallel and (agree or trust_model)))
        # Where all processors are busy the model books on what hands elements on that it waited for one.
        handed_on_s = _times(stage.handed_on_s or None, per_batch)
        if keep and handed_on_s is not None and model_s is not None and handed_on_s < model_s:
            keep, own_s = False, handed_on_s
        cpu_s = _times(stage.cpu_s, per_batch)
        if keep and not parallel and cpu_s is not None and model_s is not None:
            cpu_s = min(cpu_s, model_s)  # of its own run, whose time is not believed
        result[op.name] = Chosen(
            cost_s=model_s if keep else own_s,
            cpu_s=cpu_s,
            elements_per_batch=per_batch,
            cost_from="model" if keep else None if own_s is None else "prefix",
        )
    return result


def _times(value: float | None, count: float | None) -> float | None:
    return None if value is None or count is None else value * count


def _off(costs: Mapping[str, float], sequential_s: float) -> float:
    """Distance of a sum of costs from the sequential time: the absolute logarithm of their ratio."""
    total = sum(costs.values())
    return abs(math.log(total / sequential_s)) if total > 0 and sequential_s > 0 else math.inf


def _ratio(op: PipelineOp, upstream: str, costs: Mapping[str, OpCost], stages: Mapping[str, StageCost]) -> float | None:
    if _ONE_FOR_ONE.match(op.op):
        return 1.0
    if op.op.startswith(_BATCHING) and op.batch_size:
        return float(op.batch_size)
    stage, own, given = stages.get(op.name), costs.get(op.name), costs.get(upstream)
    counted = None
    if own and given and own.elements_per_batch and given.elements_per_batch is not None:
        counted = given.elements_per_batch / own.elements_per_batch
        if given.elements >= _MANY:
            return counted
    if stage is not None and stage.consumed is not None and upstream in stage.consumed:
        return stage.consumed[upstream]
    return counted


def with_python_costs(pipeline: Pipeline) -> Pipeline:
    """Fill the processor time and the cost of ops from their Python functions' calls, where they lack them."""
    counted = tuple(_counted(function, pipeline) for function in pipeline.python_functions)
    functions = {function.token: function for function in counted}
    ops = tuple(_with_calls(op, [functions[t] for t in op.python_functions if t in functions]) for op in pipeline.ops)
    return pipeline.model_copy(update={"ops": ops, "python_functions": counted})


def _counted(function: PythonFunction, pipeline: Pipeline) -> PythonFunction:
    """The function with one call for each element of its map, where about so many were counted.

    Calls run ahead in buffers, which are full when the count begins and empty when it ends: of ten batches with two in
    a buffer 25 % are missing.
    """
    calls, ops = function.calls_per_batch, [op for op in pipeline.ops if function.token in op.python_functions]
    if calls is None or len(ops) != 1 or not (_maps(ops[0]) or not calls):
        return function
    elements = ops[0].elements_per_batch
    if not calls:  # a full buffer had all that was taken
        return function.model_copy(update={"calls_per_batch": elements})
    about = _ABOUT_AT_ONCE if ops[0].op.startswith("Parallel") else _ABOUT
    if not elements or abs(calls / elements - 1) > about:
        return function
    return function.model_copy(update={"calls_per_batch": elements})


def _maps(op: PipelineOp) -> bool:
    return op.op.startswith(("MapDataset", "ParallelMapDataset"))


def _with_calls(op: PipelineOp, functions: list[PythonFunction]) -> PipelineOp:
    # One call per element where the op's elements are known, since calls run ahead in buffers.
    each = op.elements_per_batch if _maps(op) else None
    calls = [function.calls_per_batch if each is None else each for function in functions]
    cpu_s = _sum(map(_times, [function.call_cpu_s for function in functions], calls))
    wall_s = _sum(map(_times, [function.call_time_s for function in functions], calls))
    if cpu_s is None:
        return op
    known = {"cpu_s": max(cpu_s, op.cpu_s or 0.0), "cost_s": wall_s if op.cost_s is None else op.cost_s}
    return op.model_copy(update=known)


def _sum(values: Iterable[float | None]) -> float | None:
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if known and len(known) == len(every) else None
