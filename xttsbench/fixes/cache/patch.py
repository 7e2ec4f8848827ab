"""A cache in memory put behind one op."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from xttsbench.fixes.cache import useless
from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Calls, attempt, kind, place, rearranged
from xttsbench.targets.source.conditions import condition
from xttsbench.targets.source.edits import Change, Found, NoCallError, NoEditError
from xttsbench.targets.source.link_edits import appended, removed
from xttsbench.throughput.threads import chain_before, inputs_of

_KEPT: Final = ".cache()"


def cache(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """A cache in memory behind the op of that node name."""
    return [_cached(calls, op)]


def _while_settings_last(calls: Calls, op: PipelineOp) -> str:
    """The link behind an op, which falls away where a setting is not as the code of the pipeline was read."""
    if not calls.settings:
        return _KEPT
    module, link = calls.maker(op)
    asked = condition(calls.settings, module, link.node)
    return f".apply(lambda elements: elements{_KEPT} if {asked} else elements)"


def _by_another_call(calls: Calls, op: PipelineOp) -> bool:
    """Whether the call of an op does not stand in the user's line: a function called there makes it."""
    try:
        calls.call(op)
    except NoCallError:
        return True
    except NoEditError:  # the call is there, and cannot be edited
        pass
    return False


def _cached(calls: Calls, name: str) -> Found:
    """A cache behind an op; caches above it, which it replaces, go.

    Shuffles and repeats before a map come behind the cache, as the fix has them.
    """
    ops = {one.name: one for one in calls.pipeline.ops}
    if name not in ops:
        return Found(why_not=f"the pipeline has no op {name}; write {_KEPT} behind the op that is to be kept")
    op = ops[name]
    chain = chain_before(op, calls.pipeline)
    # Those that are moved behind the cache do not read what comes before it any more.
    inputs = {one.name: inputs_of(one, calls.pipeline) for one in calls.pipeline.ops if one.name not in chain.orderings}
    inputs[name] = (chain.source,) if chain.orderings else inputs[name]

    def edit() -> Sequence[Change]:
        text = _while_settings_last(calls, op)
        between = [one for one in calls.pipeline.ops if one.name in (*chain.orderings, *chain.between)]
        if chain.orderings:
            first = rearranged(calls, between, chain.orderings, text)
        else:
            first = appended(*calls.maker(op), text)
        in_memory = [one.name for one in calls.pipeline.ops if kind(one) == "cache" and not one.filename]
        above = useless(name, {one.name: one.op for one in calls.pipeline.ops}, inputs, in_memory)
        return [first, *(removed(*calls.call(ops[one], set(above))) for one in above)]

    by_hand = f"write {_KEPT} behind what is made at {place(op)}"
    later = [one for one in calls.pipeline.ops if place(one) == place(op)]
    if later[-1] is not op and _by_another_call(calls, op):  # ops stand in order from the source to the end
        beyond = ", ".join(dict.fromkeys(kind(one) for one in later[later.index(op) + 1 :]))
        by_hand = f"that line makes more behind it ({beyond}), so no {_KEPT} can stand there; apply the saved plan"
    elif chain.orderings:
        moved = " and ".join(f"{kind(ops[one])} at {place(ops[one])}" for one in chain.orderings)
        by_hand += f", and what is done by {moved} behind that"
    return attempt(edit, by_hand)
