"""Arguments of a call: one added, replaced or taken out, the others as they stand."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from xttsbench.targets.patch.draft import Replacement
from xttsbench.targets.patch.module import Link, Module
from xttsbench.targets.patch.no_edit import NoEditError


@dataclass(frozen=True)
class Argument:
    """One argument as it is written, parentheses around it included."""

    node: ast.expr | ast.keyword
    name: str | None
    start: int
    """Of the argument; of its name where it has one."""
    value_start: int
    end: int


def arguments(module: Module, link: Link) -> list[Argument]:
    """The arguments of a call, in the order of the text."""
    tokens, depth = module.tokens, module.tokens[link.opening].depth + 1
    given: list[ast.expr | ast.keyword] = [*link.node.args, *link.node.keywords]
    found, first = [], link.opening + 1
    for node in sorted(given, key=module.span):
        last = module.token_at(module.span(node)[1])
        while last < link.closing and not (tokens[last].text == "," and tokens[last].depth == depth):
            last += 1  # parentheses around it
        name = node.arg if isinstance(node, ast.keyword) else None
        value = first + 2 if name is not None else first
        if last > link.closing or value >= last:
            raise NoEditError(f"the arguments of .{link.name}(...) could not be told apart")
        found.append(Argument(node, name, tokens[first].start, tokens[value].start, tokens[last - 1].end))
        first = last + 1
    return found


def argument(module: Module, link: Link, name: str, position: int | None) -> Argument | None:
    """The argument of that name, or at that position; ``None`` where it is not given.

    Raises:
        NoEditError: ``*`` or ``**`` may give it.
    """
    found = arguments(module, link)
    named = next((one for one in found if one.name == name), None)
    if named is not None:
        return named
    positional = [one for one in found if not isinstance(one.node, ast.keyword)]
    before = positional if position is None else positional[: position + 1]
    if any(isinstance(one.node, ast.Starred) for one in before):
        raise NoEditError(f".{link.name}(...) takes some of its arguments from a list")
    if position is not None and position < len(positional):
        return positional[position]
    if any(isinstance(one.node, ast.keyword) and one.name is None for one in found):
        raise NoEditError(f".{link.name}(...) takes some of its arguments from a dict")
    return None


def with_argument(module: Module, link: Link, name: str, position: int | None, value: str) -> Replacement | None:
    """The step that gives an argument a value; ``None`` where it has it already.

    Args:
        module: the call's.
        link: the call.
        name: of the argument.
        position: of the argument where it is given without its name; ``None`` where it cannot be.
        value: as it is to be written.

    Raises:
        NoEditError: ``*`` or ``**`` may give it.
    """
    given = argument(module, link, name, position)
    if given is not None:
        same = module.text[given.value_start : given.end] == value
        return None if same else Replacement(given.value_start, given.end, value)
    opening, last = module.tokens[link.opening], module.tokens[link.closing - 1]
    if link.closing - link.opening == 1:
        return Replacement(opening.end, opening.end, f"{name}={value}")
    if last.text != ",":
        return Replacement(last.end, last.end, f", {name}={value}")
    first = arguments(module, link)[-1].start
    if module.begins_line(first) and module.line_of(last.end) < module.line_of(link.end):
        comment = module.comment_behind(last.end)
        at = comment[1] if comment else last.end
        return Replacement(at, at, f"{module.line_end}{module.indent(first)}{name}={value},")
    return Replacement(last.start, last.start, f", {name}={value}")


def without_argument(module: Module, link: Link, name: str) -> Replacement:
    """The step that takes a named argument out, together with one comma.

    Raises:
        NoEditError: it is not given by its name.
    """
    found = arguments(module, link)
    number = next((number for number, one in enumerate(found) if one.name == name), None)
    if number is None:
        raise NoEditError(f".{link.name}(...) has no argument {name}")
    if number:
        return Replacement(found[number - 1].end, found[number].end, "")
    after = found[1].start if len(found) > 1 else found[0].end
    return Replacement(found[0].start, after, "")
