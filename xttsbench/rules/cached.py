"""Ops before a cache that was full when the steps were measured: paid for once, and nothing waits for them."""

from __future__ import annotations

from xttsbench.pipeline.threads import inputs_of
from xttsbench.records.pipeline import Pipeline


def behind_cache(pipeline: Pipeline) -> Pipeline:
    """The pipeline with every op marked whose elements come from a cache; the cache itself is not."""
    by_name = {op.name: op for op in pipeline.ops}
    waiting = [name for op in pipeline.ops if op.op.startswith("CacheDataset") for name in inputs_of(op, pipeline)]
    behind: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in behind:
            behind.add(name)
            waiting.extend(inputs_of(by_name[name], pipeline))
    ops = tuple(op.model_copy(update={"cached": True}) if op.name in behind else op for op in pipeline.ops)
    return pipeline.model_copy(update={"ops": ops})
