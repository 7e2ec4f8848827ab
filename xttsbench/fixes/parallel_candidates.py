"""Fixes that let calls of a pipeline run at once: maps, reads, batches, a pool with threads for them, processes.

Pure. Functions that wait are given a number of calls, and as many threads: AUTOTUNE starts with few, adds one at a
time, and takes no more than the pool has. Those that compute are left to AUTOTUNE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from xttsbench.fixes.candidate import Candidate, each
from xttsbench.records.pipeline import Pipeline, PipelineOp, PythonFunction
from xttsbench.throughput.threads import (
    AUTOTUNE,
    consumers,
    demand,
    elements_per_batch,
    inputs_of,
    parallelised,
    pool_size,
)

BLOCKING_POOL: Final = 32
"""Threads for functions that wait, where no larger parallelism was asked for or is needed."""
_LARGEST_POOL: Final = 128
_SPARE: Final = 1.5
"""Calls that wait are asked for this many times as often as the step needs them on the average."""
_WAITS: Final = 0.3
"""An op waits where it has no processor for this share of its time."""
_CALLS: Final = 2
"""Calls at once of an interleave whose cycle is not known."""
_FILES: Final = 16
"""Files that are worth reading at once."""
_COPIES: Final = 0.02
"""Share of the pipeline's cost from which a batch's copying is worth running beside others."""
_READERS: Final = re.compile(r"^(TFRecord|TextLine|FixedLengthRecord)Dataset")
CROSSING_S: Final = 150e-6
"""Handing one call to another process and taking its result, measured on two cores: 0.1 to 0.2 ms."""
_LOCKED_SHARE: Final = 0.6
"""Share of that which is Python of this process."""
COPYING_BYTES_PER_S: Final = 2e9
"""Rate at which arguments and results are copied from process to process."""


def stays_at_one_call(op: PipelineOp) -> bool:
    """Whether AUTOTUNE runs an interleave one call at a time, as it does where nothing says how many inputs to take."""
    return "ParallelInterleave" in op.op and op.parallelism == AUTOTUNE and op.chosen_parallelism == 1


def forgotten(op: PipelineOp) -> dict[str, Any]:
    """What AUTOTUNE chose for an op forgotten, unless it would choose the same whatever else changes."""
    return {"chosen_parallelism": None} if op.parallelism == AUTOTUNE and not stays_at_one_call(op) else {}


_OPENS: Final = ("FlatMap", "Interleave", "ParallelInterleave")
"""Ops that read datasets which their function makes."""


def sequential_maps(pipeline: Pipeline) -> list[PipelineOp]:
    """Maps that TensorFlow does not make parallel by itself."""
    return [op for op in pipeline.ops if op.op == "MapDataset" and not parallelised(op, pipeline)]


def waits(op: PipelineOp, pipeline: Pipeline, cpus: int) -> bool:
    """Whether the op's functions hold a thread of the pool without using a processor or the lock."""
    functions = [one for one in pipeline.python_functions if one.token in op.python_functions]
    if functions and op.cost_s is None:
        return all(one.gil in ("blocks", "unknown") for one in functions)
    need = demand(op, pipeline, cpus)
    if need.pool_s <= 0:
        return False
    if functions:
        return any(one.gil == "blocks" for one in functions)
    return op.cpu_s is not None and need.pool_s - need.cpu_s > _WAITS * need.pool_s


def calls_wanted(pipeline: Pipeline, cpus: int, goal_s: float | None = None) -> int | None:
    """Calls at once that functions which wait are worth: ``None`` where none waits.

    Args:
        pipeline: with costs.
        cpus: processors of the process.
        goal_s: seconds of a step; more calls than keep up with it, or than the processors can serve, are of no use.
    """
    waiting = [op for op in pipeline.ops if waits(op, pipeline, cpus)]
    if not waiting:
        return None
    bounded = [_most_calls(op, pipeline, cpus) for op in waiting]
    if all(bounded):
        return max(bounded)
    size = max([BLOCKING_POOL, *(op.parallelism or 0 for op in waiting)])
    needed = 0.0
    if goal_s:
        served_s = max(goal_s, sum(demand(op, pipeline, cpus).cpu_s for op in pipeline.ops) / cpus)
        needed = _SPARE * sum(demand(op, pipeline, cpus).pool_s for op in waiting) / served_s
    while size < needed and size < _LARGEST_POOL:
        size *= 2
    return size


def thread_pool_size(pipeline: Pipeline, cpus: int, goal_s: float | None = None) -> int | None:
    """Threads worth having: as many as functions that wait are called at once; ``None`` where the pool has them.

    A call that reads a source holds a thread, and what waits inside that source another one (tried on TensorFlow 2.21:
    with 8 sources a pool of 16 was half as fast again as one of 8).
    """
    size = calls_wanted(pipeline, cpus, goal_s)
    opens = any(op.op.startswith(_OPENS) for op in pipeline.ops if waits(op, pipeline, cpus))
    size = 2 * size if size is not None and opens else size
    return size if size is not None and size > (pipeline.threadpool_size or 0) else None


def parallel_map(pipeline: Pipeline, cpus: int, goal_s: float | None = None) -> Iterator[Candidate]:
    """Sequential maps made parallel: as many calls as wait, one a processor for other processes, else AUTOTUNE."""
    maps = sequential_maps(pipeline)
    if not maps:
        return
    calls = AUTOTUNE
    if any(waits(op, pipeline, cpus) for op in maps):
        calls = calls_wanted(pipeline, cpus, goal_s) or AUTOTUNE
    elif any(_holding(op, pipeline) for op in maps):
        calls = max(cpus, 2)
    names = frozenset(op.name for op in maps)
    made = {"op": "ParallelMapDatasetV2", "parallelism": calls, "chosen_parallelism": None}
    yield Candidate(
        _numbered("parallel-map", calls),
        lambda given: each(given, lambda op: made if op.name in names else {}),
        ops=tuple(op.name for op in maps),
        held_bytes=_held_bytes(maps, calls),
    )


def more_calls(pipeline: Pipeline, cpus: int, goal_s: float | None = None) -> Iterator[Candidate]:
    """Maps that are parallel already and ask for fewer calls than they could use."""
    parallel = [
        op for op in pipeline.ops if op.op.startswith(("ParallelMap", "MapAndBatch")) and op.parallelism is not None
    ]
    wanted = calls_wanted(pipeline, cpus, goal_s)
    waiting = [op for op in parallel if waits(op, pipeline, cpus)]
    # The rewrite gives all of them the same number, which may not be less than any asks for.
    least = max((op.parallelism or 0 for op in parallel), default=0)
    calls = max(wanted if waiting and wanted is not None else cpus, least)
    few = [op for op in waiting if (op.parallelism or 0) < calls]  # AUTOTUNE is below 0
    few = few or [op for op in parallel if 0 < (op.parallelism or 0) < calls]
    if not few:
        return
    names = {op.name for op in parallel}
    made = {"parallelism": calls, "chosen_parallelism": None}
    yield Candidate(
        f"calls:{calls}",
        lambda given: each(given, lambda op: made if op.name in names else {}),
        ops=tuple(op.name for op in few),
        held_bytes=_held_bytes(few, calls),
    )


def parallel_interleave(pipeline: Pipeline, cpus: int) -> Iterator[Candidate]:
    """Sources that are read one at a time read ahead: as many calls as a cycle takes, or as there are files."""
    cycles = {
        op.name: op.cycle_length if op.cycle_length and op.cycle_length > 0 else None
        for op in pipeline.ops
        if op.op == "InterleaveDataset" and op.cycle_length != 1
    }
    stuck = {op.name: max(op.cycle_length or 0, _CALLS) for op in pipeline.ops if stays_at_one_call(op)}
    sources = {op.name: min(files, _FILES) for op in pipeline.ops if (files := _sources(op, pipeline, cpus))}
    if not (cycles or stuck or sources):
        return
    # AUTOTUNE reaches a cycle that is known by itself; the others have to be told.
    blocked = [number for op in pipeline.ops if (number := cycles.get(op.name)) and waits(op, pipeline, cpus)]
    told = [*stuck.values(), *sources.values(), *blocked]
    calls = max(told) if told else AUTOTUNE

    def made(op: PipelineOp) -> dict[str, Any]:
        if op.name in sources:
            return {"op": "ParallelInterleaveDatasetV4", "parallelism": sources[op.name], "cycle_length": calls}
        if op.name in stuck:
            own = max(stuck[op.name], calls) if stuck[op.name] <= _CALLS else stuck[op.name]
            return {"parallelism": own, "chosen_parallelism": None}
        if op.name in cycles:
            return {"op": "ParallelInterleaveDatasetV4", "parallelism": calls, "chosen_parallelism": None}
        return {}

    names = (*cycles, *stuck, *sources)
    mixed = any(op.name in stuck and (op.cycle_length or 0) < 1 for op in pipeline.ops)
    yield Candidate(
        _numbered("parallel-interleave", calls),
        lambda given: each(given, made),
        "how many sources take turns is left to AUTOTUNE there, so that the elements come in another order"
        if mixed
        else None,
        ops=tuple(op.name for op in pipeline.ops if op.name in names),
    )


def parallel_batch(pipeline: Pipeline, cpus: int) -> Iterator[Candidate]:
    """Batches whose copying takes time, several at once."""
    whole = sum(op.cost_s or 0.0 for op in pipeline.ops)
    names = {
        op.name
        for op in pipeline.ops
        if op.op.startswith("BatchDataset") and op.parallelism is None and (op.cost_s or 0.0) > _COPIES * whole
    }
    if names and cpus > 1:
        made = {"op": "ParallelBatchDataset", "parallelism": AUTOTUNE, "chosen_parallelism": None}
        yield Candidate(
            "parallel-batch",
            lambda given: each(given, lambda op: made if op.name in names else {}),
            ops=tuple(op.name for op in pipeline.ops if op.name in names),
            held_bytes=_held_bytes([op for op in pipeline.ops if op.name in names], cpus),
        )


def processes(pipeline: Pipeline, cpus: int) -> Iterator[Candidate]:
    """A Python function that holds the lock, called in other processes: the lock is free, the processors are not.

    Each call is handed over and its result taken back, which takes :data:`CROSSING_S`, most of it under the lock, and
    the time to copy what the op yields.
    """
    tokens = {one.token for one in pipeline.python_functions if one.gil == "holds" and one.kind != "generator"}
    ops = [op for op in pipeline.ops if tokens & set(op.python_functions)]
    if not ops or cpus < 2:
        return
    taken = elements_per_batch(pipeline)
    copied_s = {op.name: (op.element_bytes or 0.0) / COPYING_BYTES_PER_S * taken[op.name] for op in ops}

    def calls(op: PipelineOp, given: Pipeline) -> list[PythonFunction]:
        return [one for one in given.python_functions if one.token in tokens and one.token in op.python_functions]

    def edit(given: Pipeline) -> Pipeline:
        def changed(op: PipelineOp) -> dict[str, Any]:
            own = calls(op, given)
            if not own or op.cost_s is None or not op.cost_s:
                return {}
            crossing_s = sum(one.calls_per_batch or 0.0 for one in own) * CROSSING_S + copied_s.get(op.name, 0.0)
            worked_s = sum((one.calls_per_batch or 0.0) * (one.call_cpu_s or 0.0) for one in own)
            cpu_s = min(op.cost_s, worked_s) if op.cpu_s is None else op.cpu_s
            return {"cost_s": op.cost_s + crossing_s, "cpu_s": cpu_s + crossing_s, "cost_from": "prefix"}

        functions = tuple(
            one.model_copy(update={"call_cpu_s": _LOCKED_SHARE * CROSSING_S}) if one.token in tokens else one
            for one in given.python_functions
        )
        return each(given, changed).model_copy(update={"python_functions": functions})

    in_turn = {op.name for op in sequential_maps(pipeline)}
    yield Candidate(
        f"processes:{cpus}",
        edit,
        proof="a Python function that keeps something from call to call keeps it in each process by itself",
        ops=tuple(op.name for op in ops),
        alone=any(op.name not in in_turn for op in ops),
    )


def thread_pool(pipeline: Pipeline, cpus: int, goal_s: float | None = None) -> Iterator[Candidate]:
    """A private pool with a thread for each call that waits."""
    size = thread_pool_size(pipeline, cpus, goal_s)
    if size is None:
        return

    def edit(given: Pipeline) -> Pipeline:
        retuned = each(given, forgotten)
        return retuned.model_copy(update={"threadpool_size": size})

    waiting = tuple(op.name for op in pipeline.ops if waits(op, pipeline, cpus))
    asked = max((op.parallelism or 0 for op in pipeline.ops if op.name in waiting), default=0)
    several = any(op.parallelism is not None for op in pipeline.ops if op.name in waiting)
    yield Candidate(f"thread-pool:{size}", edit, ops=waiting, alone=several or asked > pool_size(pipeline, cpus))


def _most_calls(op: PipelineOp, pipeline: Pipeline, cpus: int) -> int:
    """Calls that an interleave can run at once whatever it is told, by its cycle or its sources; 0 for no limit."""
    if op.op.startswith("FlatMap"):
        return max(min(_sources(op, pipeline, cpus), _FILES), 1)
    if "Interleave" not in op.op or not op.cycle_length or op.cycle_length < 1:
        return 0
    return op.cycle_length


def _numbered(kind: str, calls: int) -> str:
    return kind if calls == AUTOTUNE else f"{kind}:{calls}"


def _holding(op: PipelineOp, pipeline: Pipeline) -> bool:
    own = [one for one in pipeline.python_functions if one.token in op.python_functions and one.kind != "generator"]
    return any(one.gil == "holds" for one in own)


def _held_bytes(ops: list[PipelineOp], calls: int) -> float:
    return sum((op.element_bytes or 0.0) * max(calls, 1) for op in ops)


def _sources(op: PipelineOp, pipeline: Pipeline, cpus: int) -> int:
    """How many sources a flat map goes through one after the other, where reading ahead of them can help; else 0.

    That is so where each is a file, or where making its elements waits.
    """
    if not op.op.startswith("FlatMapDataset") or not op.inner or not consumers(pipeline):
        return 0
    if not any(_READERS.search(inner.op) for inner in op.inner) and not waits(op, pipeline, cpus):
        return 0
    known = {one.name: one.cardinality for one in pipeline.ops}
    count = next((known.get(name) for name in inputs_of(op, pipeline)), None)
    return count if count is not None and count > 1 else 0
