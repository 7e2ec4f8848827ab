"""Which op limits a pipeline, from its costs: pure, no TensorFlow, for the parent process to use as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import AUTOTUNE, demand, pool_size, threads, written_parallelism

__all__ = ["AUTOTUNE", "effective_parallelism", "limiting_op"]

_CLEARLY: Final = 1.01
"""A shared resource is blamed only where it is slower than every thread by more than this, as in the model."""


def effective_parallelism(op: PipelineOp, pipeline: Pipeline, allowed_cpus: int) -> int:
    """How many calls of an op run at once, at most: 1 for a sequential op.

    Bounded by the thread pool, which has one thread per allowed processor unless the options say otherwise; a parallel
    ``interleave`` brings its own threads. A plain ``map`` without state counts as parallel under autotune, since
    TensorFlow makes it so.
    """
    parallelism = written_parallelism(op, pipeline, allowed_cpus)
    return parallelism if "Interleave" in op.op else min(parallelism, pool_size(pipeline, allowed_cpus))


def limiting_op(pipeline: Pipeline, allowed_cpus: int) -> PipelineOp | None:
    """The most costly op of the slowest thread, or of the shared resource that is slower than every thread.

    The rate of a pipeline whose threads overlap is that of the slowest (the operational analysis of Denning and Buzen,
    1978, as Plumber applies it to tf.data: Kuchnik et al., MLSys 2022). Ops of one thread take turns, so their costs
    add up; the pool's threads, the interpreter lock and the processors are shared by all of them. ``None`` where no op
    has a cost. :func:`xttsbench.throughput.pace.pace` says the same with the step beside it.
    """
    consumer = threads(pipeline, allowed_cpus)
    if consumer is None:
        return None
    needs = {op.name: demand(op, pipeline, allowed_cpus) for op in pipeline.ops}

    def cost(ops: Sequence[PipelineOp]) -> float:
        return sum(needs[op.name].cost_s for op in ops)

    def largest(ops: Sequence[PipelineOp], kind: str) -> PipelineOp:
        return max(ops, key=lambda op: float(getattr(needs[op.name], kind)))

    candidates: list[tuple[float, PipelineOp]] = []
    for thread in consumer.walk():
        own, calls = (*thread.ops, *thread.at_once), thread.calls
        if own:
            candidates.append((cost(own), largest(own, "cost_s")))
        if calls:
            candidates.append(((cost(own) + cost(calls)) / thread.parallelism, largest((*own, *calls), "cost_s")))
    for kind, capacity in (("pool_s", pool_size(pipeline, allowed_cpus)), ("lock_s", 1), ("cpu_s", allowed_cpus)):
        shared = sum(float(getattr(need, kind)) for need in needs.values()) / capacity
        candidates.append((shared / _CLEARLY, largest(pipeline.ops, kind)))
    time_s, op = max(candidates, key=lambda pair: pair[0])
    return op if time_s > 0 else None
