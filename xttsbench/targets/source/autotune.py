"""Arithmetic with ``AUTOTUNE``, which is the number -1: ``min`` with it is always it, ``max`` never."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Final, Literal

import libcst as cst

from xttsbench.records.source_fact import SourceFact
from xttsbench.targets.source.module import Module

Sure = Literal["is", "may be"]
_SMALLEST: Final = ("numpy.minimum", "tensorflow.minimum", "tensorflow.math.minimum")
_LARGEST: Final = ("numpy.maximum", "tensorflow.maximum", "tensorflow.math.maximum")
_ARITHMETIC: Final[dict[str, Callable[[int, int], float] | None]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": None,
}
_DEPTH: Final = 5


def autotune_arithmetic(module: Module) -> Iterator[SourceFact]:
    """Places that compute with ``AUTOTUNE`` as if it were a number of calls."""
    for call in module.of(cst.Call):
        yield from _extremum(module, call)
    for node in module.of(cst.BinaryOperation):
        yield from _operation(module, node, node.left, node.operator, node.right)
    for change in module.of(cst.AugAssign):
        if isinstance(change.target, cst.Name):
            yield from _operation(module, change, change.target, change.operator, change.value)


def _extremum(module: Module, call: cst.Call) -> Iterator[SourceFact]:
    dotted = module.dotted(call.func)
    smallest = module.is_builtin(call.func, "min") or dotted in _SMALLEST
    if not smallest and not module.is_builtin(call.func, "max") and dotted not in _LARGEST:
        return
    given = [one.value for one in call.args if one.keyword is None]
    if len(given) == 1 and isinstance(given[0], cst.List | cst.Tuple | cst.Set):
        given = [one.value for one in given[0].elements]
    sure = [_autotune(module, one) for one in given]
    if len(given) < 2 or not any(sure) or all(sure):
        return
    others = ", ".join(module.shown(one) for one, found in zip(given, sure, strict=True) if not found)[:60]
    said = f"smallest is always AUTOTUNE and {others} bounds nothing" if smallest else ""
    detail = f"AUTOTUNE is -1, so the {said or f'largest is always {others} and nothing is tuned'}"
    yield module.fact("autotune-arithmetic", call, detail if "is" in sure else f"one of them may be AUTOTUNE; {detail}")


def _operation(
    module: Module, node: cst.CSTNode, left: cst.BaseExpression, symbol: cst.CSTNode, right: cst.BaseExpression
) -> Iterator[SourceFact]:
    sign = module.code(symbol).strip().removesuffix("=")
    if sign not in _ARITHMETIC or isinstance(left, cst.BaseString):
        return
    sure = [_autotune(module, left), _autotune(module, right)]
    if not any(sure):
        return
    numbers = [-1 if told else module.integer(side) for told, side in zip(sure, (left, right), strict=True)]
    detail = "AUTOTUNE is -1" if "is" in sure else "one side may be AUTOTUNE, which is -1"
    if (result := _result(sign, *numbers)) is not None:
        written = f"{module.shown(left)} {sign} {module.shown(right)}"[:60]
        comes_to = "AUTOTUNE again" if result == -1 else "no number of calls"
        detail += f", so {written} is {result:g}: {comes_to}"
    yield module.fact("autotune-arithmetic", node, detail)


def _result(sign: str, left: int | None, right: int | None) -> float | None:
    compute = _ARITHMETIC[sign]
    try:
        return None if compute is None or left is None or right is None else float(compute(left, right))
    except ZeroDivisionError:
        return None


def _autotune(module: Module, node: cst.BaseExpression, depth: int = _DEPTH) -> Sure | None:
    """Whether an expression is ``AUTOTUNE``, or may be it where nothing before it asks."""
    if module.dotted(node).rpartition(".")[2] == "AUTOTUNE":
        return "is"
    if not depth:
        return None
    if isinstance(node, cst.IfExp):
        found = {_autotune(module, node.body, depth - 1), _autotune(module, node.orelse, depth - 1)}
        return None if found == {None} else "is" if found == {"is"} else "may be"
    if isinstance(node, cst.Call) and module.is_builtin(node.func, "int") and len(node.args) == 1:
        return _autotune(module, node.args[0].value, depth - 1)
    if not isinstance(node, cst.Name | cst.Attribute):
        return None
    told: list[Sure | None] = [_autotune(module, value, depth - 1) for value in module.values(node)]
    parameter = module.parameter(node) if isinstance(node, cst.Name) else None
    if not told and parameter is not None and parameter.default is not None:
        told = ["may be" if _autotune(module, parameter.default, depth - 1) else None]
    if not any(told):
        return None
    return "is" if all(one == "is" for one in told) else None if _asked(module, node) else "may be"


def _asked(module: Module, node: cst.Name | cst.Attribute) -> bool:
    """Whether the code compares that name with something: then it knows that it may be ``AUTOTUNE``."""
    name, scope = module.code(node), module.scope(node)
    return any(
        module.code(side) == name
        for found in module.of(cst.Comparison)
        if module.scope(found) is scope
        for side in (found.left, *(one.comparator for one in found.comparisons))
    )
