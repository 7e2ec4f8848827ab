"""Sequential ops made parallel, and parallel ops released from keeping the order of their elements.

``parallel-map`` is of maps, ``parallel-interleave`` of what reads files; with ``any-order``, which has to be asked
for, both hand their elements on as they come.
"""

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


def order_given_up(setting: Setting) -> Iterator[Candidate]:
    """Whatever runs in parallel and keeps an order."""
    pipeline = setting.pipeline
    ordered = [op for op in pipeline.ops if op.op.startswith("Parallel")]
    ordered = [op for op in ordered if (op.deterministic or "default").lower() != "false"]
    timed = {one.token for one in pipeline.python_functions if one.call_times_s}
    if any(timed & set(op.python_functions) for op in ordered):
        why_not = "the elements come in another order, which differs from run to run"
        yield changed("any-order", ordered, {"deterministic": "false"}, why_not=why_not)
    elif ordered:
        why_not = "what keeping the order costs depends on how calls vary, which is not known"
        yield Candidate("any-order", None, why_not, ops=tuple(op.name for op in ordered))


def _made(op: str, calls: int) -> dict[str, Any]:
    return {"op": op, "parallelism": calls, "chosen_parallelism": None}


PARALLEL_MAP: Final = Spec(
    name="parallel-map",
    form="name[:n]",
    words="maps in parallel",
    does="every sequential map calls its function in parallel (AUTOTUNE, or n calls); the order stays",
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
ANY_ORDER: Final = Spec(
    name="any-order",
    words="elements in the order in which they are ready",
    does="the order of the elements is given up; only with `--any-order`",
    mends=("order-sensitive",),
    candidates=order_given_up,
    rewrite="xttsbench.fixes.parallel.rewrite:any_order",
    asked_for="elements in another order have to be asked for (--any-order)",
    keeps_conditions=True,
    patch="xttsbench.fixes.parallel.patch:any_order",
)
