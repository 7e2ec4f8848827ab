"""A batch before the maps in front of it, and an unbatch and its batch as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import libcst as cst

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Calls, attempt, kind, place, rearranged
from xttsbench.targets.source.edits import Change, Found, NoEditError, Replacement, argument, removed, reordered
from xttsbench.targets.source.module import Link, Module
from xttsbench.throughput.threads import consumers, inputs_of


def batch_first(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The first batch behind maps, before those maps, whose functions then work on whole batches."""
    found = Found(why_not="no .batch(...) comes directly behind a .map(...)")
    for one in calls.of_kind("batch"):
        maps = maps_before(calls, one)
        if maps and not found.changes:
            by_hand = (
                f"write the .batch(...) of {place(one)} before the .map(...) of {place(maps[0])}, with a function that "
                "works on whole batches"
            )
            found = attempt(partial(_before_maps, calls, one, maps), by_hand)
    return [found]


def _before_maps(calls: Calls, op: PipelineOp, maps: Sequence[PipelineOp]) -> list[Change]:
    return [rearranged(calls, [*maps, op], {one.name for one in maps})]


def maps_before(calls: Calls, op: PipelineOp) -> list[PipelineOp]:
    """The maps directly above an op that nothing else reads, sources first."""
    by_name, readers = {one.name: one for one in calls.pipeline.ops}, consumers(calls.pipeline)
    found, names = list[PipelineOp](), inputs_of(op, calls.pipeline)
    while len(names) == 1 and (before := by_name.get(names[0])) is not None:
        names = inputs_of(before, calls.pipeline)
        if not before.op.startswith(("MapDataset", "ParallelMapDataset")) or not names or len(readers[before.name]) > 1:
            break
        found.insert(0, before)
    return found


def rebatch(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The first ``.unbatch().batch(n)`` as ``.rebatch(n)``."""
    found = Found(why_not="no .batch(...) comes directly behind an .unbatch()")
    by_name = {one.name: one for one in calls.pipeline.ops}
    for one in calls.of_kind("batch"):
        apart = by_name.get(one.inputs[0]) if len(one.inputs) == 1 else None
        if apart is not None and kind(apart) == "unbatch" and not found.changes:
            by_hand = f"write .rebatch(...) in place of .unbatch() and .batch(...) at {place(one)}"
            found = attempt(partial(_as_rebatch, calls, apart, one), by_hand)
    return [found]


def _as_rebatch(calls: Calls, *ops: PipelineOp) -> list[Change]:
    module, (unbatch, batch) = calls.links(ops)
    reordered(module, (unbatch, batch), (True, False))  # refuses what does not follow, or has other readers
    first, renamed = removed(module, unbatch), as_rebatch(module, batch)
    return [Change(module, batch.line, (min(unbatch.start, batch.start), batch.end), (*first.steps, renamed))]


def as_rebatch(module: Module, batch: Link) -> Replacement:
    """The step that makes ``.batch(...)`` a ``.rebatch(...)``.

    Raises:
        NoEditError: it has an argument that this does not take.
    """
    for name, position in (("num_parallel_calls", 2), ("deterministic", 3)):
        if argument(batch, name, position) is not None:
            raise NoEditError(f".rebatch(...) takes no {name}")
    if not isinstance(batch.node.func, cst.Attribute):
        raise NoEditError("batch(...) is not called on a dataset")
    return Replacement(*module.span(batch.node.func.attr), "rebatch")
