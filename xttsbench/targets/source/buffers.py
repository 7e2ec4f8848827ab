"""Links that keep elements: a prefetch put behind the pipeline, resized or taken out, and a cache behind one op."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Calls, attempt, kind, place
from xttsbench.targets.source.edits import Change, Found, NoEditError, NothingToDoError
from xttsbench.targets.source.links import appended, autotune_or, change, moved_last, removed, with_argument
from xttsbench.throughput.orderings import Chain, chain_before
from xttsbench.throughput.threads import consumers, inputs_of


def prefetch(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """A prefetch of so many elements behind the last op; ``None`` is AUTOTUNE."""
    by_hand = f"write .prefetch({'tf.data.AUTOTUNE' if number is None else number})"
    if not calls.pipeline.ops:
        return [Found(why_not=f"the pipeline's ops are not known; {by_hand} at its end")]
    last = calls.pipeline.ops[-1]

    def edit() -> Sequence[Change]:
        module, link = calls.maker(last)
        text = f".prefetch({autotune_or(module, link.node, number)})"
        return [appended(module, link, text, at_the_end=True)]

    return [attempt(edit, f"{by_hand} behind what is made at {place(last)}")]


def prefetch_buffer(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The last prefetch given so many elements."""
    by_hand = f"write .prefetch({'tf.data.AUTOTUNE' if number is None else number})"
    prefetches = calls.of_kind("prefetch")
    if not prefetches:
        return [Found(why_not=f"the pipeline has no .prefetch(...); {by_hand} at its end")]
    last = prefetches[-1]

    def edit() -> Sequence[Change]:
        module, link = calls.call(last)
        step = with_argument(module, link, "buffer_size", 0, autotune_or(module, link.node, number))
        if step is None:
            raise NothingToDoError(f".prefetch(...) of {place(last)} says so already")
        return [change(module, link, step)]

    return [attempt(edit, f"{by_hand} at {place(last)}")]


def drop_prefetch(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Every prefetch but the last taken out."""
    found = list(calls.each(calls.of_kind("prefetch")[:-1], removed, "take .prefetch(...) out"))
    return found or [Found(why_not="the pipeline has no .prefetch(...) but the last")]


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
        first = _before(calls, chain, text) if chain.orderings else appended(*calls.maker(op), text)
        above = _redundant(calls, op, chain)
        return [first, *(removed(*calls.call(one, {other.name for other in above})) for one in above)]

    by_hand = f"write {text} behind what is made at {place(op)}"
    if chain.orderings:
        moved = " and ".join(f"{kind(ops[one])} at {place(ops[one])}" for one in chain.orderings)
        by_hand += f", and what is done by {moved} behind that"
    return attempt(edit, by_hand)


def _before(calls: Calls, chain: Chain, text: str) -> Change:
    """A link behind the last op of a chain, and the chain's shuffles and repeats behind that."""
    ops = [one for one in calls.pipeline.ops if one.name in (*chain.orderings, *chain.between)]
    module, links = calls.links(ops, {one.name for one in ops})
    if len(set(links)) < len(links):
        raise NoEditError("a call makes several ops that would change places with one another")
    moved = {link for one, link in zip(ops, links, strict=True) if one.name in chain.orderings}
    return moved_last(module, links, moved, text)


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
