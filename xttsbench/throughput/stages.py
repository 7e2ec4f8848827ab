"""A pipeline as the stages of :mod:`xttsbench.throughput.pace`, from its record: what each thread does for a batch.

Where parallel calls keep their order and their times vary, a slow one holds up those behind it. There is no closed form
for calls of any distribution that are handed on in order; the recurrence below is exact for one sequence of times, and
is run on a long one drawn from those that were measured.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.pace import LOCK, POOL, PROCESSORS, Consumer, Machine, Stage, Thread, Work, pace
from xttsbench.throughput.threads import demand, functions_of, pool_size, threads

_CALLS: Final = 4_000  # Calls of the simulated sequence
_FEW: Final = 8  # Fewer times say too little of how they vary


def stages(pipeline: Pipeline, cpus: int) -> Stage:
    """The consumer's stage with all that feed it; costs that were not measured count nothing."""
    thread = threads(pipeline, cpus)
    return Stage() if thread is None else _stage(thread, pipeline, cpus)


def limiting_op(pipeline: Pipeline, allowed_cpus: int) -> PipelineOp | None:
    """The op that sets the pace of a pipeline without a step; ``None`` where no op has a cost.

    The rate of a pipeline whose threads overlap is that of the slowest (the operational analysis of Denning and Buzen,
    1978, as Plumber applies it to tf.data: Kuchnik et al., MLSys 2022). Where it is the pool's threads, the interpreter
    lock or the processors that all ops share, it is the op that needs most of them.
    """
    found = pace(stages(pipeline, allowed_cpus), Consumer(), Machine(allowed_cpus, pool_size(pipeline, allowed_cpus)))
    kind = {POOL: "pool_s", LOCK: "lock_s", PROCESSORS: "cpu_s"}.get(found.limited_by)
    if found.period_s <= 0:
        return None
    if kind is not None:
        return max(pipeline.ops, key=lambda op: float(getattr(demand(op, pipeline, allowed_cpus), kind)))
    return next((op for op in pipeline.ops if op.name == found.limited_by), None)


@lru_cache(maxsize=256)
def in_order(times_s: tuple[float, ...], parallelism: int, seed: int = 0) -> float:
    """How many times as long calls take that are handed on in their order as those that are not, at least 1.

    Call ``i`` begins when call ``i - p`` was handed on, which is when it and all before it are ready: a result that is
    ready keeps its slot until then (as a ``tf.data`` map does). The time without order is the mean over ``p``, the
    calls at once. Times of single calls are in seconds; ``seed`` draws from them.
    """
    if parallelism <= 1 or len(times_s) < _FEW or sum(times_s) <= 0:
        return 1.0
    drawn = np.random.default_rng(seed).choice(np.asarray(times_s, dtype=np.float64), _CALLS)
    handed_on_s = [0.0] * parallelism  # of the last p calls
    last_s = 0.0
    for number, call_s in enumerate(drawn):
        last_s = max(last_s, handed_on_s[number % parallelism] + float(call_s))
        handed_on_s[number % parallelism] = last_s
    return max(1.0, last_s * parallelism / float(drawn.sum()))


def _stage(thread: Thread[PipelineOp], pipeline: Pipeline, cpus: int) -> Stage:
    return Stage(
        spread=tuple(demand(op, pipeline, cpus) for op in thread.spread),
        at_once=tuple(demand(op, pipeline, cpus) for op in thread.at_once),
        calls=_calls(thread, pipeline, cpus),
        parallelism=thread.parallelism,
        ready=thread.ready,
        elements=thread.elements,
        inputs=tuple(_stage(one, pipeline, cpus) for one in thread.inputs),
        in_turn=thread.in_turn,
    )


def _calls(thread: Thread[PipelineOp], pipeline: Pipeline, cpus: int) -> tuple[Work, ...]:
    """The work of parallel calls; longer by what keeping their order costs where their times vary."""
    works = tuple(demand(op, pipeline, cpus) for op in thread.calls)
    if len(works) != 1 or not keeps_order(thread.calls[0], pipeline):
        return works  # with the batch fused to it, a map has a whole batch to be late in
    times_s = call_times_s(thread.calls[0], pipeline)
    longer = in_order(times_s, min(thread.parallelism, pool_size(pipeline, cpus)))
    return (replace(works[0], cost_s=works[0].cost_s * longer),)


def keeps_order(op: PipelineOp, pipeline: Pipeline) -> bool:
    """Whether a parallel map hands its results on in their order."""
    said = (op.deterministic or "default").lower()
    ordered = said == "true" or (said == "default" and pipeline.deterministic is not False)
    return ordered and op.op.startswith(("ParallelMap", "MapDataset"))


def call_times_s(op: PipelineOp, pipeline: Pipeline) -> tuple[float, ...]:
    """Times of single calls of an op, where it is one Python function that takes nearly all of its time."""
    own = functions_of(op, pipeline)
    return own[0].call_times_s if len(own) == 1 else ()
