"""Which of two readings of an op's cost to believe, TensorFlow's model or a run of the op by itself: pure.

The model saw the whole pipeline run, more elements and rarer ones, but under contention: the calls of a parallel op
wait for processors, locks and one another, and a wait may be booked on the op that waited. An op run by itself is
uncontended, on fewer elements. So a sequential op whose two costs agree keeps the model's; a parallel op, or one whose
costs disagree, has that of its own run, unless the sum of those explains a sequential run of the whole less well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from xttsbench.pipeline.cost.model import OpCost
from xttsbench.pipeline.cost.stage_cost import StageCost
from xttsbench.records.pipeline import CostSource, PipelineOp

AGREE: Final = 0.25
"""Relative difference up to which two costs agree."""
_ONE_FOR_ONE: Final = (
    "MapDataset",
    "ParallelMapDataset",
    "ZipDataset",
    "ShuffleDataset",
    "PrefetchDataset",
    "CacheDataset",
    "RepeatDataset",
    "TakeDataset",
    "SkipDataset",
    "SnapshotDataset",
    "SaveDataset",
    "AssertCardinalityDataset",
    "CopyToDeviceDataset",
    "MapOnGpuDataset",
)
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
    modelled = {op.name: cost_s for op in ops if (cost_s := _modelled(costs.get(op.name))) is not None}
    trust_model = sequential_s is not None and _off(modelled, sequential_s) < _off(alone, sequential_s) - AGREE
    result = {}
    for op in ops:
        stage = stages.get(op.name)
        per_batch = taken.get(op.name)
        own_s, model_s = alone.get(op.name), modelled.get(op.name)
        agree = own_s is not None and model_s is not None and abs(own_s - model_s) <= AGREE * max(own_s, model_s)
        keep = model_s is not None and (own_s is None or (not _parallel(op) and (agree or trust_model)))
        cpu_s = stage.cpu_s * per_batch if stage and stage.cpu_s is not None and per_batch is not None else None
        result[op.name] = Chosen(
            cost_s=model_s if keep else own_s,
            cpu_s=cpu_s,
            elements_per_batch=per_batch,
            cost_from=("model" if keep else "prefix") if keep or own_s is not None else None,
        )
    return result


def explained(ops: Sequence[PipelineOp], chosen: Mapping[str, Chosen], sequential_s: float) -> float:
    """Share of a sequential batch that the costs of the ops that were in it add up to."""
    counted = [cost_s for op in ops if not _left_out(op) and (cost_s := chosen[op.name].cost_s) is not None]
    return sum(counted) / sequential_s if sequential_s else math.nan


def _modelled(cost: OpCost | None) -> float | None:
    """The model's cost, ``None`` where it has none for the op."""
    return cost.cost_s if cost is not None else None


def _off(costs: Mapping[str, float], sequential_s: float) -> float:
    """How far a sum is from what it should be, as the absolute logarithm of their ratio."""
    total = sum(costs.values())
    return abs(math.log(total / sequential_s)) if total > 0 and sequential_s > 0 else math.inf


def _ratio(op: PipelineOp, upstream: str, costs: Mapping[str, OpCost], stages: Mapping[str, StageCost]) -> float | None:
    """Elements of an input for one of the op's own."""
    if op.op.startswith(_ONE_FOR_ONE):
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


def _left_out(op: PipelineOp) -> bool:
    return op.op.startswith(("Shuffle", *_ONE_FOR_ONE[4:]))
