"""Batches made ahead of the step: ``prefetch`` and ``buffer``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.calls import numbered
from xttsbench.fixes.spec import Candidate, Setting, Spec, changed, linked
from xttsbench.records.pipeline import AUTOTUNE, Pipeline, PipelineOp
from xttsbench.throughput.threads import threads


def appended(setting: Setting) -> Iterator[Candidate]:
    """A prefetch at the end, where something still runs in the consumer's thread."""
    pipeline = setting.pipeline
    consumer = threads(pipeline, setting.cpus)
    if consumer.spread or consumer.at_once:
        yield Candidate("prefetch", lambda given: _with_prefetch(given, AUTOTUNE), ops=(pipeline.ops[-1].name,))


def longer(setting: Setting) -> Iterator[Candidate]:
    """A larger last prefetch, or one that is appended, where what is kept ready does not last over a burst."""
    pipeline, size = setting.pipeline, setting.buffer
    if size is None:
        return
    last = _last_prefetch(pipeline)
    ends = last or pipeline.ops[-1]
    name, held = longer_name(pipeline, size), (ends.element_bytes or 0.0) * size
    if last is None:
        yield Candidate(name, lambda given: _with_prefetch(given, size), ops=(ends.name,), held_bytes=held)
    else:
        yield changed(name, [last], {"buffer_size": size}, held_bytes=held)


def longer_name(pipeline: Pipeline, size: int) -> str:
    """The fix that keeps so many batches ready: ``buffer`` where the pipeline ends in a prefetch, else ``prefetch``."""
    return numbered("prefetch" if _last_prefetch(pipeline) is None else "buffer", size)


def _last_prefetch(pipeline: Pipeline) -> PipelineOp | None:
    """The prefetch that the pipeline ends in; ``None`` where it ends in something else."""
    doing = [op for op in pipeline.ops if op.op not in ("OptionsDataset", "ModelDataset")]
    return doing[-1] if doing and doing[-1].op.startswith("PrefetchDataset") else None


def _with_prefetch(given: Pipeline, size: int) -> Pipeline:
    ahead = PipelineOp(name="prefetch", op="PrefetchDataset", inputs=(given.ops[-1].name,), buffer_size=size)
    return given.model_copy(update={"ops": (*linked(given).ops, ahead)})


BUFFER: Final = Spec(
    name="buffer",
    form="name:n",
    words="a larger last prefetch",
    does="the last prefetch holds n batches: for an input that comes in bursts",
    unit="elements",
    mends=("oscillation",),
    candidates=longer,
    rewrite="xttsbench.fixes.prefetch.rewrite:last_buffer",
    argument="elements",
    runs_ahead=True,
    keeps_conditions=True,
    patch="xttsbench.fixes.prefetch.patch:prefetch_buffer",
)
PREFETCH: Final = Spec(
    name="prefetch",
    form="name[:n]",
    words="a prefetch at the end",
    does="a prefetch at the end",
    unit="elements",
    mends=("no-prefetch",),
    candidates=appended,
    rank=6,
    on_dataset="xttsbench.fixes.prefetch.rewrite:prefetched",
    argument="elements",
    needs_graph=False,
    runs_ahead=True,
    keeps_conditions=True,
    patch="xttsbench.fixes.prefetch.patch:prefetch",
)
