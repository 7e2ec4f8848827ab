"""What AUTOTUNE uses after a while: a run of the pipeline as it really is, rewrites included.

Nothing consumes the batches, so AUTOTUNE works for the highest rate; beside a slow step it may settle for less.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.cost import model
from xttsbench.pipeline.cost.snapshot import snapshot
from xttsbench.records.pipeline import PipelineOp

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
