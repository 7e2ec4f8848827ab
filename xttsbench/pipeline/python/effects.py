"""Effects of Python functions as they are read: what they change or draw, and what of others they read."""

from __future__ import annotations

import ast
import types
from dataclasses import dataclass
from typing import Any, Final, Literal

from xttsbench.pipeline.python import values
from xttsbench.pipeline.python.mutators import MUTATORS
from xttsbench.pipeline.python.values import UNKNOWN, Scope, Value

Kind = Literal["state", "random", "clock", "read"]
_NAMED: Final = types.ModuleType | types.FunctionType | types.BuiltinFunctionType | type


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that was found."""

    kind: Kind
    text: str


class Effects(list[Effect]):
    """Effects in the order of reading.

    Attributes:
        variables: global and captured variables that were read: code of the reader and name -> where, in words.
        attributes: attributes of shared objects that were read: their class and name -> where, in words.
    """

    def __init__(self) -> None:
        super().__init__()
        self.variables: dict[tuple[types.CodeType, str], str] = {}
        self.attributes: dict[tuple[type, str], str] = {}

    def report(self, kind: Kind, node: Any, scope: Scope, text: str) -> None:
        """Add an effect, once, with the place of its node."""
        effect = Effect(kind, f"{scope.where}:{node.lineno} {text}")
        if effect not in self:
            self.append(effect)

    def taken(self, value: Value, node: Any, scope: Scope) -> None:
        """Add what takes elements of a shared iterator from everyone else."""
        if value.shared and value.obj is not UNKNOWN and hasattr(type(value.obj), "__next__"):
            self.report("state", node, scope, f"takes elements from {value.words}")

    def reads_variable(self, name: str, value: Value, node: ast.expr, scope: Scope) -> None:
        """Note a global or captured variable that is read."""
        if values.is_variable(value.obj):
            self.report("read", node, scope, f"reads the variable {name!r}, which may be assigned anywhere")
        elif not isinstance(value.obj, _NAMED):
            self.variables.setdefault((scope.function.__code__, name), f"{scope.where}:{node.lineno} reads {name!r}")

    def reads_attribute(self, base: Value, name: str, node: ast.expr, scope: Scope) -> None:
        """Note an attribute of a shared object that is read."""
        for obj in base.objects if base.shared else ():
            if isinstance(obj, types.ModuleType | type):
                continue
            found = values.held_by(obj).get(name, UNKNOWN)
            if found is UNKNOWN:
                found = values.attribute(Value(True, obj), name).obj  # of its class, which a class method may set
                if found is UNKNOWN or not isinstance(found, values.PLAIN | values.MUTABLE):
                    continue
            if values.is_variable(found):
                self.report("read", node, scope, f"reads the variable {name!r}, which may be assigned anywhere")
            else:
                self.attributes.setdefault((type(obj), name), f"{scope.where}:{node.lineno} reads {name!r}")

    def called(self, receiver: Value, method: str, node: ast.Call, scope: Scope) -> None:
        """Add a method that changes its object, told by its name: its code is not the user's."""
        if not method or not receiver.shared or values.harmless(receiver.obj):
            return
        if receiver.obj is not UNKNOWN and (values.immutable(receiver.obj) or values.of_one_thread(receiver.obj)):
            return
        if method in MUTATORS or values.taken_from(receiver.obj, method, with_arguments=bool(node.args)):
            self.report("state", node, scope, f"calls {method}() of {receiver.words}")
