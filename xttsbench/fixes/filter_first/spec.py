"""``filter-first``: a filter moved before the work that it does not need.

A filter may go before a map where all that it looks at is handed through by the map untouched; the map then runs only
for the elements that are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.spec import Candidate, Setting, Spec
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import consumers, elements_per_batch, inputs_of

_FILTERS: Final = ("FilterDataset", "ParallelFilterDataset")


def candidates(setting: Setting) -> Iterator[Candidate]:
    """The first filter that can be moved and drops something."""
    pipeline = setting.pipeline
    if moved_first(pipeline) is not None:
        moved = next(op for op in pipeline.ops if op.op.startswith(_FILTERS) and passed_maps(op, pipeline))
        yield Candidate("filter-first", lambda given: moved_first(given) or given, ops=(moved.name,))


def moved_first(pipeline: Pipeline) -> Pipeline | None:
    """The pipeline with its first such filter moved; ``None`` where none can be, or none drops anything."""
    taken = elements_per_batch(pipeline)
    for op in pipeline.ops:
        if op.op.startswith(_FILTERS):
            passed = passed_maps(op, pipeline)
            if passed:
                kept = taken[op.name] / max(taken[passed[0].name], 1e-9)
                return _moved(pipeline, op, passed, kept) if kept < 1 else None
    return None


def passed_maps(op: PipelineOp, pipeline: Pipeline) -> list[PipelineOp]:
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


def _moved(pipeline: Pipeline, op: PipelineOp, passed: list[PipelineOp], kept: float) -> Pipeline:
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
    candidates=candidates,
    rank=9,
    rewrite="xttsbench.fixes.filter_first.rewrite:filter_first",
    hazards="xttsbench.fixes.filter_first.rewrite:hazards",
    patch="xttsbench.fixes.filter_first.patch:filter_first",
)
