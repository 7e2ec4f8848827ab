"""Which op limits a pipeline, from its costs: pure, no TensorFlow, for the parent process to use as well."""

from __future__ import annotations

from xttsbench.records.pipeline import Pipeline, PipelineOp

AUTOTUNE = -1


def effective_parallelism(op: PipelineOp, pipeline: Pipeline, allowed_cpus: int) -> int:
    """How many calls of an op run at once, at most: 1 for a sequential op.

    Bounded by the thread pool, which has one thread per allowed processor unless the options say otherwise; a parallel
    ``interleave`` brings its own threads. A plain ``map`` without state counts as parallel under autotune, since
    TensorFlow makes it so. A function that holds the interpreter lock needs no case of its own: its cost was summed
    over the calls that waited for the lock, and dividing by their number gives back the time under the lock.
    """
    pool = pipeline.threadpool_size or allowed_cpus
    parallelism = op.chosen_parallelism or op.parallelism
    if parallelism is None:
        return max(1, pool) if op.op == "MapDataset" and pipeline.autotune and not op.stateful else 1
    if parallelism == AUTOTUNE:
        parallelism = pool
    return max(1, parallelism if "Interleave" in op.op else min(parallelism, pool))


def limiting_op(pipeline: Pipeline, allowed_cpus: int) -> PipelineOp | None:
    """The op with the largest cost per batch over its effective parallelism; ``None`` where no op has a cost.

    The rate of a pipeline whose ops overlap is that of its slowest op (the operational analysis of Denning and Buzen,
    1978, as Plumber applies it to tf.data: Kuchnik et al., MLSys 2022).
    """
    priced = [(op.cost_s / effective_parallelism(op, pipeline, allowed_cpus), op) for op in pipeline.ops if op.cost_s]
    return max(priced, key=lambda pair: pair[0])[1] if priced else None
