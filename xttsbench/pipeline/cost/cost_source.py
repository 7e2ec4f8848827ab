"""Which reading of an op's cost to believe: TensorFlow's model, a run of the op by itself, or its Python calls: pure.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.pipeline.cost.model import OpCost
from xttsbench.records.pipeline import CostSource, Pipeline, PipelineOp, PythonFunction


@dataclass(frozen=True, slots=True)
class StageCost:
    """One op over held elements. Figures are ``None`` where the op was not run; ``why_not`` then says why."""

    cardinality: int
    wall_s: float | None = None
    """Seconds for one element that it yields, uncontended."""
    cpu_s: float | None = None
    elements: int = 0
    """Elements of it that the figures come from."""
    consumed: Mapping[str, float] | None = None
    """Elements of each input for one of its own, where its input was run to the end."""
    element_bytes: float | None = None
    why_not: str | None = None
    start_up_s: float = 0.0
    """What its first call took beyond the others, which is no part of ``wall_s``."""
    handed_on_s: float | None = None
    """Of an op that only hands elements on: seconds for one, where nothing runs beside it."""

    @property
    def priced(self) -> bool:
        """Whether the op was run and yielded elements."""
        return self.wall_s is not None


AGREE: Final = 0.25
"""Relative difference up to which two costs agree."""
_ABOUT: Final = 0.5
"""Calls for an element of a map that differ by less from one are one."""
_HAND_ON: Final = r"(Prefetch|Cache|Repeat|Take|Skip|Snapshot|Save|AssertCardinality|CopyToDevice|MapOnGpu)Dataset"
_ONE_FOR_ONE: Final = re.compile(rf"((Parallel)?Map|Zip|Shuffle)Dataset|{_HAND_ON}")
_LEFT_OUT: Final = re.compile(rf"Shuffle|{_HAND_ON}")
_BATCHING: Final = ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset", "MapAndBatchDataset")
_MANY: Final = 1024
"""From this many elements on, the counts of the model are believed before those of the op's own run."""


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
        if op.name not in taken:
            continue
        for upstream in op.inputs:
            ratio = _ratio(op, upstream, costs, stages)
            if ratio is not None:
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
    alone = {
        op.name: stage.wall_s * taken[op.name]
        for op in ops
        if (stage := stages.get(op.name)) is not None and stage.wall_s is not None and op.name in taken
    }
    modelled = {name: cost.cost_s for name, cost in costs.items() if cost.cost_s is not None}
    trust_model = sequential_s is not None and _off(modelled, sequential_s) < _off(alone, sequential_s) - AGREE
    result = {}
    for op in ops:
        stage = stages.get(op.name)
        per_batch = taken.get(op.name)
        own_s, model_s = alone.get(op.name), modelled.get(op.name)
        agree = own_s is not None and model_s is not None and abs(own_s - model_s) <= AGREE * max(own_s, model_s)
        keep = model_s is not None and (own_s is None or (not _parallel(op) and (agree or trust_model)))
        cpu_s = stage.cpu_s * per_batch if stage and stage.cpu_s is not None and per_batch is not None else None
        # Where all processors are busy the model books on what hands elements on that it waited for one.
        handed_on_s = stage.handed_on_s * per_batch if stage and stage.handed_on_s and per_batch is not None else None
        if keep and handed_on_s is not None and model_s is not None and handed_on_s < model_s:
            keep, own_s = False, handed_on_s
        result[op.name] = Chosen(
            cost_s=model_s if keep else own_s,
            cpu_s=cpu_s,
            elements_per_batch=per_batch,
            cost_from=("model" if keep else "prefix") if keep or own_s is not None else None,
        )
    return result


def explained(ops: Sequence[PipelineOp], chosen: Mapping[str, Chosen], sequential_s: float) -> float:
    """Share of a sequential batch that the costs of the ops that were in it add up to."""
    counted = [cost_s for op in ops if not _LEFT_OUT.match(op.op) and (cost_s := chosen[op.name].cost_s) is not None]
    return sum(counted) / sequential_s if sequential_s else math.nan


def _off(costs: Mapping[str, float], sequential_s: float) -> float:
    """How far a sum is from what it should be, as the absolute logarithm of their ratio."""
    total = sum(costs.values())
    return abs(math.log(total / sequential_s)) if total > 0 and sequential_s > 0 else math.inf


def _ratio(op: PipelineOp, upstream: str, costs: Mapping[str, OpCost], stages: Mapping[str, StageCost]) -> float | None:
    """Elements of an input for one of the op's own."""
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


def _parallel(op: PipelineOp) -> bool:
    return op.parallelism is not None or op.op.startswith("Parallel")


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
    if calls is None or len(ops) != 1 or not _maps(ops[0]):
        return function
    elements = ops[0].elements_per_batch
    if not elements or abs(calls / elements - 1) > _ABOUT:
        return function
    return function.model_copy(update={"calls_per_batch": elements})


def _maps(op: PipelineOp) -> bool:
    return op.op.startswith(("MapDataset", "ParallelMapDataset"))


def _with_calls(op: PipelineOp, functions: list[PythonFunction]) -> PipelineOp:
    cpu_s = _per_batch(op, [function.call_cpu_s for function in functions], functions)
    if cpu_s is None:
        return op
    wall_s = _per_batch(op, [function.call_time_s for function in functions], functions)
    return op.model_copy(
        update={
            "cpu_s": cpu_s if op.cpu_s is None else max(op.cpu_s, cpu_s),
            "cost_s": wall_s if op.cost_s is None else op.cost_s,
        }
    )


def _per_batch(op: PipelineOp, calls_s: list[float | None], functions: list[PythonFunction]) -> float | None:
    """Seconds per batch; one call per element where the op's elements are known, since calls run ahead in buffers."""
    total_s = 0.0
    for call_s, function in zip(calls_s, functions, strict=True):
        one_each = op.elements_per_batch is not None and _maps(op)
        calls = op.elements_per_batch if one_each else function.calls_per_batch
        if call_s is None or calls is None:
            return None
        total_s += call_s * calls
    return total_s if functions else None
