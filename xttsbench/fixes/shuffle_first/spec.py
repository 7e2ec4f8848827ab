"""``shuffle-first``: a shuffle before the maps in front of it, whose results its buffer would have to be filled with.

An epoch then begins with the first elements, not with a buffer full of them, and the buffer holds what the maps are
given: names and numbers in place of data. A shuffle draws its order without looking, so that the order stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.spec import Candidate, Setting, Spec, with_upstream
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import consumers, inputs_of


def candidates(setting: Setting) -> Iterator[Candidate]:
    """The first shuffle right behind a map."""
    pipeline = setting.pipeline
    for op in pipeline.ops:
        if passed := passed_maps(op, pipeline):
            names = (op.name, *(one.name for one in passed))
            yield Candidate("shuffle-first", moved_first, ops=names)
            return


def passed_maps(op: PipelineOp, pipeline: Pipeline) -> list[PipelineOp]:
    """The maps right before a shuffle that nothing else reads, the nearest first; none before another op."""
    by_name, readers = {one.name: one for one in pipeline.ops}, consumers(pipeline)
    found, here = list[PipelineOp](), op
    while here is not op or op.op.startswith("ShuffleDataset"):
        names = inputs_of(here, pipeline)
        before = by_name.get(names[0]) if len(names) == 1 else None
        if before is None or not before.op.startswith(("MapDataset", "ParallelMapDataset")):
            break
        if len(readers[before.name]) != 1 or not inputs_of(before, pipeline):
            break
        found.append(before)
        here = before
    return found


def moved_first(pipeline: Pipeline) -> Pipeline:
    """The record with its first such shuffle moved; itself where there is none."""
    op = next((one for one in pipeline.ops if passed_maps(one, pipeline)), None)
    if op is None:
        return pipeline
    passed = passed_maps(op, pipeline)
    source = inputs_of(passed[-1], pipeline)
    element_bytes = next(one.element_bytes for one in pipeline.ops if one.name == source[0])

    def edited(one: PipelineOp) -> PipelineOp:
        inputs = inputs_of(one, pipeline)
        if one.name == op.name:
            return one.model_copy(update={"inputs": source, "element_bytes": element_bytes})
        if one.name == passed[-1].name:
            return one.model_copy(update={"inputs": (op.name,)})
        return one.model_copy(update={"inputs": tuple(passed[0].name if name == op.name else name for name in inputs)})

    ops = [edited(one) for one in pipeline.ops]
    moved = next(one for one in ops if one.name == op.name)
    ops.remove(moved)
    ops.insert(next(number for number, one in enumerate(ops) if one.name == passed[-1].name), moved)
    return pipeline.model_copy(update={"ops": tuple(ops)})


def filled_s(pipeline: Pipeline) -> float:
    """What filling the buffers of all shuffles costs for a batch: of the ops in front of them, each once."""
    shuffles = [op for op in pipeline.ops if op.op.startswith("ShuffleDataset")]
    above = {name for op in shuffles for name in with_upstream(op, pipeline) - {op.name}}
    return sum(op.cost_s or 0.0 for op in pipeline.ops if op.name in above)


SHUFFLE_FIRST: Final = Spec(
    name="shuffle-first",
    words="the shuffle before the maps",
    does="a shuffle goes before the maps right in front of it, so that its buffer holds names and numbers in place of "
    "data and an epoch need not wait until it is full of what the maps make; the order stays",
    mends=("shuffle-fill", "stragglers"),
    candidates=candidates,
    rewrite="xttsbench.fixes.shuffle_first.rewrite:shuffle_first",
    hazards="xttsbench.fixes.shuffle_first.rewrite:hazards",
    patch="xttsbench.fixes.shuffle_first.patch:shuffle_first",
)
