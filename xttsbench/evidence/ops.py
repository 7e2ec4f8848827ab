"""Questions about a pipeline's ops: what lies before and after one, what it holds, and how the user would call it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from xttsbench.evidence.evidence import Evidence, allowed_cpus
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.stages import limiting_op
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
_EXPLAINS: Final = 1 / 3
"""Share of what the step waits that the ops of its pipeline take at least, each by itself, where they are the cause:
by themselves they are undisturbed, and the wait is not."""


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


def slowest_op(evidence: Evidence) -> PipelineOp | None:
    """The op that sets the pace of the pipeline; ``None`` where no cost is known, or no op explains the wait."""
    return limiting_op(evidence.graph, allowed_cpus(evidence)) if explains_wait(evidence) else None


def explains_wait(evidence: Evidence) -> bool:
    """Whether the ops can be what the step waits for, by their own time; yes where that is not known.

    A distributed iterator, the hand-over of small batches on busy cores, and beginning anew take time that is no op's.
    """
    waited_s, ops_s = evidence.parts.get("input"), ops_cost_s(evidence)
    bare = not evidence.has_step and not evidence.emulated
    return bare or not waited_s or ops_s is None or ops_s >= _EXPLAINS * waited_s


def no_op_explains(evidence: Evidence) -> str:
    """What is said in place of an op's name where :func:`explains_wait` does not hold."""
    ops_ms, waited_ms = 1e3 * (ops_cost_s(evidence) or 0.0), 1e3 * evidence.parts.get("input", 0.0)
    return (
        f"no op explains it: by themselves all of them take {ops_ms:.2g} ms of the {waited_ms:.2g} ms; handing batches "
        "over, distributing them or beginning an epoch anew takes the rest"
    )


def ops_cost_s(evidence: Evidence) -> float | None:
    """Seconds that all ops take for a batch, one after the other; ``None`` where that of one is not known."""
    ops = [op for op in evidence.graph.ops if not op.cached and not op.op.startswith(_SAME_ELEMENTS)]
    costs = [op.cost_s for op in ops]
    return sum(cost for cost in costs if cost) if costs and None not in costs else None
