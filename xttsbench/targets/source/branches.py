"""Branches around a place of a function, and the conditions under which it runs, as text to be written elsewhere."""

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


def branches(module: Module, node: cst.CSTNode, *, beyond: bool = False) -> list[tuple[cst.CSTNode, str]]:
    """The statements with parts around a node in its function, innermost first, and which part it is in.

    With ``beyond`` those around the function as well.
    """
    found: list[tuple[cst.CSTNode, str]] = []
    for child, around in itertools.pairwise([node, *module.ancestors(node)]):
        if isinstance(around, cst.FunctionDef | cst.Lambda) and not beyond:
            break
        if isinstance(around, cst.If | cst.IfExp):
            part = next(name for name in ("test", "body", "orelse") if getattr(around, name) is child)
            found.append((around, part))
        elif isinstance(around, cst.Try):
            found.append((around, "handlers" if isinstance(child, cst.ExceptHandler) else "body"))
        elif isinstance(around, cst.For | cst.While | cst.With | cst.Match | cst.BaseComp):
            found.append((around, "body"))
    return found


def condition(module: Module, test: cst.BaseExpression, *, is_not: bool) -> str:
    """Text of a branch's condition that means the same where it is written again.

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
    mine, theirs = (dict(branches(module, one, beyond=True)) for one in (first, second))
    forks = (cst.If, cst.Try)
    if any(at in theirs and theirs[at] != part for at, part in mine.items() if isinstance(at, forks)):
        return True
    for own, other in ((mine, theirs), (theirs, mine)):
        for at, part in own.items():
            block = getattr(at, part, None) if isinstance(at, forks) and at not in other and part != "test" else None
            block = block.body if isinstance(block, cst.Else) else block
            last = block.body[-1] if isinstance(block, cst.IndentedBlock | cst.SimpleStatementSuite) else None
            last = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
            if isinstance(last, _LEAVE):
                return True
    return False
