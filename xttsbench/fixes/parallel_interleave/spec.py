"""``parallel-interleave``: several files read at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from xttsbench.fixes.calls import MOST_FILES, numbered, sources_of, stays_at_one_call, waits
from xttsbench.fixes.spec import Candidate, Setting, Spec, each
from xttsbench.records.pipeline import AUTOTUNE, PipelineOp

_CALLS: Final = 2
"""Calls at once of an interleave whose cycle is not known."""


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Sources that are read one at a time read ahead: as many calls as a cycle takes, or as there are files."""
    pipeline, cpus = setting.pipeline, setting.cpus
    cycles = {
        op.name: op.cycle_length if op.cycle_length and op.cycle_length > 0 else None
        for op in pipeline.ops
        if op.op == "InterleaveDataset" and op.cycle_length != 1
    }
    stuck = {op.name: max(op.cycle_length or 0, _CALLS) for op in pipeline.ops if stays_at_one_call(op)}
    sources = {op.name: min(files, MOST_FILES) for op in pipeline.ops if (files := sources_of(op, pipeline, cpus))}
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
        numbered("parallel-interleave", calls),
        lambda given: each(given, made),
        "how many sources take turns is left to AUTOTUNE there, so that the elements come in another order"
        if mixed
        else None,
        ops=tuple(op.name for op in pipeline.ops if op.name in names),
    )


PARALLEL_INTERLEAVE: Final = Spec(
    name="parallel-interleave",
    form="name[:n]",
    words="sources read in parallel",
    does="files are read at once. A `flat_map` keeps its exact order: the next files are read ahead",
    unit="calls",
    mends=("sequential-read",),
    candidates=candidates,
    rank=1,
    rewrite="xttsbench.fixes.parallel_interleave.rewrite:parallel_interleave",
    argument="calls",
    hazards="xttsbench.fixes.parallel_interleave.rewrite:hazards",
    runs_ahead=True,
    patch="xttsbench.fixes.parallel_map.patch:parallel_interleave",
)
