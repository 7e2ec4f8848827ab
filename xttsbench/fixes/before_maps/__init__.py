"""A filter put before the maps in front of it: ``filter-first``.

A filter may go before a map where all that it looks at is handed through by the map untouched; the map then runs only
for the elements that are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xttsbench.fixes.spec import Candidate, Setting, Spec, each, linked
from xttsbench.records.pipeline import Pipeline, PipelineOp
from xttsbench.throughput.threads import consumers, elements_per_batch, inputs_of

_FILTERS: Final = ("FilterDataset", "ParallelFilterDataset")


def filter_moves(setting: Setting) -> Iterator[Candidate]:
    """The first filter that can be moved and drops something."""
    found = first_movable(setting.pipeline, _FILTERS)
    if found is not None and _kept_share(setting.pipeline, *found) < 1:
        yield Candidate("filter-first", filter_moved, ops=(found[0].name,))


def first_movable(pipeline: Pipeline, kinds: str | tuple[str, ...]) -> tuple[PipelineOp, list[PipelineOp]] | None:
    """The first op of a kind that can go before maps, and these, the nearest first; ``None`` where there is none."""
    found = ((op, passed_maps(op, pipeline)[0]) for op in pipeline.ops if op.op.startswith(kinds))
    return next((one for one in found if one[1]), None)


def passed_maps(op: PipelineOp, pipeline: Pipeline) -> tuple[list[PipelineOp], dict[int, int]]:
    """Maps right before an op that nothing else reads, the nearest first; of a filter those that it does not need.

    Also where a filter then finds what it looks at: number of its component -> of theirs.
    """
    by_name, readers = {one.name: one for one in pipeline.ops}, consumers(pipeline)
    read = op.reads if op.op.startswith(_FILTERS) else ()
    found, components = list[PipelineOp](), {number: number for number in read or ()}
    names = inputs_of(op, pipeline)
    while read is not None and len(names) == 1 and (before := by_name.get(names[0])) is not None:
        names = inputs_of(before, pipeline)
        is_map = before.op.startswith(("MapDataset", "ParallelMapDataset"))
        hands_through = before.passes.keys() >= set(components.values())
        if not is_map or not names or len(readers[before.name]) != 1 or not hands_through:
            break
        components = {number: before.passes[at] for number, at in components.items()}
        found.append(before)
    return found, components


def filter_moved(pipeline: Pipeline) -> Pipeline:
    """The record with its first such filter moved; itself where there is none, or it drops nothing."""
    found = first_movable(pipeline, _FILTERS)
    if found is None or (kept := _kept_share(pipeline, *found)) >= 1:
        return pipeline
    op, passed = found
    taken = elements_per_batch(pipeline)
    names, tokens = {one.name for one in passed}, {token for one in passed for token in one.python_functions}

    def times(value: float | None) -> float | None:
        return None if value is None else value * kept

    def of_op(one: PipelineOp) -> dict[str, float | None]:
        if one.name not in names:
            return {"elements_per_batch": taken[one.name]}
        return {"elements_per_batch": taken[one.name] * kept, "cost_s": times(one.cost_s), "cpu_s": times(one.cpu_s)}

    moved = _before(pipeline, op, passed)
    return each(
        moved, of_op, lambda one: {"calls_per_batch": times(one.calls_per_batch)} if one.token in tokens else {}
    )


def _kept_share(pipeline: Pipeline, op: PipelineOp, passed: list[PipelineOp]) -> float:
    taken = elements_per_batch(pipeline)
    return taken[op.name] / max(taken[passed[0].name], 1e-9)


def _before(pipeline: Pipeline, op: PipelineOp, passed: list[PipelineOp]) -> Pipeline:
    nearest, farthest = passed[0].name, passed[-1].name
    source = inputs_of(passed[-1], pipeline)

    def inputs(one: PipelineOp) -> tuple[str, ...]:
        if one.name in (op.name, farthest):
            return source if one.name == op.name else (op.name,)
        return tuple(nearest if name == op.name else name for name in one.inputs)

    given = linked(pipeline)
    ops = [one for one in each(given, lambda one: {"inputs": inputs(one)}).ops if one.name != op.name]
    moved = next(one for one in given.ops if one.name == op.name).model_copy(update={"inputs": source})
    ops.insert(next(number for number, one in enumerate(ops) if one.name == farthest), moved)
    return given.model_copy(update={"ops": tuple(ops)})


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
