"""What a Python function is known again by in another process: its code and the plain values that it sees."""

from __future__ import annotations

import functools
import hashlib
import types
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.graph.registry import cells
from xttsbench.pipeline.purity.source import call_of, is_users

_DEEPEST: Final = 20


class PythonHasher:
    """Hashes Python functions by their code and by the plain values that they see."""

    def __init__(self, data: set[str]) -> None:
        self._data = data
        self._seen: dict[int, str] = {}
        self._alive: list[Any] = []
        """What is in ``_seen``, kept because an address may be used again."""

    def of(self, function: Any, depth: int = 0) -> str:
        """The hash of a function, bound method, partial or callable object."""
        if id(function) in self._seen or depth > _DEEPEST:
            return self._seen.get(id(function), "deep")
        self._seen[id(function)] = "recursion"
        self._alive.append(function)
        self._seen[id(function)] = found = self._of(function, depth)
        return found

    def _of(self, function: Any, depth: int) -> str:
        if isinstance(function, functools.partial):
            parts = [self._value(one, depth) for one in (*function.args, *sorted(function.keywords.items()))]
            return digest("partial", self.of(function.func, depth + 1), *parts)
        if isinstance(function, types.MethodType):
            return digest("method", self.of(function.__func__, depth + 1), self._object(function.__self__, depth))
        code = getattr(function, "__code__", None)
        if not isinstance(code, types.CodeType):
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is not None:
                return digest("wrapped", self.of(wrapped, depth + 1))
            call = call_of(function)
            if isinstance(call, types.FunctionType):
                return digest("object", self.of(call, depth + 1), self._object(function, depth))
            return digest("callable", str(getattr(function, "__qualname__", type(function).__qualname__)))
        parts = [_code(code)]
        parts.extend(self._value(one, depth) for one in (function.__defaults__ or ()))
        parts.extend(self._value(one, depth) for one in sorted((function.__kwdefaults__ or {}).items()))
        captured = cells(function)
        parts.extend(f"{name}={self._value(captured[name], depth)}" for name in sorted(captured))
        for name in sorted(_names(code)):
            if name in function.__globals__:
                value = function.__globals__[name]
                if is_users(value) or not callable(value):
                    parts.append(f"{name}={self._value(value, depth)}")
        return digest(*parts)

    def _object(self, value: Any, depth: int) -> str:
        """An object that a method belongs to: its type and the plain values that it holds."""
        if isinstance(value, type | types.ModuleType):
            return value.__name__
        held = getattr(value, "__dict__", {})
        parts = [f"{key}={self._value(held[key], depth + 1)}" for key in sorted(held, key=str)]
        return digest(type(value).__qualname__, *parts)

    def _value(self, value: Any, depth: int) -> str:
        """A plain value by its value, an array as data, a function of the user's by its code, all else by its type."""
        if depth > _DEEPEST:
            return "deep"
        if isinstance(value, PurePath) or (isinstance(value, str) and ("/" in value or "\\" in value)):
            self._data.add(digest("path", str(value)))
            return "path"
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, tuple | list) and len(value) <= 1000:
            return digest(type(value).__name__, *[self._value(one, depth + 1) for one in value])
        if isinstance(value, set | frozenset) and len(value) <= 1000:
            return digest("set", *sorted(self._value(one, depth + 1) for one in value))
        if isinstance(value, dict) and len(value) <= 1000:
            pairs = [self._value(key, depth + 1) + self._value(one, depth + 1) for key, one in value.items()]
            return digest("dict", *sorted(pairs))
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            if array.dtype != object and array.nbytes < 1 << 28:
                self._data.add(digest(array.dtype.name, str(array.shape), array.tobytes()))
            return f"array {array.dtype.name} {array.ndim}"
        if is_users(value) or is_users(call_of(value)) or isinstance(value, functools.partial | types.MethodType):
            return self.of(value, depth + 1)
        return type(value).__qualname__


def _code(code: types.CodeType) -> str:
    """Instructions, constants and names; no lines, no file, and no docstring."""
    constants = [
        _code(one) if isinstance(one, types.CodeType) else sorted(map(repr, one)) if isinstance(one, frozenset) else one
        for one in code.co_consts
    ]
    return digest(code.co_code, repr(constants), repr(code.co_names), str(code.co_argcount))


def _names(code: types.CodeType) -> set[str]:
    """Global names of a function and of those written inside it."""
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inner)


def digest(*parts: str | bytes) -> str:
    """A hash of several parts, each with its length."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()
