"""Maps that call their function several times at once: ``parallel-map`` and ``calls``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.calls import calls_wanted, held_bytes, holds_lock, numbered, sequential_maps, waits
from xttsbench.fixes.spec import Candidate, Setting, Spec, only
from xttsbench.records.pipeline import AUTOTUNE


def made_parallel(setting: Setting) -> Iterator[Candidate]:
    """Sequential maps made parallel: as many calls as wait, one a processor for other processes, else AUTOTUNE."""
    pipeline, cpus = setting.pipeline, setting.cpus
    maps = sequential_maps(pipeline)
    if not maps:
        return
    calls = AUTOTUNE
    if any(waits(op, pipeline, cpus) for op in maps):
        calls = calls_wanted(pipeline, cpus, setting.goal_s) or AUTOTUNE
    elif any(holds_lock(op, pipeline) for op in maps):
        calls = max(cpus, 2)
    names = tuple(op.name for op in maps)
    made = {"op": "ParallelMapDatasetV2", "parallelism": calls, "chosen_parallelism": None}
    name = numbered("parallel-map", calls)
    yield Candidate(name, only(frozenset(names), made), ops=names, held_bytes=held_bytes(maps, calls))


def more_calls(setting: Setting) -> Iterator[Candidate]:
    """Maps that are parallel already and ask for fewer calls than they could use."""
    pipeline, cpus = setting.pipeline, setting.cpus
    parallel = [
        op for op in pipeline.ops if op.op.startswith(("ParallelMap", "MapAndBatch")) and op.parallelism is not None
    ]
    wanted = calls_wanted(pipeline, cpus, setting.goal_s)
    waiting = [op for op in parallel if waits(op, pipeline, cpus)]
    # The rewrite gives all of them the same number, which may not be less than any asks for.
    least = max((op.parallelism or 0 for op in parallel), default=0)
    calls = max(wanted if waiting and wanted is not None else cpus, least)
    few = [op for op in waiting if (op.parallelism or 0) < calls]  # AUTOTUNE is below 0
    few = few or [op for op in parallel if 0 < (op.parallelism or 0) < calls]
    if few:
        made = {"parallelism": calls, "chosen_parallelism": None}
        yield Candidate(
            numbered("calls", calls),
            only(frozenset(op.name for op in parallel), made),
            ops=tuple(op.name for op in few),
            held_bytes=held_bytes(few, calls),
        )


PARALLEL_MAP: Final = Spec(
    name="parallel-map",
    form="name[:n]",
    words="maps in parallel",
    does="every sequential map calls its function in parallel (AUTOTUNE, or n calls); the order stays",
    unit="calls",
    mends=("sequential-map", "python-function"),
    candidates=made_parallel,
    rank=0,
    rewrite="xttsbench.fixes.parallel_map.rewrite:parallel_map",
    argument="calls",
    hazards="xttsbench.fixes.parallel_map.rewrite:hazards",
    runs_ahead=True,
    patch="xttsbench.fixes.parallel_map.patch:parallel_map",
)
CALLS: Final = Spec(
    name="calls",
    form="name:n",
    words="more calls of the parallel maps",
    does="maps that are parallel already make n calls",
    unit="at once",
    candidates=more_calls,
    rank=2,
    rewrite="xttsbench.fixes.parallel_map.rewrite:parallel_calls",
    argument="calls",
    hazards="xttsbench.fixes.parallel_map.rewrite:hazards",
    runs_ahead=True,
    patch="xttsbench.fixes.parallel_map.patch:parallel_calls",
)
