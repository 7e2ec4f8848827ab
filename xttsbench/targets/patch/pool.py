"""A private pool of threads: an options object made before the statement, or a field of one that is applied there."""

from __future__ import annotations

import ast
import re

from xttsbench.targets.patch.calls import Sources, place
from xttsbench.targets.patch.chains import appended
from xttsbench.targets.patch.draft import Change, Replacement
from xttsbench.targets.patch.found import Found
from xttsbench.targets.patch.module import Link, Module
from xttsbench.targets.patch.no_edit import NoEditError
from xttsbench.targets.patch.spelling import spelled

_FIELD = "threading.private_threadpool_size"


def thread_pool(sources: Sources, threads: int) -> Found:
    """A pool of ``threads`` for the whole pipeline."""
    by_hand = f"options.{_FIELD} = {threads} and .with_options(options) at the pipeline's end"
    if not sources.pipeline.ops:
        return Found(why_not=f"the pipeline's ops are not known; write {by_hand}")
    last = sources.pipeline.ops[-1]
    try:
        resized = _resized(sources, threads) if sources.pipeline.threadpool_size else None
        if resized is not None:
            return Found((resized,))
        module, link = sources.maker(last)
        following = module.next_link(link)
        if sources.pipeline.threadpool_size and (following is None or following.name != "with_options"):
            raise NoEditError(f"a pool of {sources.pipeline.threadpool_size} is asked for where it could not be found")
        applied = _applied(module, link)
        change = _field_set(module, *applied, threads) if applied else _made(module, link, threads)
        return Found(((module, change),))
    except NoEditError as error:
        return Found(why_not=f"{error}; write {by_hand}, which is made at {place(last)}")


def _resized(sources: Sources, threads: int) -> tuple[Module, Change] | None:
    """The number that is given now, replaced where it is written, in one of the files of the pipeline's calls."""
    files = {op.location.file for op in sources.pipeline.ops if op.location.file is not None}
    found: list[tuple[Module, ast.Assign]] = []
    for file in sorted(files):
        try:
            module = sources.module(file)
        except NoEditError:
            continue
        found += [
            (module, node)
            for node in module.source.nodes
            if isinstance(node, ast.Assign)
            and any(ast.unparse(target).endswith(f".{_FIELD}") for target in node.targets)
        ]
    if len(found) != 1 or not isinstance(found[0][1].value, ast.Constant):
        return None
    module, node = found[0]
    start, end = module.span(node.value)
    return module, Change(module.span(node)[0], end, node.lineno, (Replacement(start, end, str(threads)),))


def _applied(module: Module, link: Link) -> tuple[Link, str] | None:
    """The ``.with_options(name)`` of the same function, where there is one such call and the name is its own."""
    scope = module.source.scope(link.node)
    found = [one for one in module.links if one.name == "with_options" and module.source.scope(one.node) is scope]
    given = found[0].node.args if len(found) == 1 else []
    if len(given) != 1 or not isinstance(given[0], ast.Name):
        return None
    name = given[0].id
    own = [
        node
        for node in module.source.nodes
        if isinstance(node, ast.Assign)
        and module.source.scope(node) is scope
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    return (found[0], name) if own else None


def _field_set(module: Module, link: Link, name: str, threads: int) -> Change:
    """The field set on the user's own options, in the line before they are applied."""
    start = _statement_start(module, link)
    text = f"{name}.{_FIELD} = {threads}{module.line_end}{module.indent(start)}"
    return Change(start, link.end, link.line, (Replacement(start, start, text),))


def _made(module: Module, link: Link, threads: int) -> Change:
    """Options made in the lines before the statement, and applied behind the last call."""
    name = next(one for one in _names() if not re.search(rf"\b{one}\b", module.text))
    start = _statement_start(module, link)
    indent = module.line_end + module.indent(start)
    made = f"{name} = {spelled(module, link.node, 'data.Options')}(){indent}{name}.{_FIELD} = {threads}{indent}"
    applied = appended(module, link, f".with_options({name})", at_the_end=True)
    return Change(start, applied.end, link.line, (Replacement(start, start, made), *applied.steps))


def _names() -> list[str]:
    return ["options", "dataset_options", "pool_options", *(f"pool_options_{number}" for number in range(2, 1000))]


def _statement_start(module: Module, link: Link) -> int:
    """Offset of the statement that a call is in, where lines can be put before it."""
    statement = module.statement(link.node)
    start = module.span(statement)[0]
    is_simple = isinstance(
        statement, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr | ast.AugAssign | ast.For | ast.With
    )
    in_class = isinstance(module.source.scope(statement), ast.ClassDef)
    if not is_simple or in_class or not module.begins_line(start):
        raise NoEditError("the options have no place before that call")
    return start
