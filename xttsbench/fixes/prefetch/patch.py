"""A prefetch put behind the pipeline, given another size, or taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xttsbench.targets.source.calls import Calls, attempt, place
from xttsbench.targets.source.edits import Change, Found, NothingToDoError
from xttsbench.targets.source.link_edits import appended, autotune_or, change, with_argument


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
