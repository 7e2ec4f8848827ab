"""An op put before the maps in front of it: ``filter-first`` and ``shuffle-first``.

A filter may go before a map where all that it looks at is handed through by the map untouched; the map then runs only
for the elements that are kept. With a shuffle before the maps, an epoch begins with the first elements, not with a
buffer full of them, and the buffer holds what the maps are given: names and numbers in place of data. A shuffle draws
its order without looking, so that the order stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.spec import Candidate, Setting, Spec, with_upstream
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import consumers, elements_per_batch, inputs_of

_FILTERS: Final = ("FilterDataset", "ParallelFilterDataset")


def filter_moves(setting: Setting) -> Iterator[Candidate]:
    """The first filter that can be moved and drops something."""
    pipeline = setting.pipeline
    if filter_moved(pipeline) is not None:
        moved = next(op for op in pipeline.ops if op.op.startswith(_FILTERS) and filter_passes(op, pipeline))
        yield Candidate("filter-first", lambda given: filter_moved(given) or given, ops=(moved.name,))


def filter_moved(pipeline: Pipeline) -> Pipeline | None:
    """The pipeline with its first such filter moved; ``None`` where none can be, or none drops anything."""
    taken = elements_per_batch(pipeline)
    for op in pipeline.ops:
        if op.op.startswith(_FILTERS):
            passed = filter_passes(op, pipeline)
            if passed:
                kept = taken[op.name] / max(taken[passed[0].name], 1e-9)
                return _filter_moved(pipeline, op, passed, kept) if kept < 1 else None
    return None


def filter_passes(op: PipelineOp, pipeline: Pipeline) -> list[PipelineOp]:
    """Maps right before a filter that it does not need, the nearest first."""
    by_name = {one.name: one for one in pipeline.ops}
    readers = consumers(pipeline)
    components, found, here = op.reads, list[PipelineOp](), op
    while components is not None:
        names = inputs_of(here, pipeline)
        before = by_name.get(names[0]) if len(names) == 1 else None
        if before is None or not before.op.startswith(("MapDataset", "ParallelMapDataset")):
            break
        if len(readers[before.name]) != 1 or any(component not in before.passes for component in components):
            break
        components = tuple(before.passes[component] for component in components)
        found.append(before)
        here = before
    return found


def _filter_moved(pipeline: Pipeline, op: PipelineOp, passed: list[PipelineOp], kept: float) -> Pipeline:
    names = {one.name for one in passed}
    source = inputs_of(passed[-1], pipeline)
    taken = elements_per_batch(pipeline)

    def edited(one: PipelineOp) -> PipelineOp:
        inputs = inputs_of(one, pipeline)
        update: dict[str, object] = {"inputs": inputs, "elements_per_batch": taken[one.name]}
        if one.name == op.name:
            update["inputs"] = source
        elif one.name == passed[-1].name:
            update["inputs"] = (op.name,)
        elif op.name in inputs:
            update["inputs"] = tuple(passed[0].name if name == op.name else name for name in inputs)
        if one.name in names:
            update["elements_per_batch"] = taken[one.name] * kept
            update["cost_s"] = None if one.cost_s is None else one.cost_s * kept
            update["cpu_s"] = None if one.cpu_s is None else one.cpu_s * kept
        return one.model_copy(update=update)

    tokens = {token for one in passed for token in one.python_functions}
    functions = tuple(
        one.model_copy(update={"calls_per_batch": one.calls_per_batch * kept})
        if one.token in tokens and one.calls_per_batch is not None
        else one
        for one in pipeline.python_functions
    )
    ops = [edited(one) for one in pipeline.ops]
    moved = next(one for one in ops if one.name == op.name)
    ops.remove(moved)
    first = min(number for number, one in enumerate(ops) if one.name in names)
    ops.insert(first, moved)
    return pipeline.model_copy(update={"ops": tuple(ops), "python_functions": functions})


FILTER_FIRST: Final = Spec(
    name="filter-first",
    words="the filter before the work that it does not need",
    does="a filter goes before the maps whose results it does not look at",
    mends=("late-filter",),
    candidates=filter_moves,
    rank=9,
    rewrite="xttsbench.fixes.before_maps.rewrite:filter_first",
    hazards="xttsbench.fixes.before_maps.rewrite:filter_hazards",
    patch="xttsbench.fixes.before_maps.patch:filter_first",
)


def shuffle_moves(setting: Setting) -> Iterator[Candidate]:
    """The first shuffle right behind a map."""
    pipeline = setting.pipeline
    for op in pipeline.ops:
        if passed := shuffle_passes(op, pipeline):
            names = (op.name, *(one.name for one in passed))
            yield Candidate("shuffle-first", shuffle_moved, ops=names)
            return


def shuffle_passes(op: PipelineOp, pipeline: Pipeline) -> list[PipelineOp]:
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


def shuffle_moved(pipeline: Pipeline) -> Pipeline:
    """The record with its first such shuffle moved; itself where there is none."""
    op = next((one for one in pipeline.ops if shuffle_passes(one, pipeline)), None)
    if op is None:
        return pipeline
    passed = shuffle_passes(op, pipeline)
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
    candidates=shuffle_moves,
    rewrite="xttsbench.fixes.before_maps.rewrite:shuffle_first",
    hazards="xttsbench.fixes.before_maps.rewrite:shuffle_hazards",
    patch="xttsbench.fixes.before_maps.patch:shuffle_first",
)
