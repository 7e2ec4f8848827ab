"""Branches and loops of a function that is traced, handed over with what they assign, so that values may decide them.

A branch, or the body of a loop, becomes a function of its own inside the one that it stands in; what it assigns stays a
variable of that one. ``continue`` and ``break`` become the other way of the branch that they end. A loop that is left
in another way (``return``, ``else``, ``try``) stays as it is written, and is refused where values decide. What becomes
of branches and loops when the function runs is in the modules of this folder.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

CALL: Final = "__xttsbench_call__"
IF: Final = "__xttsbench_if__"
FOR: Final = "__xttsbench_for__"
WHILE: Final = "__xttsbench_while__"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_NOT_OWN: Final = (*_FUNCTIONS, ast.For, ast.While)  # whose jumps do not leave the loop around them


def handed_over(node: Any) -> Any:
    """The node of a function whose branches and loops are calls of helpers; of one with others' variables as it was."""
    return _Flow().whole(node)


def as_items(loop: ast.For, function: ast.FunctionDef) -> list[ast.stmt] | None:
    """A loop that only appends to a list as statements that append a list; ``None`` for another one.

    What it computes on the way to what is appended has to be its own: read by nothing else in the function.
    """
    *before, last = loop.body
    tests: list[ast.expr] = []
    within: list[Any] = []
    if isinstance(last, ast.If) and len(last.body) == len(last.orelse) == 1:
        last = _either(last)
    elif isinstance(last, ast.If) and not last.orelse:
        tests, (*within, last) = [last.test], last.body
    call = last.value if isinstance(last, ast.Expr) else None
    if not (
        isinstance(loop.target, ast.Name)
        and isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and (call.func.attr, len(call.args)) == ("append", 1)
        and not (call.keywords or loop.orelse or isinstance(call.args[0], ast.Starred) or own_scope(loop))
    ):
        return None
    own: set[str] = set()
    for one in (*before, *within):
        if not (isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name)):
            return None
        own.add(one.targets[0].id)
    inside = {id(one) for one in ast.walk(loop)}
    elsewhere = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and id(one) not in inside}
    mentioned = sum(
        isinstance(one, ast.Name) and one.id == call.func.value.id
        for part in (*before, *tests, *within, loop.iter, last)
        for one in ast.walk(part)
    )
    known = [*before, *(ast.Expr(one) for one in tests), *within]
    if own & {*elsewhere, call.func.value.id, loop.target.id} or _carried(known, own) or mentioned > 1:
        return None
    element: ast.expr = call.args[0]
    made: list[ast.stmt] = []
    given = loop.target.id

    def computed(word: str, statements: list[Any], value: ast.expr) -> ast.expr:
        if not statements:
            return value
        name = f"__{word}_{loop.lineno}_{loop.col_offset}__"
        body = [*copy.deepcopy(statements), ast.Return(value)]
        made.append(ast.FunctionDef(name, parameters([given]), body, []))
        return ast.Call(ast.Name(name, ast.Load()), [ast.Name(given, ast.Load())], [])

    tests = [computed("test", before, one) for one in tests]
    element = computed("item", [*before, *within], element)
    items = ast.ListComp(element, [ast.comprehension(loop.target, loop.iter, tests, 0)])
    whole = ast.Attribute(call.func.value, "extend", ast.Load())
    made.append(ast.Expr(ast.copy_location(ast.Call(whole, [items], []), call)))
    return [ast.fix_missing_locations(ast.copy_location(one, last)) for one in made]


def _either(node: ast.If) -> ast.stmt:
    """Two ways to append to one list as one, of either value."""
    ways = [getattr(one[0], "value", None) for one in (node.body, node.orelse)]
    plain = [one for one in ways if isinstance(one, ast.Call) and len(one.args) == 1 and not one.keywords]
    if len(plain) < 2 or ast.dump(plain[0].func) != ast.dump(plain[1].func):
        return node
    first, second = plain
    value = ast.copy_location(ast.IfExp(node.test, first.args[0], second.args[0]), node)
    return ast.copy_location(ast.Expr(ast.copy_location(ast.Call(first.func, [value], []), node)), node)


def _carried(statements: Sequence[Any], names: set[str]) -> bool:
    """Whether a statement, or a test, reads one of some names before it is assigned: it comes from the item before."""
    waiting = set(names)
    for one in statements:
        if any(isinstance(name, ast.Name) and name.id in waiting for name in ast.walk(one.value)):
            return True
        waiting -= {target.id for target in getattr(one, "targets", ())}
    return False


class _Flow(ast.NodeTransformer):
    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._names: set[str] = set()
        self._node: Any = None

    def whole(self, node: Any) -> Any:
        self._node = node
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

    def visit_For(self, node: ast.For) -> Any:
        made = as_items(node, self._node)
        if made is not None:
            return [self.visit(one) for one in made]
        item = f"__item_{next(self._numbers)}__"
        first = ast.copy_location(ast.Assign([node.target], ast.Name(item, ast.Load())), node)
        return self._loop(node, FOR, lambda _: [node.iter], first, item)

    def visit_While(self, node: ast.While) -> Any:
        def goes_on(broken: str | None) -> list[ast.expr]:
            if broken is None:
                return [later(node.test)]
            stays = ast.UnaryOp(ast.Not(), ast.Name(broken, ast.Load()))
            return [later(ast.copy_location(ast.BoolOp(ast.And(), [stays, node.test]), node.test))]

        return self._loop(node, WHILE, goes_on)

    def visit_With(self, node: Any) -> Any:
        node.body = self._block(node.body, tail=False, loop=True)
        return node

    def _loop(self, node: Any, name: str, head: Any, first: ast.stmt | None = None, item: str | None = None) -> Any:
        """A loop as a call that is given what it goes through, or its test, and its body."""
        broken = (
            f"__broken_{next(self._numbers)}__"
            if any(isinstance(one, ast.Break) for one in _inside(node.body, _NOT_OWN))
            else None
        )
        body = None if node.orelse or own_scope(node) else _without_jumps(node.body, broken or "")
        if body is None or any(isinstance(one, ast.Return | ast.Try) for one in _inside(body)):
            node.body = self._block(node.body, tail=False, loop=True)
            return node
        body = [*([first] if first is not None else []), *body]
        names = _stored(body)
        made, handed = self._made([self._block(body, tail=False, loop=False)], node, names, [item] if item else [])
        if item is not None:
            handed.insert(1, later(ast.Name(broken, ast.Load())) if broken is not None else ast.Constant(None))
        arguments = [*head(broken), *handed]
        call = ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, []), node)
        start = [] if broken is None else [ast.Assign([ast.Name(broken, ast.Store())], ast.Constant(False))]
        return [ast.copy_location(one, node) for one in (*start, *made, ast.Expr(call))]

    def _block(self, statements: Sequence[Any], *, tail: bool, loop: bool) -> list[Any]:
        """Statements in which every branch that can be is handed over; what follows one that leaves is its else."""
        found: list[Any] = []
        for number, one in enumerate(map(_as_branch, statements)):
            if not isinstance(one, ast.If):
                made = self.visit(one)
                found += made if isinstance(made, list) else [made]
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
        raw = not whole or own_scope(node) or (_leaves(both) if loop else _jumps(both))
        names = _stored(both)
        node.body = self._block(node.body, tail=tail and not raw, loop=loop)
        node.orelse = self._block(node.orelse, tail=tail and not raw, loop=loop)
        if raw:
            return [node]
        made, handed = self._made([node.body, node.orelse or [ast.Pass()]], node, names)
        call = ast.copy_location(ast.Call(ast.Name(IF, ast.Load()), [node.test, *handed], []), node)
        return [*made, ast.copy_location(ast.Return(call) if returns else ast.Expr(call), node)]

    def _made(
        self, bodies: Sequence[list[Any]], at: Any, names: set[str], given: Sequence[str] = ()
    ) -> tuple[list[ast.stmt], list[ast.expr]]:
        """Blocks as functions, and what hands them over, with what reads and what sets the variables they assign."""
        self._names |= names
        declared: list[ast.stmt] = [ast.Nonlocal(sorted(names))] if names else []
        made = [self._function(list(given), [*declared, *body]) for body in bodies]
        read = [later(ast.Name(one, ast.Load())) for one in sorted(names)]
        handed: list[ast.expr] = [*(ast.Name(one.name, ast.Load()) for one in made), ast.Tuple(list(read), ast.Load())]
        if names:
            targets = ast.Tuple([ast.Name(one, ast.Store()) for one in sorted(names)], ast.Store())
            made.append(
                self._function(["__values__"], [*declared, ast.Assign([targets], ast.Name("__values__", ast.Load()))])
            )
            handed.append(ast.Name(made[-1].name, ast.Load()))
        return [ast.copy_location(one, at) for one in made], handed

    def _function(self, given: list[str], body: list[Any]) -> ast.FunctionDef:
        return ast.FunctionDef(f"__block_{next(self._numbers)}__", parameters(given), body, [])


def later(value: ast.expr, *names: str) -> ast.expr:
    """An expression as a function of some names."""
    return ast.copy_location(ast.Lambda(parameters(names), value), value)


def _without_jumps(block: Sequence[Any], broken: str) -> list[Any] | None:
    """A loop's body whose jumps end branches, so that what follows is their else; ``None`` for other bodies.

    Where it is left the variable ``broken`` is set.
    """
    found: list[Any] = []
    for number, one in enumerate(block):
        if isinstance(one, ast.Continue | ast.Break):
            leaving = [ast.Assign([ast.Name(broken, ast.Store())], ast.Constant(True))]
            found += [ast.copy_location(it, one) for it in leaving] if isinstance(one, ast.Break) else []
            return found or [ast.copy_location(ast.Pass(), one)]
        if isinstance(one, ast.For | ast.While) or not _jumps([one]):
            found.append(one)
            continue
        if not isinstance(one, ast.If):
            return None
        rest, ways = list(block[number + 1 :]), [one.body, one.orelse]
        ends = [bool(way) and isinstance(way[-1], ast.Continue | ast.Break) for way in ways]
        if not any(ends):
            return None
        made = [_without_jumps(way if end else [*way, *rest], broken) for way, end in zip(ways, ends, strict=True)]
        if made[0] is None or made[1] is None:
            return None
        return [*found, ast.copy_location(ast.If(one.test, made[0], made[1]), one)]
    return found


def _as_branch(node: Any) -> Any:
    """An ``assert`` as the branch that it is."""
    if not isinstance(node, ast.Assert):
        return node
    error = ast.Call(ast.Name("AssertionError", ast.Load()), [node.msg] if node.msg else [], [])
    raised = ast.copy_location(ast.Raise(error, None), node)
    return ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), node.test), [raised], []), node)


def parameters(names: Sequence[str]) -> ast.arguments:
    """Plain parameters of a function."""
    given = [ast.arg(name) for name in names]
    return ast.arguments(posonlyargs=[], args=given, kwonlyargs=[], kw_defaults=[], defaults=[])


def _inside(nodes: Sequence[Any], without: tuple[type, ...] = _FUNCTIONS) -> Iterator[Any]:
    """The nodes of some statements, without those of functions and classes in them, or of other statements."""
    waiting = list(nodes)
    while waiting:
        one = waiting.pop()
        yield one
        if not isinstance(one, without):
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
    """Whether a block returns or raises on every way through it."""
    last = block[-1] if block else None
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, ast.Return | ast.Raise)


def _jumps(nodes: Sequence[Any]) -> bool:
    """Whether statements leave the loop around them, or catch errors."""
    leave = any(isinstance(one, ast.Break | ast.Continue) for one in _inside(nodes, _NOT_OWN))
    return leave or any(isinstance(one, ast.Try) for one in _inside(nodes))


def _leaves(nodes: Sequence[Any]) -> bool:
    """Whether statements leave the loop that they stand in, or the function."""
    return _jumps(nodes) or any(isinstance(one, ast.Return) for one in _inside(nodes))


def own_scope(node: ast.AST) -> bool:
    """Whether code inside a node has to stay in the function that it stands in."""
    return any(isinstance(one, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) for one in ast.walk(node))
