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
    waits,
)
from xttsbench.fixes.spec import Candidate, Setting, Spec, changed, each
from xttsbench.records.pipeline import AUTOTUNE, PipelineOp


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
    sources = {op.name: min(files, MOST_FILES) for op in pipeline.ops if (files := sources_of(op, pipeline, cpus))}
    if not (cycles or sources):
        return
    # AUTOTUNE reaches a cycle that is known by itself; the others have to be told.
    blocked = [number for op in pipeline.ops if (number := cycles.get(op.name)) and waits(op, pipeline, cpus)]
    calls = max([*sources.values(), *blocked], default=AUTOTUNE)

    def made(op: PipelineOp) -> dict[str, Any]:
        if op.name in sources:
            return {"op": "ParallelInterleaveDatasetV4", "parallelism": sources[op.name], "cycle_length": calls}
        return _made("ParallelInterleaveDatasetV4", calls) if op.name in cycles else {}

    yield Candidate(
        numbered("parallel-interleave", calls),
        lambda given: each(given, made),
        ops=tuple(op.name for op in pipeline.ops if op.name in {*cycles, *sources}),
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
