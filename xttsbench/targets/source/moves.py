"""Ops of a pipeline made behind others by an edit of the calls that made them: rearranged in a chain, or sunk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Calls, methods
from xttsbench.targets.source.edits import Change, NoEditError, Replacement
from xttsbench.targets.source.links import reordered
from xttsbench.targets.source.module import Link, Module
from xttsbench.targets.source.sinking import LISTS_FILES, Sinking


def rearranged(
    calls: Calls,
    ops: Sequence[PipelineOp],
    moved: Collection[str],
    text: str = "",
    extra: Callable[[Module, Sequence[Link]], Sequence[Replacement]] = lambda module, links: (),
) -> Change:
    """Some ops made behind the last one, with a link in between.

    Calls that follow one another in the text change places; else those that are moved are written behind the last one.

    Args:
        calls: of the pipeline.
        ops: that follow one another in the pipeline, sources first.
        moved: names of those that are moved.
        text: of the new link, e.g. ``.cache()``, which comes right behind the last one; empty for none.
        extra: from the calls to steps within the last one.

    Raises:
        NoEditError: it cannot be done safely.
    """
    try:
        module, links = calls.links(ops, {one.name for one in ops} if text else ())
        if len(set(links)) < len(links):
            raise NoEditError("a call makes several ops that would change places with one another")
        if any(link.name == LISTS_FILES for link in links):
            raise NoEditError("a list of files is shuffled by the call that makes it")
        return reordered(module, links, [one.name in moved for one in ops], text, extra(module, links))
    except NoEditError:
        module, links = calls.in_one_function(ops)
    which = [link for one, link in zip(ops, links, strict=True) if one.name in moved]
    others = [link for one, link in zip(ops, links, strict=True) if one.name not in moved]
    own = {link for one, link in zip(ops, links, strict=True) if link.name in methods(one)}
    if set(which) & set(others) or len(own.intersection(which)) < sum(link in own for link in which):
        raise NoEditError("a call makes several ops that would change places with one another")
    sinking = Sinking(module, list(dict.fromkeys(links)), list(dict.fromkeys(which)), own, same_elements=bool(text))
    return sinking.change(text, extra(module, links))
