"""Branches of a function that is traced, handed over with what they assign, so that the values of arrays may decide.

A branch becomes a function of its own inside the one that it stands in; what it assigns stays a variable of that one.
What leaves a loop on the way (``break``, ``continue``, ``return`` in a loop) stays as it is written, and is refused
where the value of an array decides.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

IF: Final = "__xttsbench_if__"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_OWN_SCOPE: Final = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


def handed_over(node: Any) -> Any:
    """The node of a function whose branches are calls of :data:`IF`; of one with variables of others as it was."""
    return _Flow().whole(node)


def as_items(loop: ast.For, function: ast.FunctionDef) -> list[ast.stmt] | None:
    """A loop that only appends to a list as statements that append a list; ``None`` for another one.

    What it computes on the way to what is appended has to be its own: read by nothing else in the function.
    """
    *before, last = loop.body
    tests = []
    if not before and isinstance(last, ast.If) and not last.orelse and len(last.body) == 1:
        tests, last = [last.test], last.body[0]
    call = last.value if isinstance(last, ast.Expr) else None
    if not (
        isinstance(loop.target, ast.Name)
        and isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and (call.func.attr, len(call.args)) == ("append", 1)
        and not (call.keywords or loop.orelse or isinstance(call.args[0], ast.Starred) or _own_scope(loop))
    ):
        return None
    own: set[str] = set()
    for one in before:
        if not (isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name)):
            return None
        own.add(one.targets[0].id)
    inside = {id(one) for one in ast.walk(loop)}
    elsewhere = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and id(one) not in inside}
    if own & {*elsewhere, call.func.value.id, loop.target.id} or _carried(before, own):
        return None
    element: ast.expr = call.args[0]
    made: list[ast.stmt] = []
    if before:
        name = f"__item_{loop.lineno}_{loop.col_offset}__"
        made = [ast.FunctionDef(name, _parameters([loop.target.id]), [*before, ast.Return(element)], [])]
        element = ast.Call(ast.Name(name, ast.Load()), [ast.Name(loop.target.id, ast.Load())], [])
    items = ast.ListComp(element, [ast.comprehension(loop.target, loop.iter, tests, 0)])
    whole = ast.Attribute(call.func.value, "extend", ast.Load())
    made.append(ast.Expr(ast.copy_location(ast.Call(whole, [items], []), call)))
    return [ast.fix_missing_locations(ast.copy_location(one, last)) for one in made]


def _carried(statements: Sequence[Any], names: set[str]) -> bool:
    """Whether a statement reads one of some names before it is assigned, so that it comes from the item before."""
    waiting = set(names)
    for one in statements:
        if any(isinstance(name, ast.Name) and name.id in waiting for name in ast.walk(one.value)):
            return True
        waiting.discard(one.targets[0].id)
    return False


class _Flow(ast.NodeTransformer):
    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._names: set[str] = set()

    def whole(self, node: Any) -> Any:
        if isinstance(node, ast.Lambda) or any(
            isinstance(one, ast.Global | ast.Nonlocal) for one in _inside(node.body)
        ):
            return node
        node.body = self._block(node.body, tail=True, loop=False)
        if self._names:  # they are variables of the function, also where only a branch assigns them
            bound: list[ast.expr] = [ast.Name(name, ast.Store()) for name in sorted(self._names)]
            never = ast.If(ast.Constant(False), [ast.Assign(bound, ast.Constant(None))], [])
            node.body.insert(0, ast.copy_location(never, node.body[0]))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return _Flow().whole(node)

    def visit_For(self, node: Any) -> Any:
        node.body = self._block(node.body, tail=False, loop=True)
        return node

    visit_While = visit_With = visit_For  # noqa: N815 - ast's names

    def _block(self, statements: Sequence[Any], *, tail: bool, loop: bool) -> list[Any]:
        """Statements in which every branch that can be is handed over; what follows one that leaves is its else."""
        found: list[Any] = []
        for number, one in enumerate(map(_as_branch, statements)):
            if not isinstance(one, ast.If):
                found.append(self.visit(one))
                continue
            rest = list(statements[number + 1 :])
            stays = loop and _leaves([one, *rest])
            if not stays and _ends(one.body):
                one.orelse, rest = [*one.orelse, *rest], []
            elif not stays and one.orelse and _ends(one.orelse):
                one.body, rest = [*one.body, *rest], []
            found += self._if(one, tail=tail and not rest, loop=loop)
            if not rest:
                return found
        return found

    def _if(self, node: ast.If, *, tail: bool, loop: bool) -> list[Any]:
        both = [*node.body, *node.orelse]
        returns = any(isinstance(one, ast.Return) for one in _inside(both))
        whole = not returns or tail or (_ends(node.body) and _ends(node.orelse))
        raw = not whole or _own_scope(node) or (_leaves(both) if loop else _jumps(both))
        names = _stored(both)
        node.body = self._block(node.body, tail=tail and not raw, loop=loop)
        node.orelse = self._block(node.orelse, tail=tail and not raw, loop=loop)
        if raw:
            return [node]
        made, handed = self._made([node.body, node.orelse or [ast.Pass()]], node, names)
        call = ast.copy_location(ast.Call(ast.Name(IF, ast.Load()), [node.test, *handed], []), node)
        return [*made, ast.copy_location(ast.Return(call) if returns else ast.Expr(call), node)]

    def _made(self, bodies: Sequence[list[Any]], at: Any, names: set[str]) -> tuple[list[ast.stmt], list[ast.expr]]:
        """Blocks as functions, and what hands them over, with what reads and what sets the variables they assign."""
        self._names |= names
        declared: list[ast.stmt] = [ast.Nonlocal(sorted(names))] if names else []
        made = [self._function([], [*declared, *body]) for body in bodies]
        read = [ast.Lambda(_parameters([]), ast.Name(one, ast.Load())) for one in sorted(names)]
        handed: list[ast.expr] = [*(ast.Name(one.name, ast.Load()) for one in made), ast.Tuple(list(read), ast.Load())]
        if names:
            targets = ast.Tuple([ast.Name(one, ast.Store()) for one in sorted(names)], ast.Store())
            made.append(
                self._function(["__values__"], [*declared, ast.Assign([targets], ast.Name("__values__", ast.Load()))])
            )
            handed.append(ast.Name(made[-1].name, ast.Load()))
        return [ast.copy_location(one, at) for one in made], handed

    def _function(self, given: list[str], body: list[Any]) -> ast.FunctionDef:
        return ast.FunctionDef(f"__block_{next(self._numbers)}__", _parameters(given), body, [])


def _as_branch(node: Any) -> Any:
    """An ``assert`` as the branch that it is."""
    if not isinstance(node, ast.Assert):
        return node
    error = ast.Call(ast.Name("AssertionError", ast.Load()), [node.msg] if node.msg else [], [])
    raised = ast.copy_location(ast.Raise(error, None), node)
    return ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), node.test), [raised], []), node)


def _parameters(names: list[str]) -> ast.arguments:
    arguments = [ast.arg(name) for name in names]
    return ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])


def _inside(nodes: Sequence[Any]) -> Iterator[Any]:
    """The nodes of some statements, without those of functions and classes in them."""
    waiting = list(nodes)
    while waiting:
        one = waiting.pop()
        yield one
        if not isinstance(one, _FUNCTIONS):
            waiting.extend(ast.iter_child_nodes(one))


def _stored(nodes: Sequence[Any]) -> set[str]:
    """Names that statements assign, or of which they change a part."""
    found = {one.id for one in _inside(nodes) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    found |= {one.name for one in _inside(nodes) if isinstance(one, ast.FunctionDef) and not one.name.startswith("__")}
    for one in _inside(nodes):
        part = isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store)
        grown = isinstance(one, ast.Attribute) and one.attr in ("append", "extend")
        if (part or grown) and isinstance(one.value, ast.Name):
            found.add(one.value.id)
    return found


def _ends(block: Sequence[Any]) -> bool:
    """Whether nothing comes behind a block."""
    last = block[-1] if block else None
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, ast.Return | ast.Raise)


def _jumps(nodes: Sequence[Any]) -> bool:
    return any(isinstance(one, ast.Break | ast.Continue | ast.Try) for one in _inside(nodes))


def _leaves(nodes: Sequence[Any]) -> bool:
    """Whether statements leave the loop that they stand in, or the function."""
    return _jumps(nodes) or any(isinstance(one, ast.Return) for one in _inside(nodes))


def _own_scope(node: Any) -> bool:
    return any(isinstance(one, _OWN_SCOPE) for one in ast.walk(node))
