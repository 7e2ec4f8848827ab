"""Ops before a cache that was full when the steps were measured: paid for once, and nothing waits for them."""

from __future__ import annotations

from xttsbench.fixes.candidate import each, with_upstream
from xttsbench.records.pipeline import Pipeline


def behind_cache(pipeline: Pipeline) -> Pipeline:
    """The pipeline with every op marked whose elements come from a cache; the cache itself is not."""
    caches = [op for op in pipeline.ops if op.op.startswith("CacheDataset")]
    behind = {name for op in caches for name in with_upstream(op, pipeline) - {op.name}}
    return each(pipeline, lambda op: {"cached": True} if op.name in behind else {})
