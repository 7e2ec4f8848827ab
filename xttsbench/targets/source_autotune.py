"""Arithmetic with ``AUTOTUNE``, which is the number -1: ``min`` with it is always it, ``max`` never."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Final, Literal

from xttsbench.records.source_fact import SourceFact
from xttsbench.targets.source_names import Source

Sure = Literal["is", "may be"]
_AUTOTUNE: Final = ("tensorflow.data.AUTOTUNE", "tensorflow.data.experimental.AUTOTUNE")
_SMALLEST: Final = ("numpy.minimum", "tensorflow.minimum", "tensorflow.math.minimum")
_LARGEST: Final = ("numpy.maximum", "tensorflow.maximum", "tensorflow.math.maximum")
_SIGNS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_ARITHMETIC: Final[dict[str, Callable[[int, int], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_DEPTH: Final = 5


def autotune_arithmetic(source: Source) -> Iterator[SourceFact]:
    """Places that compute with ``AUTOTUNE`` as if it were a number of calls."""
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield from _extremum(source, node)
        elif isinstance(node, ast.BinOp):
            yield from _operation(source, node, node.left, node.op, node.right)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            left = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
            yield from _operation(source, node, left, node.op, node.value, at=node.target)


def _extremum(source: Source, call: ast.Call) -> Iterator[SourceFact]:
    dotted = source.dotted(call.func) or ""
    smallest = source.is_builtin(call.func, "min") or dotted in _SMALLEST
    if not smallest and not source.is_builtin(call.func, "max") and dotted not in _LARGEST:
        return
    given: list[ast.expr] = call.args
    if len(given) == 1 and isinstance(given[0], ast.List | ast.Tuple | ast.Set):
        given = given[0].elts
    sure = [_autotune(source, one) for one in given]
    if len(given) < 2 or not any(sure) or all(sure):
        return
    word = "is" if "is" in sure else "may be"
    others = ", ".join(ast.unparse(one) for one, found in zip(given, sure, strict=True) if not found)[:60]
    if smallest:
        detail = f"AUTOTUNE is -1, so the smallest is always AUTOTUNE and {others} bounds nothing"
    else:
        detail = f"AUTOTUNE is -1, so the largest is always {others} and nothing is tuned"
    if word == "may be":
        detail = f"one of them may be AUTOTUNE; {detail}"
    yield source.fact("autotune-arithmetic", call, detail)


def _operation(
    source: Source,
    node: ast.BinOp | ast.AugAssign,
    left: ast.expr,
    sign: ast.operator,
    right: ast.expr,
    *,
    at: ast.Name | None = None,
) -> Iterator[SourceFact]:
    is_text = isinstance(left, ast.JoinedStr) or (isinstance(left, ast.Constant) and isinstance(left.value, str))
    if type(sign) not in _SIGNS or is_text:
        return
    sure_left = _autotune(source, at or left)
    sure_right = _autotune(source, right)
    if not sure_left and not sure_right:
        return
    written = f"{ast.unparse(left)} {_SIGNS[type(sign)]} {ast.unparse(right)}"[:60]
    numbers = (-1 if sure_left else source.integer(at or left), -1 if sure_right else source.integer(right))
    result = _result(_SIGNS[type(sign)], *numbers)
    comes_to = f", so {written} is {result:g}" if result is not None else ""
    what = "" if result is None else ": AUTOTUNE again" if result == -1 else ": no number of calls"
    word = "is" if "is" in (sure_left, sure_right) else "may be"
    name = "AUTOTUNE is -1" if word == "is" else "one side may be AUTOTUNE, which is -1"
    yield source.fact("autotune-arithmetic", node, f"{name}{comes_to}{what}")


def _result(sign: str, left: int | None, right: int | None) -> float | None:
    if left is None or right is None:
        return None
    try:
        return float(_ARITHMETIC[sign](left, right)) if sign in _ARITHMETIC else None
    except ZeroDivisionError:
        return None


def _autotune(source: Source, node: ast.expr, depth: int = _DEPTH) -> Sure | None:
    """Whether an expression is ``AUTOTUNE``, or may be it where nothing before it asks."""
    dotted = source.dotted(node)
    if dotted in _AUTOTUNE or (dotted or "").rpartition(".")[2] == "AUTOTUNE":
        return "is"
    if not depth:
        return None
    if isinstance(node, ast.IfExp):
        found = {_autotune(source, node.body, depth - 1), _autotune(source, node.orelse, depth - 1)}
        return None if found == {None} else "is" if found == {"is"} else "may be"
    if isinstance(node, ast.Call) and source.is_builtin(node.func, "int") and len(node.args) == 1:
        return _autotune(source, node.args[0], depth - 1)
    if not isinstance(node, ast.Name | ast.Attribute):
        return None
    values = source.values(node)
    told: list[Sure | None] = [_autotune(source, value, depth - 1) for value in values]
    if isinstance(node, ast.Name) and source.is_parameter(node) and not values:
        default = source.default(node)
        told = [] if default is None or not _autotune(source, default, depth - 1) else ["may be"]
    if not any(told):
        return None
    if all(one == "is" for one in told):
        return "is"
    return None if _asked(source, node) else "may be"


def _asked(source: Source, node: ast.Name | ast.Attribute) -> bool:
    """Whether the code compares that name with something: then it knows that it may be ``AUTOTUNE``."""
    name = ast.unparse(node)
    scope = source.scope(node)
    return any(
        isinstance(found, ast.Compare)
        and source.scope(found) is scope
        and any(ast.unparse(side) == name for side in (found.left, *found.comparators))
        for found in source.nodes
    )
