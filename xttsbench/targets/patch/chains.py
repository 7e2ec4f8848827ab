"""Links of a chain of calls: one put behind another, one taken out, several in another order; the layout is kept."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Sequence

from xttsbench.targets.patch.draft import Change, Exchange, Replacement, Span
from xttsbench.targets.patch.module import Link, Module
from xttsbench.targets.patch.no_edit import NoEditError
from xttsbench.targets.patch.spelling import visible


def appended(module: Module, link: Link, text: str, *, at_the_end: bool = False) -> Change:
    """A link, e.g. ``.cache()``, behind another one; on a line of its own where the chain has one link a line.

    ``at_the_end`` puts it behind ``.with_options(...)`` too, and keeps it behind what comes to stand there.
    """
    last = link
    while at_the_end and (following := module.next_link(last)) is not None and following.name == "with_options":
        last = following
    step = _behind(module, last, text, stays=at_the_end)
    return Change(link.start, max(last.end, step.end), link.line, (step,))


def _behind(module: Module, link: Link, text: str, *, stays: bool) -> Replacement:
    closing = module.tokens[link.closing]
    following = module.tokens[link.closing + 1] if link.closing + 1 < len(module.tokens) else None
    goes_on = following is not None and module.line_of(following.start) == module.line_of(link.end)
    a_line_each = closing.depth > 0 and module.text[link.start] == "." and module.begins_line(link.start)
    if not a_line_each or (goes_on and following is not None and following.text == "."):
        return Replacement(link.end, link.end, text, stays)
    comment = module.comment_behind(link.end) if not goes_on else None
    at = comment[1] if comment else link.end
    return Replacement(at, at, f"{module.line_end}{module.indent(link.start)}{text}", stays)


def removed(module: Module, link: Link) -> Change:
    """A link taken out; a comment beside it stays, and a statement that does nothing without it goes.

    Raises:
        NoEditError: it is no link of a chain.
    """
    if module.text[link.start] != ".":
        raise NoEditError(f"{link.name}(...) is not called on a dataset")
    statement = _nothing_left(module, link)
    if statement is not None:
        start, end = module.span(statement)
        return _line_gone(module, start, end, link.line)
    before = module.tokens[module.token_at(link.start) - 1]
    if module.begins_line(link.start) and module.tokens[link.closing].depth > 0:
        ends_line = not module.text[link.end : module.line_stop(link.end)].strip(" \t\f")
        if ends_line or module.comment_behind(link.end) is not None:
            return _line_gone(module, link.start, link.end, link.line)
        return Change(link.start, link.end, link.line, (Replacement(link.start, link.end, ""),))
    return Change(before.end, link.end, link.line, (Replacement(before.end, link.end, ""),))


def _line_gone(module: Module, start: int, end: int, line: int) -> Change:
    """What fills its lines is taken out with them; of a comment beside it, the comment stays."""
    comment = module.comment_behind(end)
    if comment is not None:
        return Change(start, comment[1], line, (Replacement(start, comment[0], ""),))
    begin, stop = module.line_start(start), module.line_stop(end)
    stop += 2 if module.text[stop : stop + 2] == "\r\n" else 1 if stop < len(module.text) else 0
    return Change(begin, stop, line, (Replacement(begin, stop, ""),))


def _nothing_left(module: Module, link: Link) -> ast.stmt | None:
    """The statement ``x = x.link()``, alone on its lines and not alone in its block."""
    statement, receiver = module.source.parent(link.node), getattr(link.node.func, "value", None)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not isinstance(receiver, ast.Name):
        return None
    target = statement.targets[0]
    if not isinstance(target, ast.Name) or target.id != receiver.id:
        return None
    start, end = module.span(statement)
    rest = module.text[end : module.line_stop(end)].strip(" \t\f")
    if not module.begins_line(start) or (rest and not rest.startswith("#")):
        return None
    return statement if _has_company(module, statement) else None


def _has_company(module: Module, statement: ast.stmt) -> bool:
    parent = module.source.parent(statement)
    blocks = [value for _, value in ast.iter_fields(parent) if isinstance(value, list)] if parent else []
    return any(statement in block and len(block) > 1 for block in blocks)


def moved_first(module: Module, links: Sequence[Link], extra: Sequence[Replacement] = ()) -> Change:
    """The last of several links that follow one another moved before the others.

    Args:
        module: that of all links.
        links: in the order in which they run.
        extra: steps within the link that is moved.

    Raises:
        NoEditError: they do not follow one another in the text, or what stands between them would matter.
    """
    return _rearranged(module, links, (len(links) - 1, *range(len(links) - 1)), links[-1], extra)


def moved_last(module: Module, links: Sequence[Link], moved: Collection[Link], text: str) -> Change:
    """Some of several links that follow one another moved behind the others, with a link in between.

    Args:
        module: that of all links.
        links: in the order in which they run; the last one stays.
        moved: those that are moved.
        text: of the new link, e.g. ``.cache()``, which comes right behind the last one.

    Raises:
        NoEditError: as for :func:`moved_first`.
    """
    order = sorted(range(len(links)), key=lambda number: links[number] in moved)
    last = links[-1]
    new = _behind(module, last, text, stays=False)
    a_line_each = all(module.begins_line(link.start) for link in links)
    if not a_line_each or new.start != _spans(module, links)[-1][1]:  # behind a comment that does not move with it
        new = Replacement(last.end, last.end, text)
    for before, after in itertools.pairwise(links):
        if module.next_link(before) is not after:
            _nothing_in_between(module, before, after)  # functions are traced where they are given to the map
    return _rearranged(module, links, order, last, (new,))


def _rearranged(
    module: Module, links: Sequence[Link], order: Sequence[int], shown: Link, extra: Sequence[Replacement]
) -> Change:
    for before, after in itertools.pairwise(links):
        if module.next_link(before) is not after:
            _follows_in_next_statement(module, before, after, links)
    spans = _spans(module, links)
    start, end = min(span[0] for span in spans), max(span[1] for span in spans)
    return Change(start, end, shown.line, (Exchange(tuple(spans), tuple(order)), *extra))


def _nothing_in_between(module: Module, before: Link, after: Link) -> None:
    """Raise unless the statement of one link comes right behind that of the other."""
    first, second = module.statement(before.node), module.statement(after.node)
    parent = module.source.parent(second)
    blocks = [value for _, value in ast.iter_fields(parent) if isinstance(value, list)] if parent is not None else []
    if not any(first in block and block[block.index(first) + 1 :][:1] == [second] for block in blocks):
        raise NoEditError(f"other statements stand between .{before.name}(...) and .{after.name}(...)")


def _spans(module: Module, links: Sequence[Link]) -> list[Span]:
    """What moves of each link: its comment too, where each has a line of its own."""
    lines = {module.line_of(link.start) for link in links}
    comments = [module.comment_behind(link.end) for link in links]
    ends = [found[1] if found else link.end for link, found in zip(links, comments, strict=True)]
    alone = all(
        module.begins_line(link.start) and module.tokens[link.closing].depth and end == module.line_stop(end)
        for link, end in zip(links, ends, strict=True)
    )
    whole = alone and len(lines) == len(links)
    return [(link.start, end if whole else link.end) for link, end in zip(links, ends, strict=True)]


def _follows_in_next_statement(module: Module, before: Link, after: Link, moved: Sequence[Link]) -> None:
    """Whether ``after`` is called on the variable that ``before`` was just assigned to, and nothing else uses it."""
    why = f".{after.name}(...) and .{before.name}(...) are not links of one chain"
    first, receiver = module.source.parent(before.node), getattr(after.node.func, "value", None)
    if not isinstance(first, ast.Assign) or not isinstance(receiver, ast.Name):
        raise NoEditError(why)
    names = [target.id for target in first.targets if isinstance(target, ast.Name)]
    second = module.statement(after.node)
    if names != [receiver.id] or module.source.parent(first) is not module.source.parent(second):
        raise NoEditError(why)
    written = [given for link in moved for given in (*link.node.args, *(one.value for one in link.node.keywords))]
    needed = {node.id for one in written for node in ast.walk(one) if isinstance(node, ast.Name)}
    is_new = not (isinstance(second, ast.Assign) and ast.unparse(second.targets[0]) == receiver.id)
    scope = visible(module, receiver, receiver.id)
    for node in module.source.nodes:
        if not isinstance(node, ast.Name | ast.FunctionDef) or node is receiver:
            continue
        at, name = module.span(node)[0], node.id if isinstance(node, ast.Name) else node.name
        between = before.end < at < after.start
        is_load = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        if between and not is_load and name in needed:
            raise NoEditError(f"`{name}` gets its value between .{before.name}(...) and .{after.name}(...)")
        used = name == receiver.id and is_load and (between or (is_new and at > after.start))
        if used and visible(module, node, name) is scope:
            raise NoEditError(f"`{receiver.id}` is used for something else as well")
