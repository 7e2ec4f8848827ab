"""Fixes in a few words for a person, and the user's lines that they change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xttsbench.records.base import Location
from xttsbench.records.pipeline import Pipeline, PipelineOp, place

WORDS: Final = {
    "filter-first": "the filter before the work that it does not need",
    "rebatch": "whole batches cut to size, in place of taking them apart",
    "parallel-map": "maps in parallel",
    "parallel-interleave": "sources read in parallel",
    "parallel-batch": "batches put together in parallel",
    "calls": "more calls of the parallel maps",
    "processes": "Python functions in processes of their own",
    "cache": "a cache in memory",
    "cache-file": "a cache on disk",
    "batch-first": "batches before the map, which is called once for each",
    "any-order": "elements in the order in which they are ready",
    "drop-prefetch": "all prefetches but the last taken out",
    "buffer": "a larger last prefetch",
    "prefetch": "a prefetch at the end",
    "thread-pool": "a private thread pool",
    "step:graph": "the step as one graph",
    "step:xla": "the step through XLA",
    "step:buckets": "batches padded to a few lengths",
}
"""Each kind of fix in words, in the order in which fixes are applied: none takes away what a later one changes."""
_UNITS: Final = {
    "parallel-map": "calls",
    "parallel-interleave": "calls",
    "calls": "at once",
    "processes": "of them",
    "buffer": "elements",
    "prefetch": "elements",
    "thread-pool": "threads",
}


def said(fixes: Iterable[str]) -> str:
    """What some fixes do: ``maps in parallel (32 calls), a private thread pool (32 threads)``."""
    return ", ".join(_one(fix) for fix in fixes)


def _one(fix: str) -> str:
    if fix in WORDS:
        return WORDS[fix]
    kind, _, where = fix.partition("@")
    if where:
        return f"{WORDS.get(kind, kind)} after {where}"
    kind, _, number = fix.partition(":")
    return f"{WORDS.get(kind, kind)} ({number} {_UNITS.get(kind, '')})".replace(" )", ")")


def places(names: Iterable[str], pipeline: Pipeline) -> tuple[Location, ...]:
    """The user's lines that made the named ops, with those of the Python functions that they run, each once."""
    wanted = set(names)
    ops = [op for op in pipeline.ops if op.name in wanted]
    found = [location for op in ops for location in _of(op, pipeline)]
    return tuple(dict.fromkeys(location for location in found if location.file))


def _of(op: PipelineOp, pipeline: Pipeline) -> list[Location]:
    own = [one.location for one in pipeline.python_functions if one.token in op.python_functions]
    return [place(op), *(location.model_copy(update={"op": op.name}) for location in own)]
