"""Edits of one text, gathered from several fixes and applied together; all else stays byte for byte.

All places are those of the original text, so that the lines which the graph's ops name stay valid. An exchange moves
whole links of a chain between their places, other moves take them elsewhere; what other fixes write into a link moves
with it. The functions below the records make the steps of an edit of one call, and keep its layout.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from xttsbench.targets.source.module import Link, Module, Span


class NoEditError(Exception):
    """No edit can be made safely; the message is a sentence for the user, who can write it by hand."""


class NothingToDoError(NoEditError):
    """The source has the fix already; there is nothing to write by hand."""


class NoCallError(NoEditError):
    """The op was made by a call that has no such argument (``unbatch`` makes a map); there is nothing to write."""


@dataclass(frozen=True)
class Replacement:
    """Text in place of a part of the original; an insertion where the part is empty."""

    start: int
    end: int
    text: str
    stays: bool = False
    """An insertion behind a link that is moved stays behind what comes to stand there: the end of the pipeline."""


@dataclass(frozen=True)
class Exchange:
    """Parts of the text that change places: the part ``order[i]`` comes to stand where the part ``i`` was."""

    spans: tuple[Span, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Put:
    """Insertion: text, and parts of the original."""

    at: int
    pieces: tuple[str | Span, ...]


@dataclass(frozen=True)
class Moved:
    """A part that is taken out, and what of it is written elsewhere, with what other fixes write into that."""

    gone: Span
    left: str  # what stands in its place
    puts: tuple[Put, ...]


Step = Replacement | Exchange | Moved


@dataclass(frozen=True)
class Change:
    """Edit of one fix at one place of a file."""

    module: Module
    line: int  # of the call or function that it is about
    shown: Span  # a part of the text that shows it, beside its replacements
    steps: tuple[Step, ...]

    @property
    def span(self) -> Span:
        """The part of the text that shows it whole."""
        places = [self.shown, *((one.start, one.end) for one in self.steps if isinstance(one, Replacement))]
        for moved in (one for one in self.steps if isinstance(one, Moved)):
            places += [moved.gone, *((put.at, put.at) for put in moved.puts)]
        return min(start for start, _ in places), max(end for _, end in places)


@dataclass(frozen=True)
class Found:
    """Edits of a fix that only make sense together, or the reason for none."""

    changes: tuple[Change, ...] = ()
    why_not: str | None = None  # a sentence that says what to write by hand, and where


def rendered(text: str, steps: Sequence[Step], start: int = 0, end: int | None = None) -> str:
    """The text, or a part of it, with the steps that lie in that part.

    Raises:
        NoEditError: two steps are about the same text.
    """
    end = len(text) if end is None else end
    _refuse_overlap(steps)
    plain = [step for step in steps if isinstance(step, Replacement)]
    for moved in [step for step in steps if isinstance(step, Moved)]:
        plain = _taken(text, plain, moved)
    for exchange in [step for step in steps if isinstance(step, Exchange)]:
        contents = [_replaced(text, [step for step in plain if _inside(step, span)], span) for span in exchange.spans]
        plain = [step for step in plain if not any(_inside(step, span) for span in exchange.spans)]
        for span, source in zip(exchange.spans, exchange.order, strict=True):
            plain.insert(0, Replacement(*span, contents[source]))
    return _replaced(text, [step for step in plain if start <= step.start and step.end <= end], (start, end))


def _taken(text: str, plain: Sequence[Replacement], moved: Moved) -> list[Replacement]:
    """The replacements with what is moved among them, and those within it in its text."""
    spans = {piece for put in moved.puts for piece in put.pieces if not isinstance(piece, str)}
    contents = {span: _replaced(text, [step for step in plain if _inside(step, span)], span) for span in spans}
    left = [step for step in plain if not any(_inside(step, span) for span in spans)]
    if any(_overlap((step.start, step.end), moved.gone) for step in left):
        raise NoEditError("it changes the same call as another fix of this patch")
    written = [
        Replacement(put.at, put.at, "".join(one if isinstance(one, str) else contents[one] for one in put.pieces))
        for put in moved.puts
    ]
    return [*left, Replacement(*moved.gone, moved.left), *written]


def _inside(step: Replacement, span: Span) -> bool:
    """Whether a step moves with a part; an insertion belongs to the part that ends there, not to the next."""
    if step.start == step.end:
        return span[0] < step.start < span[1] or (step.start == span[1] and not step.stays)
    return span[0] <= step.start and step.end <= span[1]


def _replaced(text: str, steps: Sequence[Replacement], span: Span) -> str:
    """The part with its replacements; at one place, insertions come in their order and before what begins there."""
    done, pieces = span[0], []
    for step in sorted(steps, key=lambda one: (one.start, one.end, one.stays)):
        pieces += [text[done : step.start], step.text]
        done = max(done, step.end)
    return "".join([*pieces, text[done : span[1]]])


def _refuse_overlap(steps: Sequence[Step]) -> None:
    replaced = [step for step in steps if isinstance(step, Replacement)]
    moved = [span for step in steps if isinstance(step, Exchange) for span in step.spans]
    moved += [step.gone for step in steps if isinstance(step, Moved)]
    spans = [(one.start, one.end) for one in replaced]
    clash = any(_overlap(*pair) for parts in (spans, moved) for pair in itertools.combinations(parts, 2))
    clash |= any(_overlap((one.start, one.end), span) and not _inside(one, span) for one in replaced for span in moved)
    if clash:
        raise NoEditError("it changes the same call as another fix of this patch")


def _overlap(one: Span, other: Span) -> bool:
    """Whether two parts share text, or one inserts strictly inside the other."""
    return one[0] < other[1] and other[0] < one[1]


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


def called_with(module: Module, node: cst.CSTNode) -> cst.Call | None:
    """The call of a method of an expression's value, or with it as an argument."""
    parent = module.parent(node)
    above = module.parent(parent) if parent is not None else None
    is_method = isinstance(parent, cst.Attribute) and isinstance(above, cst.Call) and above.func is parent
    return above if isinstance(above, cst.Call) and (is_method or isinstance(parent, cst.Arg)) else None


def link_shown(link: Link) -> str:
    """A link in a message."""
    return f".{link.name}(...) of line {link.line}"


def behind_statement(module: Module, statement: cst.CSTNode) -> tuple[int, str, str]:
    """Offset for a statement behind another one, and the text before and after it."""
    return module.line_stop(module.end(statement)), module.line_end, ""


def before_statement(module: Module, statement: cst.CSTNode) -> tuple[int, str, str]:
    """The same before it."""
    return module.line_start(module.start(statement)), "", module.line_end
