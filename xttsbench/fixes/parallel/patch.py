"""Calls in parallel: arguments of ``map``, ``interleave`` and ``batch``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xttsbench.targets.source.calls import Calls, place
from xttsbench.targets.source.conditions import condition
from xttsbench.targets.source.edits import Change, Found, NothingToDoError
from xttsbench.targets.source.link_edits import argument, autotune_or, change, with_argument
from xttsbench.targets.source.module import Module, is_name
from xttsbench.targets.source.tree import Link

_CALLS_AT: Final = {"map": 1, "interleave": 3, "batch": 2}
"""Method -> position of ``num_parallel_calls``; ``deterministic`` comes next."""
_FLAT_MAP: Final = (
    ".flat_map(...) has no argument for reading ahead in order; apply the saved plan, or write "
    ".interleave(..., num_parallel_calls=tf.data.AUTOTUNE, deterministic=True), which mixes the files, in its place"
)


def parallel_map(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Every sequential map in parallel."""
    return _made_parallel(calls, "map", number) or [Found(why_not="the pipeline has no sequential .map(...)")]


def parallel_interleave(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Every sequential interleave in parallel."""
    found = _made_parallel(calls, "interleave", number)
    if not found:
        flat = [one for one in calls.pipeline.ops if one.op == "FlatMapDataset"]
        found = [Found(why_not=f"{_FLAT_MAP} at {place(one)}") for one in flat]
    return found or [Found(why_not="the pipeline has no sequential .interleave(...)")]


def _made_parallel(calls: Calls, method: str, count: int | None) -> list[Found]:
    """Every sequential op of a kind made parallel."""
    ops = [one for one in calls.of_kind(method) if not one.op.startswith("Parallel")]

    def edit(module: Module, link: Link) -> Change:
        given = {"num_parallel_calls": autotune_or(module, link.node, count)}
        if calls.settings:
            given["num_parallel_calls"] += f" if {condition(calls.settings, module, link.node)} else None"
        if _order_lost(calls, link):
            given["deterministic"] = "True"
        return _given(module, link, given)

    value = "tf.data.AUTOTUNE" if count is None else count
    return list(calls.each(ops, edit, f"write num_parallel_calls={value} as an argument of .{method}(...)"))


def _given(module: Module, link: Link, values: dict[str, str]) -> Change:
    """A call with these arguments."""
    at = {"num_parallel_calls": _CALLS_AT[link.name], "deterministic": _CALLS_AT[link.name] + 1}
    made = [with_argument(module, link, name, at[name], value) for name, value in values.items()]
    steps = [step for step in made if step is not None]
    if not steps:
        raise NothingToDoError(f".{link.name}(...) of {module.file}:{link.line} says so already")
    return change(module, link, *steps)


def _order_lost(calls: Calls, link: Link) -> bool:
    """Whether a sequential call that becomes parallel would give up the order: it, or the options, ask for that."""
    given = argument(link, "deterministic", _CALLS_AT[link.name] + 1)
    if given is None or is_name(given.value, "None"):
        return calls.pipeline.deterministic is False
    return not is_name(given.value, "True")
