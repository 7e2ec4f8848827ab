"""Links that keep elements: a prefetch put behind the pipeline, resized or taken out, and a cache behind one op."""

from __future__ import annotations

from collections.abc import Iterator

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.patch.arguments import with_argument
from xttsbench.targets.patch.calls import Sources, kind, one_module, place
from xttsbench.targets.patch.chains import appended, moved_last, removed
from xttsbench.targets.patch.draft import Change
from xttsbench.targets.patch.found import Found
from xttsbench.targets.patch.module import Link, Module
from xttsbench.targets.patch.no_edit import NoEditError, NothingToDoError
from xttsbench.targets.patch.spelling import autotune_or
from xttsbench.throughput.orderings import Chain, chain_before
from xttsbench.throughput.threads import consumers, inputs_of


def prefetched(sources: Sources, count: int | None) -> Found:
    """A prefetch of ``count`` elements behind the last op; ``None`` is AUTOTUNE."""
    by_hand = f".prefetch({'tf.data.AUTOTUNE' if count is None else count})"
    if not sources.pipeline.ops:
        return Found(why_not=f"the pipeline's ops are not known; write {by_hand} at its end")
    last = sources.pipeline.ops[-1]
    try:
        module, link = sources.maker(last)
        text = f".prefetch({autotune_or(module, link.node, count)})"
        return Found(((module, appended(module, link, text, at_the_end=True)),))
    except NoEditError as error:
        return Found(why_not=f"{error}; write {by_hand} behind what is made at {place(last)}")


def buffered(sources: Sources, count: int | None) -> Found:
    """The last prefetch given ``count`` elements."""
    prefetches = _of_kind(sources, "prefetch")
    value = "tf.data.AUTOTUNE" if count is None else str(count)
    if not prefetches:
        return Found(why_not=f"the pipeline has no .prefetch(...); write .prefetch({value}) at its end")
    last = prefetches[-1]
    try:
        module, link = sources.call(last, (last.name,))
        step = with_argument(module, link, "buffer_size", 0, autotune_or(module, link.node, count))
        if step is None:
            raise NothingToDoError(f".prefetch(...) of {place(last)} says so already")
        return Found(((module, Change(link.start, link.end, link.line, (step,))),))
    except NothingToDoError as error:
        return Found(why_not=str(error))
    except NoEditError as error:
        return Found(why_not=f"{error}; write .prefetch({value}) at {place(last)}")


def without_inner_prefetches(sources: Sources) -> Iterator[Found]:
    """Every prefetch but the last taken out."""
    inner = _of_kind(sources, "prefetch")[:-1]
    if not inner:
        yield Found(why_not="the pipeline has no .prefetch(...) but the last")
    done: set[Link] = set()
    for op in inner:
        try:
            module, link = sources.call(op, {one.name for one in inner})
            if link not in done:
                done.add(link)
                yield Found(((module, removed(module, link)),))
        except NoEditError as error:
            yield Found(why_not=f"{error}; take .prefetch(...) out at {place(op)}")


def cached(sources: Sources, name: str, file: str | None) -> Found:
    """A cache behind the op of that node name, in memory or in ``file``; caches above it, which it replaces, go.

    Shuffles and repeats before a map come behind the cache, as the fix has them.
    """
    ops = {one.name: one for one in sources.pipeline.ops}
    op = ops.get(name)
    text = f".cache({_quoted(file)})" if file is not None else ".cache()"
    if op is None:
        return Found(why_not=f"the pipeline has no op {name}; write {text} behind the op that is to be kept")
    chain = chain_before(op, sources.pipeline)
    moved = [ops[one] for one in chain.orderings]
    try:
        changes = [_before(sources, chain, text) if moved else _behind(sources, op, text)]
        above = _redundant(sources, op, chain)
        for cache in above:
            holder, call = sources.call(cache, {one.name for one in above})
            changes.append((holder, removed(holder, call)))
        return Found(tuple(changes))
    except NoEditError as error:
        later = f", and what is done by {' and '.join(f'{kind(one)} at {place(one)}' for one in moved)} behind that"
        return Found(why_not=f"{error}; write {text} behind what is made at {place(op)}{later if moved else ''}")


def _behind(sources: Sources, op: PipelineOp, text: str) -> tuple[Module, Change]:
    module, link = sources.maker(op)
    return module, appended(module, link, text)


def _before(sources: Sources, chain: Chain, text: str) -> tuple[Module, Change]:
    """A link behind the last op of a chain, and the chain's shuffles and repeats behind that."""
    names = {*chain.orderings, *chain.between}
    calls = {one.name: sources.call(one, names) for one in sources.pipeline.ops if one.name in names}
    module, links = one_module(list(calls.values())), [link for _, link in calls.values()]
    if len(set(links)) < len(links):
        raise NoEditError("a call makes several ops that would change places with one another")
    return module, moved_last(module, links, {calls[name][1] for name in chain.orderings}, text)


def _of_kind(sources: Sources, wanted: str) -> list[PipelineOp]:
    return [op for op in sources.pipeline.ops if kind(op) == wanted]


def _redundant(sources: Sources, op: PipelineOp, chain: Chain) -> list[PipelineOp]:
    """Caches in memory above an op that serve nothing once what comes behind it is kept: those that the fix takes out.

    What is cached on disk stays, and before a repeat that is not moved a cache serves the passes after the first.
    """
    by_name = {one.name: one for one in sources.pipeline.ops}
    readers = consumers(sources.pipeline)
    found: list[PipelineOp] = []
    here, names = op, (chain.source,) if chain.orderings else inputs_of(op, sources.pipeline)
    while kind(here) != "repeat" and len(names) == 1:
        above = by_name.get(names[0])
        if above is None or len(readers[above.name]) != 1:
            break
        here, names = above, inputs_of(above, sources.pipeline)
        if kind(here) == "cache" and not here.filename:
            found.append(here)
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
