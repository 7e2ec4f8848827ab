"""Sequential ops made parallel: ``parallel-map`` of maps, ``parallel-interleave`` of what reads files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from xttsbench.fixes.calls import (
    MOST_FILES,
    calls_wanted,
    held_bytes,
    holds_lock,
    numbered,
    sequential_maps,
    sources_of,
    stays_at_one_call,
    waits,
)
from xttsbench.fixes.spec import Candidate, Setting, Spec, changed, each
from xttsbench.records.pipeline import AUTOTUNE, PipelineOp

_CALLS_OF_NO_CYCLE: Final = 2  # calls at once of an interleave whose cycle is not known


def maps_made_parallel(setting: Setting) -> Iterator[Candidate]:
    """Sequential maps made parallel: as many calls as wait, one a processor for other processes, else AUTOTUNE."""
    pipeline, cpus = setting.pipeline, setting.cpus
    maps = sequential_maps(pipeline)
    calls = AUTOTUNE
    if any(waits(op, pipeline, cpus) for op in maps):
        calls = calls_wanted(pipeline, cpus, setting.goal_s) or AUTOTUNE
    elif any(holds_lock(op, pipeline) for op in maps):
        calls = max(cpus, 2)
    if maps:
        made = _made("ParallelMapDatasetV2", calls)
        yield changed(numbered("parallel-map", calls), maps, made, held_bytes=held_bytes(maps, calls))


def interleaves_made_parallel(setting: Setting) -> Iterator[Candidate]:
    """Sources that are read one at a time read ahead: as many calls as a cycle takes, or as there are files."""
    pipeline, cpus = setting.pipeline, setting.cpus
    cycles = {
        op.name: op.cycle_length if op.cycle_length and op.cycle_length > 0 else None
        for op in pipeline.ops
        if op.op == "InterleaveDataset" and op.cycle_length != 1
    }
    stuck = {op.name: max(op.cycle_length or 0, _CALLS_OF_NO_CYCLE) for op in pipeline.ops if stays_at_one_call(op)}
    sources = {op.name: min(files, MOST_FILES) for op in pipeline.ops if (files := sources_of(op, pipeline, cpus))}
    if not (cycles or stuck or sources):
        return
    # AUTOTUNE reaches a cycle that is known by itself; the others have to be told.
    blocked = [number for op in pipeline.ops if (number := cycles.get(op.name)) and waits(op, pipeline, cpus)]
    calls = max([*stuck.values(), *sources.values(), *blocked], default=AUTOTUNE)

    def made(op: PipelineOp) -> dict[str, Any]:
        if op.name in sources:
            return {"op": "ParallelInterleaveDatasetV4", "parallelism": sources[op.name], "cycle_length": calls}
        if op.name in stuck:
            own = stuck[op.name]
            return {"parallelism": own if own > _CALLS_OF_NO_CYCLE else max(own, calls), "chosen_parallelism": None}
        return _made("ParallelInterleaveDatasetV4", calls) if op.name in cycles else {}

    mixed = any(op.name in stuck and (op.cycle_length or 0) < 1 for op in pipeline.ops)
    why_not = "how many sources take turns is left to AUTOTUNE there, so that the elements come in another order"
    yield Candidate(
        numbered("parallel-interleave", calls),
        lambda given: each(given, made),
        why_not if mixed else None,
        ops=tuple(op.name for op in pipeline.ops if op.name in {*cycles, *stuck, *sources}),
    )


def _made(op: str, calls: int) -> dict[str, Any]:
    return {"op": op, "parallelism": calls, "chosen_parallelism": None}


PARALLEL_MAP: Final = Spec(
    name="parallel-map",
    form="name[:n]",
    words="maps in parallel",
    does="sequential maps call their functions in parallel (AUTOTUNE, or n calls); the order stays",
    unit="calls",
    mends=("sequential-map", "python-function"),
    candidates=maps_made_parallel,
    rank=0,
    rewrite="xttsbench.fixes.parallel.rewrite:parallel_map",
    argument="calls",
    hazards="xttsbench.fixes.parallel.rewrite:map_hazards",
    runs_ahead=True,
    keeps_conditions=True,
    patch="xttsbench.fixes.parallel.patch:parallel_map",
)
PARALLEL_INTERLEAVE: Final = Spec(
    name="parallel-interleave",
    form="name[:n]",
    words="sources read in parallel",
    does="several files, or other sources that a function opens, are read at once; a `flat_map` keeps its order",
    unit="calls",
    mends=("sequential-read",),
    candidates=interleaves_made_parallel,
    rank=1,
    rewrite="xttsbench.fixes.parallel.rewrite:parallel_interleave",
    argument="calls",
    hazards="xttsbench.fixes.parallel.rewrite:interleave_hazards",
    runs_ahead=True,
    keeps_conditions=True,
    patch="xttsbench.fixes.parallel.patch:parallel_interleave",
)
