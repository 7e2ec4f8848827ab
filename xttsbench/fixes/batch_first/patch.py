"""A batch before the maps in front of it, and an unbatch and its batch as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Calls, attempt, kind, place, rearranged
from xttsbench.targets.source.edits import Change, Found, NoEditError, Replacement, argument, removed, reordered
from xttsbench.targets.source.module import Link, Module


def batch_first(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The first batch behind maps, before those maps, whose functions then work on whole batches."""
    found = Found(why_not="no .batch(...) comes directly behind a .map(...)")
    for one in calls.of_kind("batch"):
        maps = maps_before(calls, one)

        def edit(ops: Sequence[PipelineOp] = (*maps, one)) -> Sequence[Change]:
            return [rearranged(calls, ops, {other.name for other in ops[:-1]})]

        if maps and not found.changes:
            by_hand = f"write the .batch(...) of {place(one)} before the .map(...) of {place(maps[0])}"
            found = attempt(edit, f"{by_hand}, with a function that works on whole batches")
    return [found]


def rebatch(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The first ``.unbatch().batch(n)`` as ``.rebatch(n)``."""
    found = Found(why_not="no .batch(...) comes directly behind an .unbatch()")
    by_name = {one.name: one for one in calls.pipeline.ops}
    for one in calls.of_kind("batch"):
        apart = by_name.get(one.inputs[0]) if len(one.inputs) == 1 else None

        def edit(ops: Sequence[PipelineOp | None] = (apart, one)) -> Sequence[Change]:
            module, links = calls.links([op for op in ops if op is not None])
            return [_as_rebatch(module, *links)]

        if apart is not None and kind(apart) == "unbatch" and not found.changes:
            found = attempt(edit, f"write .rebatch(...) in place of .unbatch() and .batch(...) at {place(one)}")
    return [found]


def _as_rebatch(module: Module, unbatch: Link, batch: Link) -> Change:
    reordered(module, (unbatch, batch), (True, False))  # refuses what does not follow, or has other readers
    for name, position in (("num_parallel_calls", 2), ("deterministic", 3)):
        if argument(batch, name, position) is not None:
            raise NoEditError(f".rebatch(...) takes no {name}")
    if not isinstance(batch.node.func, cst.Attribute):
        raise NoEditError("batch(...) is not called on a dataset")
    renamed = Replacement(*module.span(batch.node.func.attr), "rebatch")
    first = removed(module, unbatch)
    return Change(module, batch.line, (min(unbatch.start, batch.start), batch.end), (*first.steps, renamed))


def maps_before(calls: Calls, op: PipelineOp) -> list[PipelineOp]:
    """The maps directly above an op that nothing else reads, sources first."""
    by_name = {one.name: one for one in calls.pipeline.ops}
    found: list[PipelineOp] = []
    current = op
    while len(current.inputs) == 1:
        above = by_name.get(current.inputs[0])
        readers = [one for one in calls.pipeline.ops if above is not None and above.name in one.inputs]
        if above is None or kind(above) != "map" or len(readers) != 1:
            break
        found.insert(0, above)
        current = above
    return found
