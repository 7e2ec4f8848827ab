"""A cache put behind one op, in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Calls, attempt, kind, place, rearranged
from xttsbench.targets.source.edits import Change, Found, appended, removed
from xttsbench.throughput.threads import Chain, chain_before, consumers, inputs_of


def cache(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """A cache in memory behind the op of that node name."""
    return [_cached(calls, op, ".cache()")]


def cache_file(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """A cache on disk behind the op of that node name."""
    escaped = calls.cache_file(op).replace("\\", "\\\\").replace('"', '\\"')
    return [_cached(calls, op, f'.cache("{escaped}")')]


def _cached(calls: Calls, name: str, text: str) -> Found:
    """A cache behind an op; caches above it, which it replaces, go.

    Shuffles and repeats before a map come behind the cache, as the fix has them.
    """
    ops = {one.name: one for one in calls.pipeline.ops}
    if name not in ops:
        return Found(why_not=f"the pipeline has no op {name}; write {text} behind the op that is to be kept")
    op = ops[name]
    chain = chain_before(op, calls.pipeline)

    def edit() -> Sequence[Change]:
        between = [one for one in calls.pipeline.ops if one.name in (*chain.orderings, *chain.between)]
        if chain.orderings:
            first = rearranged(calls, between, chain.orderings, text)
        else:
            first = appended(*calls.maker(op), text)
        above = _redundant(calls, op, chain)
        return [first, *(removed(*calls.call(one, {other.name for other in above})) for one in above)]

    by_hand = f"write {text} behind what is made at {place(op)}"
    if chain.orderings:
        moved = " and ".join(f"{kind(ops[one])} at {place(ops[one])}" for one in chain.orderings)
        by_hand += f", and what is done by {moved} behind that"
    return attempt(edit, by_hand)


def _redundant(calls: Calls, op: PipelineOp, chain: Chain) -> list[PipelineOp]:
    """Caches in memory above an op that serve nothing once what comes behind it is kept: those that the fix takes out.

    What is cached on disk stays, and before a repeat that is not moved a cache serves the passes after the first.
    """
    by_name = {one.name: one for one in calls.pipeline.ops}
    readers = consumers(calls.pipeline)
    found: list[PipelineOp] = []
    here, names = op, (chain.source,) if chain.orderings else inputs_of(op, calls.pipeline)
    while kind(here) != "repeat" and len(names) == 1:
        above = by_name.get(names[0])
        if above is None or len(readers[above.name]) != 1:
            break
        here, names = above, inputs_of(above, calls.pipeline)
        if kind(here) == "cache" and not here.filename:
            found.append(here)
    return found
