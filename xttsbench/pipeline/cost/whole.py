"""Runs of the whole pipeline: what TensorFlow's performance model counts, and what AUTOTUNE chooses.

For the costs, fusion and the default rewrites are off, so that every op keeps its name, and autotune is on, without
which there is no model. For AUTOTUNE's values the pipeline runs as it really is; nothing consumes the batches then, so
AUTOTUNE works for the highest rate, and beside a slow step it may settle for less.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import model_pb2

from xttsbench.pipeline.cost import model
from xttsbench.pipeline.cost.drain import one_line
from xttsbench.pipeline.cost.model import ModelNode
from xttsbench.records.pipeline import PipelineOp

_KNOWN_RATIO: Final = (model_pb2.NodeClass.KNOWN_RATIO, model_pb2.NodeClass.ASYNC_KNOWN_RATIO)


def snapshot(iterator: Any) -> tuple[dict[int, ModelNode], int]:
    """The nodes of an iterator's model now, by id, and the id of its root.

    Raises:
        tf.errors.NotFoundError: there is no model, since autotune is off.
    """
    proto = tf.data.experimental.get_model_proto(iterator)
    nodes = {
        node.id: ModelNode(
            id=node.id,
            name=node.name,
            elements=node.num_elements,
            time_ns=node.processing_time,
            ratio=node.ratio if node.node_class in _KNOWN_RATIO and node.ratio > 0 else None,
            inputs=tuple(i for i in node.inputs if i in proto.nodes),
            parameters={parameter.name: parameter.state_value for parameter in node.parameters},
        )
        for node in proto.nodes.values()
    }
    return nodes, proto.output


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
    """Costs that the model of a run of the whole counted, and a note on them for a person."""

    costs: Mapping[str, model.OpCost] = field(default_factory=dict)
    note: str = ""
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
        return Modelled(note=f"TensorFlow kept no model ({missing.message})")
    if not snapshots:
        return Modelled(note="no costs: the dataset is empty")
    nodes = model.merge(snapshots)
    matched, ignored = model.match(nodes, root, ops)
    costs = model.costs(nodes, matched, ops)
    if not any(cost.cost_s for cost in costs.values()):
        return Modelled(note="TensorFlow's model counted no time in any op")
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
            error = one_line(raised)
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


_EVERY_S: Final = 0.1
_ALIKE: Final = 3
"""Looks in a row that see the same values: it has settled (TensorFlow looks again at ever longer intervals)."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """Values in force, by op name."""

    parallelism: dict[str, int]
    buffer_size: dict[str, int]
    injected_buffer: int | None
    """Elements of the prefetch that TensorFlow appends; ``None`` where it appends none."""


def read_tuned(dataset: Any, ops: Sequence[PipelineOp], *, least_s: float, max_s: float) -> Tuned | None:
    """Run a dataset until its tuned values hold still, for ``least_s`` to ``max_s`` seconds, and read them.

    ``None`` where TensorFlow kept no model or the dataset raised or ended before a first look. A batch that takes
    longer than ``max_s`` is waited for.
    """
    looks: list[Tuned] = []
    try:
        iterator = iter(dataset)
        began = looked = time.perf_counter()
        while next(iterator, None) is not None:
            now = time.perf_counter()
            if now - looked >= _EVERY_S or not looks:
                nodes, root = snapshot(iterator)
                looks.append(_tuned(nodes, root, ops))
                looked = now
            settled = len(looks) > _ALIKE and all(look == looks[-1] for look in looks[-_ALIKE:])
            if now - began > max_s or (now - began > least_s and settled):
                break
    except tf.errors.OpError:  # the dataset's own errors are told by the run that reads the costs
        pass
    return looks[-1] if looks else None


def _tuned(nodes: dict[int, model.ModelNode], root: int, ops: Sequence[PipelineOp]) -> Tuned:
    matched, _ = model.match(nodes, root, ops, rewritten=True)

    def values(parameter: str) -> dict[str, int]:
        found = {name: nodes[ids[-1]].parameters.get(parameter) for name, ids in matched.items() if ids}
        return {name: round(value) for name, value in found.items() if value}

    first = next((nodes[i] for i in nodes[root].inputs), None)
    own = {i for ids in matched.values() for i in ids}
    injected = first is not None and first.name.startswith("Prefetch") and first.id not in own
    return Tuned(
        parallelism=values("parallelism"),
        buffer_size=values("buffer_size"),
        injected_buffer=round(first.parameters.get("buffer_size", 0.0)) if injected and first is not None else None,
    )
