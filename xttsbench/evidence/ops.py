"""Questions about a pipeline's ops: what lies before and after one, what it holds, and how the user would call it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from xttsbench.evidence.evidence import Evidence
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import inputs_of

INFINITE: Final = -1
"""Cardinality of what never ends."""
LARGE: Final = 0.10
"""Share of the memory, or of an epoch, from which a buffer is worth a word."""
TOO_LARGE: Final = 0.25
"""The same from which it is worth a warning."""
CACHE_MEMORY_SHARE: Final = 0.50
"""Share of the memory that a cache may take: the training needs the rest."""
PREFETCH: Final = "Prefetch"
MAPS: Final = ("MapDataset", "ParallelMapDataset")
BATCHES: Final = ("PaddedBatchDataset", "BatchDataset", "ParallelBatchDataset", "RaggedBatchDataset")

_FUNCTION: Final = re.compile(
    r"^__inference_(?:Dataset_|tf_data_experimental_)?"
    r"(?:flat_map|parallel_interleave|interleave|map|filter|scan|group_by_window|take_while)_(?P<name>.+)_\d+$"
)
_NAMELESS: Final = ("lambda", "<lambda>")
_SAME_ELEMENTS: Final = ("Prefetch", "CopyToDevice", "Cache", "Repeat", "Options", "Take", "Skip")
"""Ops that hand on the elements that they read."""


def upstream(pipeline: Pipeline, op: PipelineOp) -> list[PipelineOp]:
    """All ops that an op reads, directly or through others, in the order of the pipeline."""
    return _reached(pipeline, op, {other.name: inputs_of(other, pipeline) for other in pipeline.ops})


def downstream(pipeline: Pipeline, op: PipelineOp) -> list[PipelineOp]:
    """All ops that read an op, directly or through others, in the order of the pipeline."""
    readers: dict[str, list[str]] = {}
    for other in pipeline.ops:
        for name in inputs_of(other, pipeline):
            readers.setdefault(name, []).append(other.name)
    return _reached(pipeline, op, readers)


def _reached(pipeline: Pipeline, op: PipelineOp, edges: Mapping[str, Sequence[str]]) -> list[PipelineOp]:
    waiting, seen = list(edges.get(op.name, ())), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(edges.get(name, ()))
    return [other for other in pipeline.ops if other.name in seen]


def input_of(pipeline: Pipeline, op: PipelineOp) -> PipelineOp | None:
    """The op that an op reads; ``None`` where it reads none or several."""
    names = inputs_of(op, pipeline)
    return next((other for other in pipeline.ops if other.name == names[0]), None) if len(names) == 1 else None


def function_of(op: PipelineOp) -> str:
    """The name of an op's function as the user wrote it, or ``f`` where it has none or that is not known."""
    match = _FUNCTION.match(op.function or "")
    name = match.group("name") if match else None
    return name if name and name.isidentifier() and name not in _NAMELESS else "f"


def memory_bytes(evidence: Evidence) -> int | None:
    """Memory that the process may use: the machine's or the control group's limit, whichever is less."""
    memory = evidence.known("memory")
    known = [int(memory[key]) for key in ("total_bytes", "limit_bytes") if memory.get(key)]
    return min(known, default=None)


def bytes_of(evidence: Evidence, op: PipelineOp) -> float | None:
    """Mean size of an element of an op; at the end of the pipeline that of the batches that were kept."""
    if op.element_bytes is not None:
        return op.element_bytes
    batches, pipeline = evidence.batches, evidence.graph
    if batches is None or not batches.cached:
        return None
    same = all(other.op.startswith(_SAME_ELEMENTS) for other in downstream(pipeline, op))
    return batches.bytes / batches.cached if same else None


def last_of(evidence: Evidence, kinds: tuple[str, ...]) -> PipelineOp | None:
    """The last op of some kinds; of a data set that a function makes, the op that makes it."""
    return next((op for op in reversed(evidence.graph.ops) if op.op.startswith(kinds)), None)


def buffered(op: PipelineOp) -> int:
    """Elements that a prefetch holds: what was written or AUTOTUNE chose, and no more than there are."""
    wanted = max(op.buffer_size or 0, op.chosen_buffer_size or 0, 0)
    return min(wanted, op.cardinality) if op.cardinality is not None and op.cardinality >= 0 else wanted
