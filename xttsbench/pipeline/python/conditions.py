"""Conditions in a Python function that are settled while its pipeline runs: tests of settings.

A setting is a plain value (a truth value, a number, a text, ``None``) that was there before the call: an attribute of a
configuration, a global. Its condition is taken at the value that it has; who sets it meanwhile is looked for as for all
that is read.
"""

from __future__ import annotations

import ast
import operator
import types
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from xttsbench.pipeline.definitions import place
from xttsbench.pipeline.python import values
from xttsbench.pipeline.python.values import UNKNOWN, Scope, Value

_COMPARED: Final[dict[type[ast.cmpop], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Assumed:
    """A setting and the value at which a condition was taken.

    Attributes:
        name: as the outermost function would write it, ``self.config.enable_pitch_shift``.
        value: at which it was taken.
        file, line: of the condition.
        held_by: names of the holder's class and of those that it inherits from; empty for a global.
    """

    name: str
    value: Any
    file: str
    line: int
    held_by: tuple[str, ...] = ()


class Conditions:
    """Truth of conditions; ``assumed`` has the settings that it rests on, in the order of reading.

    Args:
        read: reads an expression, with its effects.
        settled: names of the settings that are taken at their value; ``None`` for all.
    """

    def __init__(self, read: Callable[[ast.expr, Scope], Value], settled: Collection[str] | None) -> None:
        self._read, self._settled = read, settled
        self.assumed: list[Assumed] = []

    def truth(self, node: ast.expr, scope: Scope) -> bool | None:
        """Truth of a condition; ``None`` where it may be either. What is not evaluated for it is not read."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                holds = self.truth(inner, scope)
                return None if holds is None else not holds
            case ast.BoolOp(op=op, values=parts):
                decides, seen = isinstance(op, ast.Or), list[bool | None]()
                for part in parts:
                    seen.append(self.truth(part, scope))
                    if seen[-1] is decides:
                        return decides
                return None if None in seen else not decides
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
                one, other = self._plain(left, scope), self._plain(right, scope)
                if one is not UNKNOWN and other is not UNKNOWN:
                    with suppress(TypeError):
                        return bool(_COMPARED[type(op)](one, other))
        found = self._plain(node, scope)
        if found is not UNKNOWN:
            return bool(found)
        self._read(node, scope)
        return None

    def _plain(self, node: ast.expr, scope: Scope) -> Any:
        """Value of a constant or of a setting; ``UNKNOWN`` of all else."""
        holder: Any = None
        match node:
            case ast.Constant(value=found):
                return found
            case ast.Name(id=name) if name not in scope.names:
                value = scope.value(name)
            case ast.Attribute(value=held, attr=name):
                base = self._read(held, scope)
                if not base.shared or base.others or base.obj is UNKNOWN:
                    return UNKNOWN
                value, holder = values.attribute(base, name), base.obj
            case _:
                return UNKNOWN
        if value.others or not isinstance(value.obj, values.PLAIN):
            return UNKNOWN
        if self._settled is not None and value.name not in self._settled:
            return UNKNOWN
        self._read(node, scope)  # others may change it
        kinds = () if holder is None or isinstance(holder, types.ModuleType) else type(holder).__mro__[:-1]
        names = tuple(kind.__name__ for kind in kinds)
        one = Assumed(value.name, value.obj, place(scope.function.__code__)[0], node.lineno, names)
        if one not in self.assumed:
            self.assumed.append(one)
        return value.obj
