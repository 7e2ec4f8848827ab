"""One fix that might be tried: its name, what it does to the pipeline's record, and what stands against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from xttsbench.records.fix import kind_of
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import inputs_of

Edit = Callable[[Pipeline], Pipeline]


@dataclass(frozen=True)
class Candidate:
    """A fix by its name, and what it does to the record.

    Attributes:
        name: in the grammar of :mod:`xttsbench.records.pipeline`.
        edit: of the record; ``None`` where the model cannot judge it.
        why_not: why it may not be relied on, or needs asking for, or cannot be judged.
        proof: what must hold for it to leave the data alone, which running it beside the original shows.
        ops: names of the ops that it changes.
        alone: whether it can give anything without another fix.
        held_bytes: memory that it takes, as far as it is known.
    """

    name: str
    edit: Edit | None
    why_not: str | None = None
    proof: str | None = None
    ops: tuple[str, ...] = ()
    alone: bool = True
    held_bytes: float = 0.0

    @property
    def kind(self) -> str:
        """The fix without its number or place; a cache on disk is a cache."""
        kind = kind_of(self.name)
        return "cache" if kind == "cache-file" else kind


def each(pipeline: Pipeline, changes: Callable[[PipelineOp], Mapping[str, Any]]) -> Pipeline:
    """The pipeline with every op updated by what ``changes`` says of it."""
    return pipeline.model_copy(update={"ops": tuple(op.model_copy(update=dict(changes(op))) for op in pipeline.ops)})


def with_upstream(op: PipelineOp, pipeline: Pipeline) -> frozenset[str]:
    """Names of an op and of all before it."""
    by_name = {one.name: one for one in pipeline.ops}
    found: set[str] = set()
    waiting = [op.name]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in found:
            found.add(name)
            waiting.extend(inputs_of(by_name[name], pipeline))
    return frozenset(found)
