"""Number of parallel calls worth running for a pipeline's functions, and of threads that those need.

Pure. Functions that wait are given a number of calls, and as many threads: AUTOTUNE starts with few, adds one at a
time, and takes no more than the pool has. Those that compute are left to AUTOTUNE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from xttsbench.fixes.spec import each
from xttsbench.records.fix import Fix
from xttsbench.records.pipeline import AUTOTUNE, Pipeline, PipelineOp
from xttsbench.throughput.threads import consumers, demand, inputs_of, parallelised

BLOCKING_POOL: Final = 32
"""Threads for functions that wait, where no larger parallelism was asked for or is needed."""
MOST_FILES: Final = 16
"""Files that are worth reading at once."""
_LARGEST_POOL: Final = 128
_SPARE: Final = 1.5  # calls that wait are asked for this many times as often as the step needs them on the average
_WAITS: Final = 0.3  # an op waits where it has no processor for this share of its time
_READERS: Final = re.compile(r"^(TFRecord|TextLine|FixedLengthRecord)Dataset")
_OPENS: Final = ("FlatMap", "Interleave", "ParallelInterleave")  # ops that read datasets which their function makes


def stays_at_one_call(op: PipelineOp) -> bool:
    """Whether AUTOTUNE runs an interleave one call at a time, as it does where nothing says how many inputs to take."""
    return "ParallelInterleave" in op.op and op.parallelism == AUTOTUNE and op.chosen_parallelism == 1


def autotune_reset(op: PipelineOp) -> dict[str, Any]:
    """The changes that reset AUTOTUNE's value for an op, unless it would choose the same whatever else changes."""
    return {"chosen_parallelism": None} if op.parallelism == AUTOTUNE and not stays_at_one_call(op) else {}


def reset_autotune(pipeline: Pipeline, but: str) -> Pipeline:
    """The pipeline with AUTOTUNE's values reset for every op but one: with another limit it chooses anew."""
    return each(pipeline, lambda op: autotune_reset(op) if op.name != but else {})


def settled(pipeline: Pipeline, cpus: int) -> Pipeline:
    """Costs as if no call had waited for the lock of another: what they are does not change with the fix then."""

    def own(op: PipelineOp) -> dict[str, Any]:
        return {} if op.cost_s is None else {"cost_s": demand(op, pipeline, cpus).cost_s, "cost_from": "prefix"}

    return each(pipeline, own)


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


def _most_calls(op: PipelineOp, pipeline: Pipeline, cpus: int) -> int:
    """Calls that an interleave can run at once whatever it is told, by its cycle or its sources; 0 for no limit."""
    if op.op.startswith("FlatMap"):
        return max(min(sources_of(op, pipeline, cpus), MOST_FILES), 1)
    if "Interleave" not in op.op or not op.cycle_length or op.cycle_length < 1:
        return 0
    return op.cycle_length


def numbered(kind: str, calls: int) -> str:
    """A fix of a number of calls, as it is written; without one for AUTOTUNE."""
    return str(Fix.of(kind, None if calls == AUTOTUNE else calls))


def holds_lock(op: PipelineOp, pipeline: Pipeline) -> bool:
    """Whether a Python function of an op holds the interpreter lock."""
    own = [one for one in pipeline.python_functions if one.token in op.python_functions and one.kind != "generator"]
    return any(one.gil == "holds" for one in own)


def held_bytes(ops: Iterable[PipelineOp], calls: int) -> float:
    """Memory for the elements of so many calls of each op."""
    return sum((op.element_bytes or 0.0) * max(calls, 1) for op in ops)


def sources_of(op: PipelineOp, pipeline: Pipeline, cpus: int) -> int:
    """Number of sources that a flat map reads one after the other, where reading ahead can help; else 0.

    That is so where each is a file, or where making its elements waits.
    """
    if not op.op.startswith("FlatMapDataset") or not op.inner or not consumers(pipeline):
        return 0
    if not any(_READERS.search(inner.op) for inner in op.inner) and not waits(op, pipeline, cpus):
        return 0
    known = {one.name: one.cardinality for one in pipeline.ops}
    count = next((known.get(name) for name in inputs_of(op, pipeline)), None)
    return count if count is not None and count > 1 else 0
