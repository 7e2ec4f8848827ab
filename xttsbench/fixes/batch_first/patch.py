"""A batch before the maps in front of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Calls, attempt, place, rearranged
from xttsbench.targets.source.edits import Change, Found
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
