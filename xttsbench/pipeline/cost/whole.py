"""TensorFlow's performance model of a pipeline, read while the whole of it runs.

Fusion and the default rewrites are off, so that every op keeps its name, and autotune is on, without which there is no
model.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.cost import model
from xttsbench.pipeline.cost.drain import said
from xttsbench.pipeline.cost.snapshot import snapshot
from xttsbench.records.pipeline import PipelineOp

_REWRITES: Final = (
    "filter_fusion",
    "filter_parallelization",
    "inject_prefetch",
    "map_and_batch_fusion",
    "map_and_filter_fusion",
    "map_fusion",
    "map_parallelization",
    "noop_elimination",
    "parallel_batch",
    "seq_interleave_prefetch",
    "shuffle_and_repeat_fusion",
)
_SNAPSHOTS: Final = 16
"""Iterators of inner datasets and past epochs vanish with their counters; a few looks on the way catch them."""


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the run of the whole said, in words as well."""

    costs: Mapping[str, model.OpCost] = field(default_factory=dict)
    said: str = ""
    first_batch_s: float = 0.0


def read_model(dataset: Any, ops: Sequence[PipelineOp], batches: int, max_s: float) -> Modelled:
    """Run a dataset for ``batches`` batches after the first, or ``max_s`` seconds, and read the model's costs.

    Raises:
        tf.errors.OpError: what the pipeline itself raises before its first batch.
    """
    try:
        snapshots, root, delivered, first_batch_s, error = _run(_as_written(dataset), batches, max_s)
    except tf.errors.NotFoundError as missing:
        if "model" not in missing.message.lower() and "autotune" not in missing.message.lower():
            raise  # the pipeline's own: a missing file
        return Modelled(said=f"TensorFlow kept no model ({missing.message})")
    if not snapshots:
        return Modelled(said="no costs: the dataset is empty")
    nodes = model.merge(snapshots)
    matched, ignored = model.match(nodes, root, ops)
    costs = model.costs(nodes, matched, ops)
    if not any(cost.cost_s for cost in costs.values()):
        return Modelled(said="TensorFlow's model counted no time in any op")
    text = (
        f"TensorFlow's performance model over {delivered} batches, fusion and default rewrites off; "
        f"{ignored} model nodes belong to no op"
    )
    return Modelled(costs, f"{text}; then the pipeline raised {error}" if error else text, first_batch_s)


def _run(
    dataset: Any, batches: int, max_s: float
) -> tuple[list[dict[int, model.ModelNode]], int, int, float, str | None]:
    """Snapshots of the model, the id of its root, of how many batches the costs are, the time of the first, an error.

    The error is what ended the run early.
    """
    snapshots: list[dict[int, model.ModelNode]] = []
    root = 0
    every = max(1, batches // _SNAPSHOTS)
    iterator = iter(dataset)
    began = time.perf_counter()
    first_batch_s = 0.0
    drawn = 0
    error: str | None = None
    while True:
        try:
            if next(iterator, None) is None:
                break
        except tf.errors.OpError as raised:
            if not snapshots:
                raise
            error = said(raised)
            break
        if not drawn:
            first_batch_s = time.perf_counter() - began
        drawn += 1  # the first batch fills buffers; the differences start after it
        last = drawn > batches or time.perf_counter() - began > max_s
        if drawn == 1 or last or drawn % every == 0:
            nodes, root = snapshot(iterator)
            snapshots.append(nodes)
        if last:
            break
    return snapshots, root, max(1, drawn - 1) if drawn else 0, first_batch_s, error


def _as_written(dataset: Any) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = True
    for rewrite in _REWRITES:
        setattr(options.experimental_optimization, rewrite, False)
    return dataset.with_options(options)
