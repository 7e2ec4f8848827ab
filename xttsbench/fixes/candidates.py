"""Fixes as edits of the pipeline's record, so that the model can say what each would give before it is tried.

Pure. What is edited is the description, not the dataset. A fix that would change nothing is not a candidate; one that
the model cannot judge, or that may change the data, says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from xttsbench.fixes.cache.places import caches
from xttsbench.fixes.candidate import Candidate, each
from xttsbench.fixes.filter_first.record import filter_first, passed_maps
from xttsbench.fixes.parallel_candidates import (
    forgotten,
    more_calls,
    parallel_batch,
    parallel_interleave,
    parallel_map,
    processes,
    sequential_maps,
    stays_at_one_call,
    thread_pool,
    thread_pool_size,
)
from xttsbench.fixes.prefetch import last_prefetch
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import AUTOTUNE, consumers, demand, elements_per_batch, inputs_of, threads

__all__ = ["Candidate", "candidates", "retuned", "sequential_maps", "settled", "stays_at_one_call", "thread_pool_size"]

_TINY_S: Final = 100e-6
"""An element that takes less is mostly the cost of calling a function for it."""
_TINY_PYTHON_S: Final = 300e-6
"""The same for a Python function, which costs more to call."""
_MANY: Final = 8
_SHARE: Final = 0.1
"""Share of the pipeline's cost from which calls for single elements, or taking batches apart, are worth another way."""


def candidates(
    pipeline: Pipeline,
    cpus: int,
    environment: Mapping[str, Any],
    *,
    goal_s: float | None = None,
    buffer: int | None = None,
) -> tuple[Candidate, ...]:
    """The fixes that would change this pipeline, in the order in which they are applied.

    Args:
        pipeline: with costs.
        cpus: processors of the process.
        environment: with the memory, and the disk's room where a cache on it is considered.
        goal_s: seconds of a step, with which the input has to keep up.
        buffer: batches that are worth keeping ready, where the input comes in bursts that hold the step up.
    """
    found = (
        *_filter_first(pipeline),
        *_rebatch(pipeline),
        *parallel_map(pipeline, cpus, goal_s),
        *parallel_interleave(pipeline, cpus),
        *parallel_batch(pipeline, cpus),
        *more_calls(pipeline, cpus, goal_s),
        *processes(pipeline, cpus),
        *caches(pipeline, environment),
        *_batch_first(pipeline),
        *_any_order(pipeline),
        *_drop_prefetch(pipeline),
        *_buffer(pipeline, buffer),
        *_prefetch(pipeline, cpus),
        *thread_pool(pipeline, cpus, goal_s),
    )
    return tuple(found)


def retuned(pipeline: Pipeline, but: str) -> Pipeline:
    """What AUTOTUNE chose forgotten, except of one op: with another limit it chooses anew."""
    return each(pipeline, lambda op: forgotten(op) if op.name != but else {})


def settled(pipeline: Pipeline, cpus: int) -> Pipeline:
    """Costs as if no call had waited for the lock of another: what they are does not change with the fix then."""

    def own(op: PipelineOp) -> dict[str, Any]:
        return {} if op.cost_s is None else {"cost_s": demand(op, pipeline, cpus).cost_s, "cost_from": "prefix"}

    return each(pipeline, own)


def _prefetch(pipeline: Pipeline, cpus: int) -> Iterator[Candidate]:
    consumer = threads(pipeline, cpus)
    if consumer is None or not (consumer.ops or consumer.at_once):
        return

    yield Candidate("prefetch", lambda given: _with_prefetch(given, AUTOTUNE), ops=(pipeline.ops[-1].name,))


def _buffer(pipeline: Pipeline, size: int | None) -> Iterator[Candidate]:
    """A larger last prefetch, or one that is appended, where what is kept ready does not last over a burst."""
    if size is None:
        return
    last = last_prefetch(pipeline)
    if last is not None:
        held = (last.element_bytes or 0.0) * size
        name = last.name
        yield Candidate(
            f"buffer:{size}",
            lambda given: each(given, lambda op: {"buffer_size": size} if op.name == name else {}),
            ops=(name,),
            held_bytes=held,
        )
        return
    held = (pipeline.ops[-1].element_bytes or 0.0) * size
    yield Candidate(
        f"prefetch:{size}",
        lambda given: _with_prefetch(given, size),
        ops=(pipeline.ops[-1].name,),
        held_bytes=held,
    )


def _with_prefetch(given: Pipeline, size: int) -> Pipeline:
    last = given.ops[-1].name
    linked = each(given, lambda op: {"inputs": inputs_of(op, given)})
    ahead = PipelineOp(name="prefetch", op="PrefetchDataset", inputs=(last,), buffer_size=size)
    return linked.model_copy(update={"ops": (*linked.ops, ahead)})


def _filter_first(pipeline: Pipeline) -> Iterator[Candidate]:
    if filter_first(pipeline) is None:
        return
    filters = [op for op in pipeline.ops if op.op.startswith(("FilterDataset", "ParallelFilterDataset"))]
    moved = next((op for op in filters if passed_maps(op, pipeline)), None)
    names = (moved.name,) if moved is not None else ()
    yield Candidate("filter-first", lambda given: filter_first(given) or given, ops=names)


def _rebatch(pipeline: Pipeline) -> Iterator[Candidate]:
    """Batches taken apart only to be put together again."""
    by_name = {op.name: op for op in pipeline.ops}
    whole = sum(op.cost_s or 0.0 for op in pipeline.ops)
    for op in pipeline.ops:
        before = [by_name[name] for name in inputs_of(op, pipeline) if name in by_name]
        if not op.op.startswith(("BatchDataset", "ParallelBatchDataset")) or len(before) != 1:
            continue
        apart = before[0]
        spent = (op.cost_s or 0.0) + (apart.cost_s or 0.0)
        if apart.op.startswith("Unbatch") and spent >= _SHARE * whole:
            why = "what cutting whole batches to another size costs was not measured"
            yield Candidate("rebatch", None, why, ops=(apart.name, op.name))
            return


def _batch_first(pipeline: Pipeline) -> Iterator[Candidate]:
    taken, readers = elements_per_batch(pipeline), consumers(pipeline)
    kinds = {one.token: one.kind for one in pipeline.python_functions}

    def is_tiny(op: PipelineOp) -> bool:
        python = [kinds.get(token) for token in op.python_functions]
        limit_s = _TINY_PYTHON_S if python else _TINY_S
        small = op.cost_s is not None and op.cost_s / max(taken[op.name], 1.0) < limit_s
        whole_batches = not op.random and all(kind == "numpy_function" for kind in python)
        return small and whole_batches and taken[op.name] >= _MANY and op.op.startswith(("Map", "ParallelMap"))

    tiny = [op for op in pipeline.ops if is_tiny(op)]
    spent = sum(op.cost_s or 0.0 for op in tiny)
    ends = [op for op in tiny if any("Batch" in reader.op for reader in readers[op.name])]
    if ends and spent >= _SHARE * sum(op.cost_s or 0.0 for op in pipeline.ops):
        why = "how much of the time for an element is the call itself was not measured"
        yield Candidate("batch-first", None, why, ops=tuple(op.name for op in tiny))


def _drop_prefetch(pipeline: Pipeline) -> Iterator[Candidate]:
    names = [op.name for op in pipeline.ops if op.op.startswith("PrefetchDataset")][:-1]
    if names:
        yield Candidate(
            "drop-prefetch",
            lambda given: each(given, lambda op: {"buffer_size": 0} if op.name in names else {}),
            ops=tuple(names),
        )


def _any_order(pipeline: Pipeline) -> Iterator[Candidate]:
    ordered = [
        op for op in pipeline.ops if op.op.startswith("Parallel") and (op.deterministic or "default").lower() != "false"
    ]
    if not ordered or pipeline.deterministic is False:
        return
    timed = {one.token for one in pipeline.python_functions if one.call_times_s}
    own = tuple(op.name for op in ordered)
    if any(timed & set(op.python_functions) for op in ordered):
        names = {op.name for op in ordered}
        yield Candidate(
            "any-order",
            lambda given: each(given, lambda op: {"deterministic": "false"} if op.name in names else {}),
            "the elements come in another order, which differs from run to run",
            ops=own,
        )
        return
    yield Candidate(
        "any-order", None, "what keeping the order costs depends on how calls vary, which is not known", ops=own
    )
