"""Edits of a link of a chain: an argument given, a link behind it, the link taken out or moved; the layout is kept."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import libcst as cst

from xttsbench.targets.source.edits import Change, Exchange, NoEditError, Replacement, Step
from xttsbench.targets.source.module import Module
from xttsbench.targets.source.tree import Link, Span


def spelled(module: Module, at: cst.CSTNode, name: str) -> str:
    """Spelling of ``tensorflow.<name>`` at the place of ``at``.

    Raises:
        NoEditError: TensorFlow is not imported there under any name.
    """
    found = module.spelled(at, name)
    if found is None:
        raise NoEditError(f"{module.file} does not import TensorFlow under a name that can be used there")
    return found


def autotune_or(module: Module, at: cst.CSTNode, count: int | None) -> str:
    """A number as it is written, or ``AUTOTUNE`` as the file spells it."""
    return spelled(module, at, "data.AUTOTUNE") if count is None or count < 0 else str(count)


def change(module: Module, link: Link, *steps: Step) -> Change:
    """Edit of one call."""
    return Change(module, link.line, (link.start, link.end), steps)


def argument(link: Link, name: str, position: int | None) -> cst.Arg | None:
    """The argument of that name, or at that position; ``None`` where it is not given.

    Raises:
        NoEditError: ``*`` or ``**`` may give it.
    """
    given = link.node.args
    if named := next((one for one in given if one.keyword is not None and one.keyword.value == name), None):
        return named
    positional = [one for one in given if one.keyword is None and one.star != "**"]
    if any(one.star for one in (positional if position is None else positional[: position + 1])):
        raise NoEditError(f".{link.name}(...) takes some of its arguments from a list")
    if position is not None and position < len(positional):
        return positional[position]
    if any(one.star == "**" for one in given):
        raise NoEditError(f".{link.name}(...) takes some of its arguments from a dict")
    return None


def with_argument(module: Module, link: Link, name: str, position: int | None, value: str) -> Replacement | None:
    """The step that gives an argument a value; ``None`` where it has it already.

    ``position`` is that of the argument where it is given without its name; ``None`` where it cannot be.

    Raises:
        NoEditError: ``*`` or ``**`` may give it.
    """
    given = argument(link, name, position)
    if given is not None:
        start = module.end(given.equal) if isinstance(given.equal, cst.AssignEqual) else module.start(given)
        same = module.text[start : module.end(given)] == value
        return None if same else Replacement(start, module.end(given), value)
    if not link.node.args:
        opening = module.end(link.node.whitespace_after_func) + 1
        return Replacement(opening, opening, f"{name}={value}")
    last = link.node.args[-1]
    if not isinstance(last.comma, cst.Comma):
        return Replacement(module.end(last), module.end(last), f", {name}={value}")
    first, comma = module.start(last), module.end(last.comma.whitespace_before)
    if module.begins_line(first) and module.line_stop(comma) < link.end:
        comment = module.comment_behind(comma + 1)
        at = comment[1] if comment else comma + 1
        return Replacement(at, at, f"{module.line_end}{module.indent(first)}{name}={value},")
    return Replacement(comma, comma, f", {name}={value}")


def without_argument(module: Module, link: Link, given: cst.Arg) -> Replacement:
    """The step that takes an argument out, together with one comma."""
    args = link.node.args
    number = next(number for number, one in enumerate(args) if one is given)
    if number:
        return Replacement(module.end(args[number - 1]), module.end(given), "")
    return Replacement(module.start(given), module.start(args[1]) if len(args) > 1 else module.end(given), "")


def appended(module: Module, link: Link, text: str, *, at_the_end: bool = False) -> Change:
    """A link, e.g. ``.cache()``, behind another one; on a line of its own where the chain has one link a line.

    ``at_the_end`` puts it behind ``.with_options(...)`` too, and keeps it behind what comes to stand there.
    """
    last = link
    while at_the_end and (following := module.next_link(last)) is not None and following.name == "with_options":
        last = following
    return change(module, link, behind(module, last, text, stays=at_the_end))


def behind(module: Module, link: Link, text: str, *, stays: bool = False) -> Replacement:
    """The step that writes a link behind another one, on a line of its own where the chain has one link a line."""
    comment = module.comment_behind(link.end)
    following = "" if comment else module.text[link.end : module.line_stop(link.end)].strip()
    if not link.own_line or following.startswith("."):
        return Replacement(link.end, link.end, text, stays)
    at = comment[1] if comment else link.end
    return Replacement(at, at, f"{module.line_end}{module.indent(link.start)}{text}", stays)


def removed(module: Module, link: Link) -> Change:
    """A link taken out; a comment beside it stays, and a statement that does nothing without it goes.

    Raises:
        NoEditError: it is no link of a chain.
    """
    func = link.node.func
    if not isinstance(func, cst.Attribute):
        raise NoEditError(f"{link.name}(...) is not called on a dataset")
    if (statement := _nothing_left(module, link)) is not None:
        step = line_gone(module, *module.span(statement))
    elif link.own_line and _ends_line(module, link.end):
        step = line_gone(module, link.start, link.end)
    else:
        step = Replacement(link.start if link.own_line else module.start(func.dot), link.end, "")
    return change(module, link, step)


def _ends_line(module: Module, offset: int) -> bool:
    rest = module.text[offset : module.line_stop(offset)].strip(" \t\f")
    return not rest or rest.startswith("#")


def line_gone(module: Module, start: int, end: int) -> Replacement:
    """Removal of a part and, where it fills them, of its lines; a comment beside it stays."""
    if (comment := module.comment_behind(end)) is not None:
        return Replacement(start, comment[0], "")
    stop = module.line_stop(end)
    stop += 2 if module.text[stop : stop + 2] == "\r\n" else 1 if stop < len(module.text) else 0
    return Replacement(module.line_start(start), stop, "")


def _nothing_left(module: Module, link: Link) -> cst.Assign | None:
    """The statement ``x = x.link()``, alone on its lines and not alone in its block."""
    statement, receiver = module.parent(link.node), getattr(link.node.func, "value", None)
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1 or receiver is None:
        return None
    target, (start, end) = statement.targets[0].target, module.span(statement)
    same = isinstance(target, cst.Name | cst.Attribute) and module.code(target) == module.code(receiver)
    alone = module.begins_line(start) and _ends_line(module, end)
    return statement if same and alone and len(module.block(statement)) > 1 else None


def reordered(module: Module, links: Sequence[Link], moved: Sequence[bool], text: str = "") -> Change:
    """Moves some of several consecutive links behind the others, with a link in between.

    The links are in the order in which they run; the last one stays. ``text`` is the new link, e.g. ``.cache()``, right
    behind the last one, and empty for none.

    Raises:
        NoEditError: they do not follow one another in the text, or what stands between them would matter.
    """
    order = sorted(range(len(links)), key=lambda number: moved[number])
    if not text:
        return _rearranged(module, links, order)
    last = links[-1]
    new = behind(module, last, text)
    if not all(module.begins_line(link.start) for link in links) or new.start != _spans(module, links)[-1][1]:
        new = Replacement(last.end, last.end, text)  # not behind a comment that does not move with it
    for before, after in itertools.pairwise(links):
        if module.next_link(before) is not after:  # functions are traced where they are given to the map
            first, second = module.statement(before.node), module.statement(after.node)
            block = module.block(second)
            if not any(pair[0] is first and pair[1] is second for pair in itertools.pairwise(block)):
                raise NoEditError(f"other statements stand between .{before.name}(...) and .{after.name}(...)")
    return _rearranged(module, links, order, new)


def _rearranged(module: Module, links: Sequence[Link], order: Sequence[int], *new: Replacement) -> Change:
    for before, after in itertools.pairwise(links):
        if module.next_link(before) is not after:
            _follows_in_next_statement(module, before, after, links)
    spans = _spans(module, links)
    shown = min(start for start, _ in spans), max(end for _, end in spans)
    return Change(module, links[-1].line, shown, (Exchange(tuple(spans), tuple(order)), *new))


def _spans(module: Module, links: Sequence[Link]) -> list[Span]:
    comments = [module.comment_behind(link.end) for link in links]
    whole = all(link.own_line and _ends_line(module, link.end) for link in links)
    return [
        (link.start, comment[1] if whole and comment else link.end)
        for link, comment in zip(links, comments, strict=True)
    ]


def _follows_in_next_statement(module: Module, before: Link, after: Link, moved: Sequence[Link]) -> None:
    """Raise unless ``after`` is called on what ``before`` was just assigned to, and nothing else uses that."""
    first, func = module.parent(before.node), after.node.func
    receiver = func.value if isinstance(func, cst.Attribute) else None
    second = module.statement(after.node)
    targets = [module.code(one.target) for one in first.targets] if isinstance(first, cst.Assign) else []
    follows = any(one is first for one in module.block(second))
    if not isinstance(receiver, cst.Name) or targets != [receiver.value] or not follows:
        raise NoEditError(f".{after.name}(...) and .{before.name}(...) are not links of one chain")
    names = [name for link in moved for given in link.node.args for name in module.inside(given, cst.Name)]
    for name in sorted({name.value for name in names if module.reads(name)}):
        for one in module.assignments(name, after.node):
            if before.end < module.start(one.node) < after.start:
                raise NoEditError(f"`{name}` gets its value between .{before.name}(...) and .{after.name}(...)")
    own = isinstance(second, cst.Assign) and module.code(second.targets[0].target) == receiver.value
    for use in module.uses(module.assignments(receiver.value, receiver)):
        if use is not receiver and before.end < module.start(use) and (module.start(use) < after.start or not own):
            raise NoEditError(f"`{receiver.value}` is used for something else as well")


def lines_of(module: Module, statement: cst.CSTNode) -> tuple[int, int]:
    """The lines of a statement.

    Raises:
        NoEditError: others stand on them, too.
    """
    if not has_lines(module, statement):
        raise NoEditError(f"line {module.line(statement)} has several statements")
    gone = line_gone(module, *module.span(statement))
    return gone.start, gone.end


def has_lines(module: Module, statement: cst.CSTNode) -> bool:
    """Whether no other statement stands on the lines of one."""
    start, end = module.span(statement)
    return module.begins_line(start) and not module.text[end : module.line_stop(end)].strip(" \t\f").startswith(";")


def function_around(module: Module, node: cst.CSTNode) -> cst.FunctionDef | cst.Module:
    """The function that a node is in, or the module.

    Raises:
        NoEditError: it is a lambda.
    """
    for found in module.ancestors(node):
        if isinstance(found, cst.FunctionDef | cst.Module):
            return found
        if isinstance(found, cst.Lambda):
            break
    raise NoEditError(f"line {module.line(node)} is in a lambda")


def behind_statement(module: Module, statement: cst.CSTNode) -> tuple[int, str, str]:
    """Offset for a statement behind another one, and the text before and after it."""
    return module.line_stop(module.end(statement)), module.line_end, ""


def before_statement(module: Module, statement: cst.CSTNode) -> tuple[int, str, str]:
    """The same before it."""
    return module.line_start(module.start(statement)), "", module.line_end
