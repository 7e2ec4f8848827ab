"""The names of a Python function while it is read, and what was found in it."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field
from typing import Any, Literal

from xttsbench.pipeline.graph.registry import cells
from xttsbench.pipeline.purity.values import LOCAL, UNKNOWN, Value


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that was found."""

    kind: Literal["state", "random", "clock", "read"]
    text: str


@dataclass
class Scope:
    """The names of one function while it is read."""

    function: Any
    where: str
    names: dict[str, Value] = field(default_factory=dict)
    outer: Scope | None = None
    """Of a function that is written inside another one that is read."""
    declared: set[str] = field(default_factory=set)
    """Names that are declared global or nonlocal."""
    returned: Value = LOCAL

    def value(self, name: str) -> Value:
        """What a name stands for."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        captured = cells(self.function)
        if name in captured:
            return Value(True, captured[name], name)
        everything = getattr(self.function, "__globals__", {})
        if name in everything:
            return Value(True, everything[name], name)
        return Value(True, getattr(builtins, name, UNKNOWN), name)

    def inner(self) -> Scope:
        """The scope of a function that is written here."""
        return Scope(self.function, self.where, outer=self)

    def store(self, name: str, value: Value) -> bool:
        """Remember what a name stands for; ``False`` where the name belongs to nobody that is read."""
        if name not in self.declared:
            self.names[name] = value
            return True
        scope = self.outer
        while scope is not None:
            if name in scope.names and name not in scope.declared:
                scope.names[name] = value
                return True
            scope = scope.outer
        return False
