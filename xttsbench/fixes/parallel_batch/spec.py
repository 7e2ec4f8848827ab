"""``parallel-batch``: batches put together several at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.calls import held_bytes
from xttsbench.fixes.spec import Candidate, Setting, Spec, only
from xttsbench.records.pipeline import AUTOTUNE

_COPIES: Final = 0.02
"""Share of the pipeline's cost from which a batch's copying is worth running beside others."""


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Batches whose copying takes time, several at once."""
    pipeline = setting.pipeline
    whole = sum(op.cost_s or 0.0 for op in pipeline.ops)
    ops = [
        op
        for op in pipeline.ops
        if op.op.startswith("BatchDataset") and op.parallelism is None and (op.cost_s or 0.0) > _COPIES * whole
    ]
    if ops and setting.cpus > 1:
        names = tuple(op.name for op in ops)
        made = {"op": "ParallelBatchDataset", "parallelism": AUTOTUNE, "chosen_parallelism": None}
        held = held_bytes(ops, setting.cpus)
        yield Candidate("parallel-batch", only(frozenset(names), made), ops=names, held_bytes=held)


PARALLEL_BATCH: Final = Spec(
    name="parallel-batch",
    form="name[:n]",
    words="batches put together in parallel",
    does="batches are copied together in parallel",
    candidates=candidates,
    rewrite="xttsbench.fixes.parallel_batch.rewrite:parallel_batch",
    argument="calls",
    runs_ahead=True,
    patch="xttsbench.fixes.parallel_map.patch:parallel_batch",
)
