"""Batches made ahead of the step: ``prefetch``, ``buffer`` and ``drop-prefetch``."""

from __future__ import annotations

from xttsbench.records.pipeline import Pipeline, PipelineOp


def last_prefetch(pipeline: Pipeline) -> PipelineOp | None:
    """The prefetch that the pipeline ends in; ``None`` where it ends in something else."""
    doing = [op for op in pipeline.ops if op.op not in ("OptionsDataset", "ModelDataset")]
    return doing[-1] if doing and doing[-1].op.startswith("PrefetchDataset") else None
