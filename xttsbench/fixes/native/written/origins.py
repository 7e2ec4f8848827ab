"""Origins of the arrays that a traced function computes with and is not given: a name of the user's, or a call.

A window, a filter bank or a table of numbers is made once while the function is traced. In its text it is what made it:
``np.hanning(1024)``, or the name of a variable at module level.
"""

from __future__ import annotations

import ast
import operator
import types
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.source import cells, whose

SYMBOLS: Final[Mapping[type[ast.operator], str]] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"},
    **{ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>"},
}
OPERATORS: Final[Mapping[str, Any]] = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv},
    **{"%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_},
    **{"^": operator.xor, "<<": operator.lshift, ">>": operator.rshift},
}
_LONGEST: Final = 160
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


class Origins:
    """Arrays with the text that gives each, in the scope of one function."""

    def __init__(self, function: Any) -> None:
        """Take a function or a bound method."""
        inner = getattr(function, "__func__", function)
        self.names: dict[str, Any] = {**getattr(inner, "__globals__", {}), **cells(inner)}
        """Objects by their names in that scope."""
        owner = getattr(function, "__self__", None)
        if owner is not None and inner.__code__.co_varnames:
            self.names[inner.__code__.co_varnames[0]] = owner
        self._made: list[tuple[Any, str]] = []  # arrays that calls and operators made, which nothing else holds
        self.arrays: list[tuple[np.ndarray[Any, Any], str]] = []
        """All of them, as they were when they were made, each with its text."""
        for name, value in self.names.items():
            if name.startswith("__"):
                continue
            held = [(name, value)]
            if _is_users_object(value):
                held += [(f"{name}.{key}", one) for key, one in vars(value).items()]
            for text, one in held:
                if isinstance(one, np.ndarray):
                    self.note(one, text)

    def call(self, function: Any, arguments: tuple[Any, ...], named: Mapping[str, Any], result: Any) -> None:
        """Note the array that a call of something gave."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, np.ndarray):
            held = self.text(owner)
            name = None if held is None else f"{_operand(held)}.{function.__name__}"
        else:
            name = self.text(function)
        given = [self.text(one) for one in arguments]
        by_name = {key: self.text(one) for key, one in named.items()}
        if name is not None and None not in given and None not in by_name.values():
            parts = [*map(str, given), *(f"{key}={one}" for key, one in by_name.items())]
            self.note(result, f"{name}({', '.join(parts)})")

    def operator(self, symbol: str, first: Any, second: Any, result: Any) -> None:
        """Note the array that an operator gave."""
        one, other = self.text(first), self.text(second)
        if one is not None and other is not None:
            self.note(result, f"{_operand(one)} {symbol} {_operand(other)}")

    def item(self, value: Any, key: Any, result: Any) -> None:
        """Note the array that a subscript gave."""
        one = self.text(value)
        keys = [self._key(part) for part in (key if isinstance(key, tuple) else (key,))]
        if one is not None and None not in keys:
            self.note(result, f"{_operand(one)}[{', '.join(map(str, keys))}]")

    def _key(self, key: Any) -> str | None:
        if not isinstance(key, slice):
            return self.text(key)
        parts = ["" if part is None else self.text(part) for part in (key.start, key.stop)]
        if None in parts:
            return None
        step = "" if key.step is None else f":{self.text(key.step)}"
        return f"{parts[0]}:{parts[1]}{step}"

    def note(self, array: Any, text: str) -> None:
        """Note the text that gives an array."""
        if len(text) <= _LONGEST:
            self._made.append((array, text))
            self.arrays.append((array.copy(), text))

    def text(self, value: Any) -> str | None:
        """An expression that gives a value in the scope of the function; ``None`` where there is none."""
        if type(value) in _PLAIN:
            return "..." if value is Ellipsis else repr(value) if repr(value) not in ("inf", "-inf", "nan") else None
        for made, text in self._made:
            if made is value:
                return text
        if isinstance(value, list | tuple):
            parts = [self.text(one) for one in value]
            if None in parts:
                return None
            inside = ", ".join(map(str, parts))
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(parts) == 1)})"
        if isinstance(value, np.dtype):
            return repr(value.name)
        return self._name(value)

    def _name(self, value: Any) -> str | None:
        """A name at module level, or that of something in a module which has one."""
        own, where = getattr(value, "__name__", None), str(getattr(value, "__module__", None) or "numpy")
        for name, held in self.names.items():
            if held is value and not name.startswith("__"):
                return name
        for name, held in self.names.items():
            if not isinstance(held, types.ModuleType) or not isinstance(own, str) or name.startswith("__"):
                continue
            path: str = name
            inside: Any = held
            for part in ["", *where.removeprefix(held.__name__).strip(".").split(".")]:
                if part:
                    inside = getattr(inside, part, None)
                    path += f".{part}"
                if getattr(inside, own, None) is value:
                    return f"{path}.{own}"
        return None


def _is_users_object(value: Any) -> bool:
    """Whether a value is an object of a class of the user's, whose attributes are plain."""
    kind = type(value)
    call = getattr(kind, "__init__", None)
    file = getattr(getattr(call, "__code__", None), "co_filename", None)
    return file is not None and whose(file) == "user" and hasattr(value, "__dict__")


def _operand(text: str) -> str:
    """An expression as part of a larger one."""
    node = ast.parse(text, mode="eval").body
    plain = isinstance(node, ast.Name | ast.Call | ast.Subscript | ast.Attribute | ast.Constant | ast.Tuple | ast.List)
    return text if plain else f"({text})"
