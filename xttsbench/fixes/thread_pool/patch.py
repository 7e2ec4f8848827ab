"""A private pool of threads: an options object made before the statement, or a field of one that is applied there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import libcst as cst
from libcst.metadata import ClassScope

from xttsbench.targets.source.calls import Calls, attempt, place
from xttsbench.targets.source.edits import Change, Found, NoEditError, Replacement
from xttsbench.targets.source.link_edits import appended, change, spelled
from xttsbench.targets.source.module import Module
from xttsbench.targets.source.tree import Link

_FIELD = "threading.private_threadpool_size"
_SIMPLE = (cst.Assign, cst.AnnAssign, cst.Return, cst.Expr, cst.AugAssign, cst.For, cst.With)


def thread_pool(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """A pool of so many threads for the whole pipeline."""
    if number is None:
        return [Found(why_not="a pool of threads needs their number")]
    by_hand = f"write options.{_FIELD} = {number} and .with_options(options) at the pipeline's end"
    if not calls.pipeline.ops:
        return [Found(why_not=f"the pipeline's ops are not known; {by_hand}")]
    last, now = calls.pipeline.ops[-1], calls.pipeline.threadpool_size

    def edit() -> Sequence[Change]:
        if now and (resized := _resized(calls, number)) is not None:
            return [resized]
        module, link = calls.maker(last)
        if (applies := _applied(module, link)) is not None:  # the user's own options, set before they are applied
            return [change(module, applies[0], _before(module, applies[0], f"{applies[1]}.{_FIELD} = {number}"))]
        following = module.next_link(link)
        if now and (following is None or following.name != "with_options"):
            raise NoEditError(f"a pool of {now} is asked for where it could not be found")
        name = next(one for one in _free_names() if not re.search(rf"\b{one}\b", module.text))
        lines = f"{name} = {spelled(module, link.node, 'data.Options')}()", f"{name}.{_FIELD} = {number}"
        applied = appended(module, link, f".with_options({name})", at_the_end=True)
        return [change(module, link, _before(module, link, *lines), *applied.steps)]

    return [attempt(edit, f"{by_hand}, which is made at {place(last)}")]


def _resized(calls: Calls, threads: int) -> Change | None:
    """The number that is given now, replaced where it is written, in one of the files of the pipeline's calls."""
    found = [
        (module, assign)
        for module in calls.modules()
        for assign in module.of(cst.Assign)
        if any(module.code(target.target).endswith(f".{_FIELD}") for target in assign.targets)
    ]
    if len(found) != 1 or not isinstance(found[0][1].value, cst.Integer):
        return None
    module, assign = found[0]
    step = Replacement(*module.span(assign.value), str(threads))
    return Change(module, module.line(assign), module.span(assign), (step,))


def _applied(module: Module, link: Link) -> tuple[Link, str] | None:
    """The one ``.with_options(name)`` of the same function, and its name where the function made it itself."""
    scope = module.scope(link.node)
    found = [one for one in module.links if one.name == "with_options" and module.scope(one.node) is scope]
    given = [one.value for one in found[0].node.args if not one.keyword and not one.star] if len(found) == 1 else []
    if len(given) != 1 or not isinstance(given[0], cst.Name):
        return None
    made = module.assignments(given[0].value, given[0])
    own = any(one.scope is scope and isinstance(module.statement(one.node), cst.Assign) for one in made)
    return (found[0], given[0].value) if own else None


def _free_names() -> list[str]:
    return ["options", "dataset_options", "pool_options", *(f"pool_options_{number}" for number in range(2, 1000))]


def _before(module: Module, link: Link, *lines: str) -> Replacement:
    """Lines before the statement that a call is in."""
    statement = module.statement(link.node)
    start = module.start(statement)
    in_class = isinstance(module.scope(statement), ClassScope)
    if not isinstance(statement, _SIMPLE) or in_class or not module.begins_line(start):
        raise NoEditError("the options have no place before that call")
    return Replacement(start, start, "".join(f"{line}{module.line_end}{module.indent(start)}" for line in lines))
