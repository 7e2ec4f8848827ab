"""A batch before the maps in front of it, and an unbatch and its batch as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import libcst as cst

from xttsbench.fixes.before_maps import passed_maps
from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Calls, attempt, kind, place, rearranged
from xttsbench.targets.source.edits import Change, Found, NoEditError, Replacement, argument, removed, reordered
from xttsbench.targets.source.module import Link, Module

_Extra = Callable[[Module, Sequence[Link]], Sequence[Replacement]]


def batch_first(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The first batch behind maps, before those maps, whose functions then work on whole batches."""
    found = Found(why_not="no .batch(...) comes directly behind a .map(...)")
    for one in calls.of_kind("batch"):
        maps = maps_before(calls, one)
        if maps and not found.changes:
            found = before_maps(calls, one, maps, ", with a function that works on whole batches")
    return [found]


def before_maps(
    calls: Calls, op: PipelineOp, maps: Sequence[PipelineOp], with_what: str = "", extra: _Extra = lambda *_: ()
) -> Found:
    """The call of an op written before those of the maps in front of it, which are given sources first.

    What to write by hand ends in ``with_what``; ``extra`` makes steps within the op's call, from all of the calls.
    """
    by_hand = f"write the .{kind(op)}(...) of {place(op)} before the .map(...) of {place(maps[0])}{with_what}"
    return attempt(lambda: [rearranged(calls, [*maps, op], {one.name for one in maps}, extra=extra)], by_hand)


def maps_before(calls: Calls, op: PipelineOp) -> list[PipelineOp]:
    """The maps directly above an op that nothing else reads, sources first."""
    return passed_maps(op, calls.pipeline)[0][::-1]


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
