"""Under which conditions a place of the source runs, and what they say, as text that can be written elsewhere."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence
from typing import Final

import libcst as cst

from xttsbench.targets.source.edits import NoEditError
from xttsbench.targets.source.module import Module

_PURE: Final = ("len", "bool", "int", "float", "str", "max", "min", "any", "all", "isinstance", "getattr", "hasattr")
_PURE_METHODS: Final = ("get", "startswith", "endswith")
_LEAVE: Final = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def branches(module: Module, node: cst.CSTNode) -> list[tuple[cst.CSTNode, str]]:
    """The statements with parts around a node in its function, innermost first, and which part it is in."""
    found: list[tuple[cst.CSTNode, str]] = []
    for child, around in itertools.pairwise([node, *module.ancestors(node)]):
        if isinstance(around, cst.FunctionDef | cst.Lambda):
            break
        if isinstance(around, cst.If | cst.IfExp):
            part = next(name for name in ("test", "body", "orelse") if getattr(around, name) is child)
            found.append((around, part))
        elif isinstance(around, cst.Try):
            found.append((around, "body" if child is around.body else "handlers"))
        elif isinstance(around, cst.For | cst.While | cst.With | cst.Match | cst.BaseComp):
            found.append((around, "body"))
    return found


def condition(module: Module, test: cst.BaseExpression, *, is_not: bool) -> str:
    """What has to hold for a branch to be taken, as text that says the same where it is written again.

    Raises:
        NoEditError: it may say something else the second time.
    """
    for call in module.inside(test, cst.Call):
        method = isinstance(call.func, cst.Attribute) and call.func.attr.value in _PURE_METHODS
        if not method and not module.is_builtin(call.func, *_PURE):
            raise NoEditError(f"the condition of line {module.line(test)} calls {module.shown(call.func)}(...)")
    if module.inside(test, cst.NamedExpr):
        raise NoEditError(f"the condition of line {module.line(test)} sets a name")
    text = module.shown(test)
    if isinstance(test, cst.BooleanOperation | cst.IfExp):
        text = f"({text})"
    return negated([text]) if is_not else text


def negated(conditions: Sequence[str]) -> str:
    """The opposite of several conditions that all hold."""
    text = joined(conditions)
    if found := re.fullmatch(r"not (?:([\w.]+)|\(([^()]+)\))", text):
        return found[1] or f"({found[2]})"
    return f"not {text}" if re.fullmatch(r"[\w.]+(\([^()]*\))?", text) else f"not ({text})"


def joined(conditions: Sequence[str]) -> str:
    """Conditions as one; alone it needs no parentheses."""
    alone = conditions[0][1:-1] if len(conditions) == 1 and conditions[0].startswith("(") else ""
    try:
        ast.parse(alone, mode="eval")
    except SyntaxError:  # these parentheses are not around it all
        return " and ".join(conditions)
    return alone


def exclusive(module: Module, first: cst.CSTNode, second: cst.CSTNode) -> bool:
    """Whether no run goes through both: other branches of one ``if`` or ``try``, or the earlier one leaves."""
    parts = _parts(module, first), _parts(module, second)
    if any(at in parts[1] and parts[1][at] != part for at, part in parts[0].items()):
        return True
    for mine, other in (parts, parts[::-1]):
        for at, part in mine.items():
            block = at.body if part == "body" else at.orelse if part == "orelse" else None
            block = block.body if isinstance(block, cst.Else) else block
            last = block.body[-1] if isinstance(block, cst.IndentedBlock | cst.SimpleStatementSuite) else None
            last = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
            if at not in other and isinstance(last, _LEAVE):
                return True
    return False


def _parts(module: Module, node: cst.CSTNode) -> dict[cst.If | cst.Try, str]:
    """By ``if`` and ``try`` around the node, in which part of it the node is."""
    found: dict[cst.If | cst.Try, str] = {}
    for child, around in itertools.pairwise([node, *module.ancestors(node)]):
        if isinstance(around, cst.If):
            found[around] = "body" if child is around.body else "orelse" if child is around.orelse else "test"
        elif isinstance(around, cst.Try):
            found[around] = "handlers" if isinstance(child, cst.ExceptHandler) else "body"
    return found
