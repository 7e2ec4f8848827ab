"""Batches of rows of arrays gathered by index, in the user's source.

The arrays get a name in a statement in front of the one that cut them into slices, with the check and conversion that
``from_tensor_slices`` makes; the pipeline begins with their indices, and a map behind the batch gathers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import libcst as cst

from xttsbench.fixes.gather import rows_to_batches
from xttsbench.records.pipeline import PipelineOp
from xttsbench.targets.source.calls import Calls, attempt, place
from xttsbench.targets.source.edits import Change, Found, NoEditError, Replacement
from xttsbench.targets.source.flow import Flow
from xttsbench.targets.source.link_edits import behind, function_around, spelled
from xttsbench.targets.source.module import Module
from xttsbench.targets.source.tree import Link

_NAMES: Final = ("arrays", "whole_arrays", "gathered_arrays")
_HAND_ON: Final = frozenset({"shuffle", "repeat", "take", "skip", "shard", "prefetch", "cache", "with_options"})
"""Methods that do the same to indices as to rows."""
_ONCE: Final = (cst.BaseSmallStatement, cst.For, cst.With)
"""Statements whose expressions run once, so that a part of one can run before it."""
_MAYBE: Final = (cst.Lambda, cst.IfExp, cst.BooleanOperation, cst.BaseComp)
"""Expressions of which a part may not run, or run several times."""


def gather(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """Every batch of rows of arrays, gathered."""
    names, found = iter(_NAMES), []
    for way in rows_to_batches(calls.pipeline):
        by_hand = (
            f"write Dataset.range(len(arrays)) in place of the slices of {place(way[0])}, and behind the batch of "
            f"{place(way[-1])} .map(lambda rows: tf.gather(array, rows)) for each array"
        )
        found.append(attempt(partial(_gathered, calls, way, names), by_hand))
    return found or [Found(why_not="no .batch(...) puts slices of arrays in memory together")]


def _gathered(calls: Calls, way: Sequence[PipelineOp], names: Iterator[str]) -> Sequence[Change]:
    module, (sliced, batched) = calls.links((way[0], way[-1]))
    if sliced.name != "from_tensor_slices" or not isinstance(sliced.node.func, cst.Attribute):
        raise NoEditError(f"line {sliced.line} does not call from_tensor_slices(...)")
    statement = module.statement(sliced.node)
    inside = itertools.takewhile(lambda one: one is not statement, module.ancestors(sliced.node))
    start, once = module.start(statement), not any(isinstance(one, _MAYBE) for one in inside)
    if not (once and isinstance(statement, _ONCE) and module.begins_line(start)):
        raise NoEditError(f"no statement can be written in front of line {module.line(statement)} alone")
    _follow(module, sliced, batched)
    name = next((one for one in names if one not in module.text), None)
    if name is None:
        raise NoEditError(f"the names {', '.join(_NAMES)} are all in use in {module.file}")
    func, nest = sliced.node.func, spelled(module, sliced.node, "nest")
    given = module.text[module.end(func) : sliced.end]  # from_tensors takes the same arguments
    made = f"{name} = {module.code(func.value)}.from_tensors{given}.get_single_element()"
    gathers = f"{nest}.map_structure(lambda array: {spelled(module, batched.node, 'gather')}(array, rows), {name})"
    counted = f"range(len({nest}.flatten({name})[0]))"
    steps = [
        Replacement(start, start, f"{made}{module.line_end}{module.indent(start)}"),
        Replacement(module.start(func.attr), sliced.end, counted),
        behind(module, batched, f".map(lambda rows: {gathers})"),
    ]
    return [Change(module, batched.line, (sliced.start, batched.end), tuple(steps))]


def _follow(module: Module, sliced: Link, batched: Link) -> None:
    """Refuse unless all that reads the slices leads to the batch, through methods that hand on alone.

    Raises:
        NoEditError: with the line that reads them otherwise.
    """
    within = function_around(module, sliced.node)
    if function_around(module, batched.node) is not within:
        raise NoEditError(f"the slices of line {sliced.line} and .batch(...) are in different functions")
    readers = Flow(module, within).readers
    waiting, seen = list[cst.CSTNode]([sliced.node]), set[cst.CSTNode]()
    while waiting:
        node = waiting.pop()
        done = node in seen or node is batched.node
        seen.add(node)
        if done:
            continue
        parent, call = module.parent(node), module.called_with(node)
        link = module.link(call) if isinstance(parent, cst.Attribute) else None
        targets = [one.target for one in parent.targets] if isinstance(parent, cst.Assign) else []
        if link is not None and (link is batched or link.name in _HAND_ON):
            waiting.append(link.node)
        elif targets and all(isinstance(one, cst.Name) for one in targets):
            waiting += [use for one in targets for use in readers.get(one, ())]
        else:
            raise NoEditError(f"line {module.line(node)} uses the slices otherwise")
    if batched.node not in seen:
        raise NoEditError(f"the slices of line {sliced.line} are not seen to come to the batch of line {batched.line}")
