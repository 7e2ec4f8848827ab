"""Fixes as edits of the pipeline's record, so that the model can say what each would give before it is tried.

Pure. What is edited is the description, not the dataset; which of them there is a rewrite for is another matter
(:mod:`xttsbench.pipeline.rewrite`). A fix that would change nothing is not a candidate; one that the model cannot
judge, or that may change the data, says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from xttsbench.pipeline.threads import (
    AUTOTUNE,
    consumers,
    demand,
    elements_per_batch,
    inputs_of,
    parallelised,
    threads,
)
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.rules.early_filter import filter_first

Edit = Callable[[Pipeline], Pipeline]
BLOCKING_POOL: Final = 32
"""Threads for functions that wait, where no larger parallelism was asked for."""
_WAITS: Final = 0.3
"""An op waits where it has no processor for this share of its time."""
_CACHE_SHARE: Final = 0.5
"""Share of the memory that a cache may take."""
_WORTH: Final = 0.02
"""Share of the pipeline's cost that a cache has to spare."""
_TINY_S: Final = 100e-6
"""An element that takes less is mostly the cost of calling a function for it."""
_MANY: Final = 8
_CALLS: Final = 2
"""Calls at once of an interleave whose cycle is not known."""
_FILES: Final = 16
"""Files that are worth reading at once."""
_READERS: Final = re.compile(r"^(TFRecord|TextLine|FixedLengthRecord)Dataset")


@dataclass(frozen=True)
class Candidate:
    """A fix by its name, what it does to the record, and why it is not to be relied on where that is so.

    ``edit`` is ``None`` where the model cannot judge it.
    """

    name: str
    edit: Edit | None
    why_not: str | None = None


def candidates(pipeline: Pipeline, cpus: int, environment: Mapping[str, Any]) -> tuple[Candidate, ...]:
    """The fixes that would change this pipeline, in the order in which they are tried."""
    found = (
        *_parallel_map(pipeline),
        *_parallel_interleave(pipeline),
        *_thread_pool(pipeline, cpus),
        *_processes(pipeline, cpus),
        *_prefetch(pipeline, cpus),
        *_cache(pipeline, environment),
        *_filter_first(pipeline),
        *_batch_first(pipeline),
        *_drop_prefetch(pipeline),
        *_any_order(pipeline),
    )
    return tuple(found)


def retuned(pipeline: Pipeline, but: str) -> Pipeline:
    """What AUTOTUNE chose forgotten, except of one op: with another limit it chooses anew."""
    return _each(
        pipeline,
        lambda op: {"chosen_parallelism": None} if op.parallelism == AUTOTUNE and op.name != but else {},
    )


def settled(pipeline: Pipeline, cpus: int) -> Pipeline:
    """Costs as if no call had waited for the lock of another: what they are does not change with the fix then."""

    def own(op: PipelineOp) -> dict[str, Any]:
        return {} if op.cost_s is None else {"cost_s": demand(op, pipeline, cpus).cost_s, "cost_from": "prefix"}

    return _each(pipeline, own)


def sequential_maps(pipeline: Pipeline) -> list[PipelineOp]:
    """Maps that TensorFlow does not make parallel by itself."""
    return [op for op in pipeline.ops if op.op == "MapDataset" and not parallelised(op, pipeline)]


def thread_pool_size(pipeline: Pipeline, cpus: int) -> int | None:
    """Threads worth having: as many as functions that wait are called at once; ``None`` where the pool has them."""
    waiting = [op for op in pipeline.ops if _waits(op, pipeline, cpus)]
    size = max([BLOCKING_POOL, *(op.parallelism or 0 for op in waiting)])
    return size if waiting and size > (pipeline.threadpool_size or 0) else None


def _parallel_map(pipeline: Pipeline) -> Iterator[Candidate]:
    names = {op.name for op in sequential_maps(pipeline)}
    if names:
        made = {"op": "ParallelMapDatasetV2", "parallelism": AUTOTUNE, "chosen_parallelism": None}
        yield Candidate("parallel-map", lambda given: _each(given, lambda op: made if op.name in names else {}))


def _parallel_interleave(pipeline: Pipeline) -> Iterator[Candidate]:
    names = {op.name for op in pipeline.ops if op.op == "InterleaveDataset" and op.cycle_length != 1}
    stuck = {op.name: op.cycle_length or 0 for op in pipeline.ops if stays_at_one_call(op)}
    sources = {op.name: inner for op in pipeline.ops if (inner := _files(op, pipeline))}

    def made(op: PipelineOp) -> dict[str, Any]:
        if op.name in sources:
            at_once = min(sources[op.name], _FILES)
            return {"op": "ParallelInterleaveDatasetV4", "parallelism": at_once, "cycle_length": at_once}
        if op.name in stuck:
            return {"parallelism": max(stuck[op.name], _CALLS), "chosen_parallelism": None}
        if op.name not in names:
            return {}
        return {"op": "ParallelInterleaveDatasetV4", "parallelism": AUTOTUNE, "chosen_parallelism": None}

    if names or sources or stuck:
        yield Candidate("parallel-interleave", lambda given: _each(given, made))


def stays_at_one_call(op: PipelineOp) -> bool:
    """Whether AUTOTUNE runs an interleave one call at a time, as it does where nothing says how many inputs to take."""
    return "ParallelInterleave" in op.op and op.parallelism == AUTOTUNE and op.chosen_parallelism == 1


def _files(op: PipelineOp, pipeline: Pipeline) -> int:
    """How many sources a flat map reads one after the other, where each is a file and there are several; else 0."""
    if op.op != "FlatMapDataset" or not any(_READERS.search(inner.op) for inner in op.inner):
        return 0
    known = {one.name: one.cardinality for one in pipeline.ops}
    count = next((known.get(name) for name in inputs_of(op, pipeline)), None)
    return count if count is not None and count > 1 else 0


def _thread_pool(pipeline: Pipeline, cpus: int) -> Iterator[Candidate]:
    size = thread_pool_size(pipeline, cpus)
    if size is None:
        return

    def edit(given: Pipeline) -> Pipeline:
        retuned_ = _each(given, lambda op: {"chosen_parallelism": None} if op.parallelism == AUTOTUNE else {})
        return retuned_.model_copy(update={"threadpool_size": size})

    yield Candidate(f"thread-pool:{size}", edit)


def _processes(pipeline: Pipeline, cpus: int) -> Iterator[Candidate]:
    """A Python function that holds the lock, called in other processes: the lock is free, the processors are not."""
    tokens = {one.token for one in pipeline.python_functions if one.gil == "holds" and one.kind != "generator"}
    if not any(tokens & set(op.python_functions) for op in pipeline.ops):
        return

    def edit(given: Pipeline) -> Pipeline:
        functions = tuple(
            one.model_copy(update={"gil": "releases"}) if one.token in tokens else one for one in given.python_functions
        )
        return given.model_copy(update={"python_functions": functions})

    yield Candidate(f"processes:{cpus}", edit)


def _prefetch(pipeline: Pipeline, cpus: int) -> Iterator[Candidate]:
    consumer = threads(pipeline, cpus)
    if consumer is None or not (consumer.ops or consumer.at_once):
        return

    def edit(given: Pipeline) -> Pipeline:
        last = given.ops[-1]
        ahead = PipelineOp(name="prefetch", op="PrefetchDataset", inputs=(last.name,), buffer_size=AUTOTUNE)
        linked = _each(given, lambda op: {"inputs": inputs_of(op, given)})
        return linked.model_copy(update={"ops": (*linked.ops, ahead)})

    yield Candidate("prefetch", edit)


def _cache(pipeline: Pipeline, environment: Mapping[str, Any]) -> Iterator[Candidate]:
    """After the last op up to which every pass yields the same, where what it yields fits into memory."""
    if any(op.op.startswith("CacheDataset") for op in pipeline.ops):
        return
    by_name = {op.name: op for op in pipeline.ops}
    same: dict[str, bool] = {}
    for op in pipeline.ops:
        inputs = [same.get(name, False) for name in inputs_of(op, pipeline)]
        own = not op.random and not op.op.startswith(("Repeat", "ForeverRepeat", "Shuffle"))
        same[op.name] = own and all(inputs) and (op.cardinality or 0) >= 0 and op.cardinality != -1
    memory, whole = _memory_bytes(environment), sum(op.cost_s or 0.0 for op in pipeline.ops)
    for op in reversed(pipeline.ops):
        above = _upstream(op, pipeline, by_name)
        spared = sum(by_name[name].cost_s or 0.0 for name in above)
        if not same[op.name] or spared < _WORTH * whole or op.op in ("PrefetchDataset", "OptionsDataset"):
            continue
        if not op.cardinality or op.cardinality < 0 or not op.element_bytes or memory is None:
            why = "how large what it would hold is was not worked out"
            yield Candidate(f"cache@{op.name}", None, why)
            return
        if op.cardinality * op.element_bytes > _CACHE_SHARE * memory:
            continue
        effects = [by_name[name] for name in above if by_name[name].side_effects]
        python = any(one.python_functions for one in effects)
        why_not = None
        if python:
            why_not = "it changes the data if a Python function before it does not always give the same"
        elif effects:
            why_not = f"what {effects[0].name} does besides its result would happen once"
        yield Candidate(f"cache@{op.name}", lambda given, above=above: _free(given, above), why_not)  # type: ignore[misc]
        return


def _filter_first(pipeline: Pipeline) -> Iterator[Candidate]:
    if filter_first(pipeline) is not None:
        yield Candidate("filter-first", lambda given: filter_first(given) or given)


def _batch_first(pipeline: Pipeline) -> Iterator[Candidate]:
    taken = elements_per_batch(pipeline)
    readers = consumers(pipeline)
    for op in pipeline.ops:
        many = taken[op.name] >= _MANY and "Map" in op.op and not op.python_functions
        tiny = op.cost_s is not None and op.cost_s / max(taken[op.name], 1.0) < _TINY_S
        if many and tiny and any("Batch" in reader.op for reader in readers[op.name]):
            why = "how much of the time for an element is the call itself was not measured"
            yield Candidate("batch-first", None, why)
            return


def _drop_prefetch(pipeline: Pipeline) -> Iterator[Candidate]:
    names = [op.name for op in pipeline.ops if op.op.startswith("PrefetchDataset")][:-1]
    if names:
        yield Candidate(
            "drop-prefetch",
            lambda given: _each(given, lambda op: {"buffer_size": 0} if op.name in names else {}),
        )


def _any_order(pipeline: Pipeline) -> Iterator[Candidate]:
    ordered = [
        op for op in pipeline.ops if op.op.startswith("Parallel") and (op.deterministic or "default").lower() != "false"
    ]
    if not ordered or pipeline.deterministic is False:
        return
    timed = {one.token for one in pipeline.python_functions if one.call_times_s}
    if any(timed & set(op.python_functions) for op in ordered):
        names = {op.name for op in ordered}
        yield Candidate(
            "any-order",
            lambda given: _each(given, lambda op: {"deterministic": "false"} if op.name in names else {}),
            "the elements come in another order, which differs from run to run",
        )
        return
    yield Candidate("any-order", None, "what keeping the order costs depends on how calls vary, which is not known")


def _waits(op: PipelineOp, pipeline: Pipeline, cpus: int) -> bool:
    """Whether the op's functions hold a thread of the pool without using a processor or the lock."""
    need = demand(op, pipeline, cpus)
    if need.pool_s <= 0:
        return False
    functions = [one for one in pipeline.python_functions if one.token in op.python_functions]
    if functions:
        return any(one.gil == "blocks" for one in functions)
    return op.cpu_s is not None and need.pool_s - need.cpu_s > _WAITS * need.pool_s


def _upstream(op: PipelineOp, pipeline: Pipeline, by_name: Mapping[str, PipelineOp]) -> frozenset[str]:
    """Names of an op and of all before it."""
    found: set[str] = set()
    waiting = [op.name]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in found:
            found.add(name)
            waiting.extend(inputs_of(by_name[name], pipeline))
    return frozenset(found)


def _free(pipeline: Pipeline, names: frozenset[str]) -> Pipeline:
    """Those ops without any cost; elements come from memory, which hands out references and copies nothing."""
    tokens = {token for op in pipeline.ops if op.name in names for token in op.python_functions}
    functions = tuple(one for one in pipeline.python_functions if one.token not in tokens)
    nothing = {"cost_s": 0.0, "cpu_s": 0.0, "python_functions": (), "inner": ()}
    cached = _each(pipeline, lambda op: nothing if op.name in names else {})
    return cached.model_copy(update={"python_functions": functions})


def _memory_bytes(environment: Mapping[str, Any]) -> float | None:
    memory = environment.get("memory")
    if not isinstance(memory, Mapping):
        return None
    known = [float(size) for name in ("total_bytes", "limit_bytes") if (size := memory.get(name))]
    return min(known, default=None)


def _each(pipeline: Pipeline, changes: Callable[[PipelineOp], Mapping[str, Any]]) -> Pipeline:
    return pipeline.model_copy(update={"ops": tuple(op.model_copy(update=dict(changes(op))) for op in pipeline.ops)})
