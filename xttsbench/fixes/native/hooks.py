"""The source of a function with every expression handed to hooks, which see its value."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from typing import Any, Final

SAW: Final = "__xttsbench_saw__"
CALLED: Final = "__xttsbench_called__"
TEST: Final = "__xttsbench_test__"
IN_PLACE: Final = "__xttsbench_in_place__"
_GIVEN: Final = "__xttsbench_given__"


def parsed(text: str, *, of_lambda: bool) -> Any:
    """The node of a function's definition."""
    return ast.parse(text, mode="eval").body if of_lambda else ast.parse(text).body[0]


def numbers(node: ast.AST) -> dict[int, int]:
    """Numbers of all nodes in one, by their ids; the same for the same text."""
    return {id(one): number for number, one in enumerate(ast.walk(node))}


def compiled(text: str, file: str, before: int, code: types.CodeType) -> types.CodeType:
    """The code of a function whose expressions are handed to the hooks; lines and file are the user's."""
    again = parsed(text, of_lambda=code.co_name == "<lambda>")
    handed = _Handed(numbers(again))
    if isinstance(again, ast.Lambda):
        handed.generic_visit(again)
        body: list[ast.stmt] = [ast.Return(again)]
    else:
        again.decorator_list = []
        body = [handed.visit(again)]
    given = ast.arguments([], [ast.arg(name) for name in code.co_freevars], None, [], [], None, [])
    module = ast.fix_missing_locations(ast.Module([ast.FunctionDef("factory", given, body, [])], []))
    ast.increment_lineno(module, before)
    outer = next(one for one in compile(module, file, "exec").co_consts if isinstance(one, types.CodeType))
    return next(one for one in outer.co_consts if isinstance(one, types.CodeType) and one.co_name == code.co_name)


class _Handed(ast.NodeTransformer):
    """Hands expressions to the hooks, by their numbers."""

    def __init__(self, known: Mapping[int, int]) -> None:
        self._numbers = known

    def visit(self, node: ast.AST) -> Any:
        number = self._numbers.get(id(node))
        made = super().visit(node)
        loads = isinstance(getattr(node, "ctx", None) or ast.Load(), ast.Load)
        plain = ast.Starred | ast.Slice | ast.FormattedValue | ast.JoinedStr | ast.Constant
        if isinstance(node, ast.expr) and loads and not isinstance(node, plain):
            return _hook(SAW, node, ast.Constant(number), made)
        return made

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        number = self._numbers[id(node.func)]
        plain = isinstance(node.func, ast.Name | ast.Attribute)
        function: Any = self.generic_visit(node.func) if plain else self.visit(node.func)
        node.args = [self.visit(one) for one in node.args]
        node.keywords = [self.visit(one) for one in node.keywords]
        node.func = _hook(CALLED, node, ast.Constant(number), function)
        return node

    def _tested(self, node: Any) -> Any:
        number = ast.Constant(self._numbers[id(node.test)])
        self.generic_visit(node)
        node.test = _hook(TEST, node.test, number, node.test)
        return node

    def visit_If(self, node: ast.If) -> Any:
        return self._tested(node)

    def visit_While(self, node: ast.While) -> Any:
        return self._tested(node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        return self._tested(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        number = self._numbers[id(node.target)]
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        scope = ast.Call(ast.Name("locals", ast.Load()), [], [])
        noted = _hook(IN_PLACE, node, ast.Constant(number), ast.Constant(node.target.id), scope)
        return [ast.copy_location(ast.Expr(noted), node), node]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        self.generic_visit(node)
        names = [one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)]
        kept = ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())
        node.body.insert(0, ast.copy_location(ast.Assign([ast.Name(_GIVEN, ast.Store())], kept), node.body[0]))
        return node

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.value = None if node.value is None else self.visit(node.value)
        return node


def _hook(name: str, node: Any, *arguments: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), node)
