"""The loops of a generator function: which are around its elements, and which of them holds the work.

``yield from`` and generator expressions are loops, too, and are written as such here. Pure: trees of the source.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence
from typing import Any, Final

from xttsbench.pipeline.generators.names import copied, read, stored, yields

_EPOCHS: Final = re.compile(r"epoch|pass|round|repeat|^_+$", re.IGNORECASE)
_QUICK: Final = frozenset(
    {"range", "len", "enumerate", "zip", "reversed", "sorted", "list", "tuple", "iter", "int", "float", "str", "min"}
    | {"max", "count", "repeat", "cycle", "super", "dict", "set", "isinstance"}
    | {"float32", "float64", "int32", "int64", "asarray", "array", "astype", "bool"}
)
"""Calls that are no work to speak of."""


def normalised(function: Any) -> Any:
    """A copy in which ``yield from`` is a loop, and a generator expression a function of its outermost source."""
    if isinstance(function, ast.GeneratorExp):
        source = ast.copy_location(ast.Name("source", ast.Load()), function)
        arguments = ast.arguments([], [ast.arg("source")], None, [], [], None, [])
        whole = ast.FunctionDef("genexpr", arguments, [_loop_of(copied(function), source)], [])
        return ast.fix_missing_locations(ast.copy_location(whole, function))
    return ast.fix_missing_locations(_Delegated().visit(copied(function)))


class _Delegated(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> Any:
        if not isinstance(node.value, ast.YieldFrom):
            return node
        given: Any = node.value.value
        if isinstance(given, ast.GeneratorExp):
            return _loop_of(given, given.generators[0].iter)
        target, each = ast.Name("_xttsbench_each", ast.Store()), ast.Name("_xttsbench_each", ast.Load())
        if _maps(given):
            function, source = given.args
            made = ast.For(target, source, [ast.Expr(ast.Yield(ast.Call(function, [each], [])))], [])
        else:
            made = ast.For(target, given, [ast.Expr(ast.Yield(each))], [])
        return placed(node, made)


def _maps(node: Any) -> bool:
    """Whether it is ``map(f, items)`` with a function by its name, which a loop may look up for each item."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "map"
    return named and len(node.args) == 2 and isinstance(node.args[0], ast.Name | ast.Attribute)


def _loop_of(given: ast.GeneratorExp, source: ast.expr) -> ast.stmt:
    inner: ast.stmt = placed(given.elt, ast.Expr(ast.Yield(given.elt)))
    for number, one in reversed(list(enumerate(given.generators))):
        for condition in reversed(one.ifs):
            inner = placed(given, ast.If(condition, [inner], []))
        inner = placed(given, ast.For(one.target, source if number == 0 else one.iter, [inner], []))
    return inner


def placed(place: Any, node: Any) -> Any:
    """A new node, and those in it that have no place, at the place of another."""
    ast.copy_location(node, place)
    for one in ast.walk(node):
        if hasattr(one, "_attributes") and "lineno" in one._attributes and not hasattr(one, "lineno"):
            ast.copy_location(one, place)
    return node


def chain(function: ast.FunctionDef) -> list[Any]:
    """The compound statements around all elements, the outermost first."""
    found: list[Any] = []
    statements: list[ast.stmt] = function.body
    while True:
        holding = [one for one in statements if yields(one)]
        every = [] if len(holding) != 1 else blocks(holding[0])
        inside = [block for block in every if any(map(yields, block))]
        if len(inside) != 1 or inside[0] is not every[0]:
            return found
        found.append(holding[0])
        statements = inside[0]


def blocks(node: Any) -> list[list[ast.stmt]]:
    """The blocks of statements in a compound one, the one that runs first in front."""
    if isinstance(node, ast.For | ast.While | ast.If):
        return [node.body, node.orelse]
    if isinstance(node, ast.With):
        return [node.body]
    if isinstance(node, ast.Try):
        return [node.body, *(one.body for one in node.handlers), node.orelse, node.finalbody]
    return []


def by_work(loops: Sequence[Any]) -> list[Any]:
    """The loops, the one whose body holds the work first; an epoch is no item."""
    for outer, inner in itertools.pairwise(loops):
        if not isinstance(outer, ast.For) or any(_EPOCHS.search(name) for name in stored(outer.target)):
            continue
        made = [one for one in outer.body if not yields(one) and works(one)]
        source = inner.iter if isinstance(inner, ast.For) else inner.test
        wanted = read(source) & (stored(outer.target) | stored(made))
        if wanted & stored(made) or (wanted and works(source)):
            return [outer, *(one for one in reversed(loops) if one is not outer)]
    return list(reversed(loops))


def works(node: Any) -> bool:
    """Whether something is called that may be work."""
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return any(getattr(one, "attr", getattr(one, "id", "")) not in _QUICK for one in calls)
