"""Reading the expressions of a Python function: what each stands for, and what its calls change or draw."""

from __future__ import annotations

import ast
import functools
import types
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final, Literal

from xttsbench.pipeline.purity.implicit_calls import (
    COMPARED,
    CONVERTED,
    ITERATED,
    OPERATORS,
    constant_item,
    held_callables,
    looked_up,
    special_methods,
    taken_apart,
    users_function,
)
from xttsbench.pipeline.purity.library_calls import clock, draws, seeds, setter, writes_into
from xttsbench.pipeline.purity.scope import Scope, Told
from xttsbench.pipeline.purity.source import call_of, is_users, parameters_of
from xttsbench.pipeline.purity.values import (
    GENERATORS,
    LOCAL,
    MUTATORS,
    SAME_MEMORY,
    UNKNOWN,
    Value,
    attribute,
    candidates,
    element,
    harmless,
    immutable,
    is_iterator,
    is_variable,
    join,
    of_one_thread,
    taken_from,
)

_CONSUMERS: Final = (
    list, tuple, set, dict, zip, enumerate, map, filter, sum, min, max, sorted, any, all, iter, reversed
)  # fmt: skip
_ELEMENTS: Final = (zip, enumerate, map, filter, iter, reversed)


_NAMED: Final = types.ModuleType | types.FunctionType | types.BuiltinFunctionType | type


class ExpressionReader(ABC):
    """Reads expressions; statements and whole functions are its subclass's."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.variables: dict[tuple[types.CodeType, str], str] = {}
        """Global and captured variables that were read: code of the reader and name -> where, in words."""
        self.attributes: dict[tuple[type, str], str] = {}
        """Attributes of shared objects that were read: their class and name -> where, in words."""
        self._depth = 0

    @abstractmethod
    def function(self, function: Any, given: dict[str, Value] | None = None) -> Value:
        """Read a function of the user's that is called, and say what it returns."""

    @abstractmethod
    def _store(self, target: ast.expr, value: Value, scope: Scope) -> None: ...

    @abstractmethod
    def _written_here(self, node: Any, scope: Scope) -> Value: ...

    def _tell(self, kind: Literal["state", "random", "clock", "read"], node: Any, scope: Scope, text: str) -> None:
        told = Told(kind, f"{scope.where}:{node.lineno} {text}")
        if told not in self.told:
            self.told.append(told)

    def _result(self, value: Value, node: Any, scope: Scope) -> Value:
        """A clock counts where its time becomes a part of the outermost result."""
        if value.clock and self._depth <= 1 and scope.outer is None:
            self._tell("clock", node, scope, "returns what a clock says")
        return value

    def value(self, node: ast.expr, scope: Scope) -> Value:
        """What an expression stands for; what its parts do is told."""
        if isinstance(node, ast.Name):
            found = scope.value(node.id)
            if found.shared:
                self._read_variable(node.id, found, node, scope)
            return found
        if isinstance(node, ast.Attribute):
            base = self.value(node.value, scope)
            self._read_attribute(base, node.attr, node, scope)
            return self._special(base, (node.attr,), attribute(base, node.attr))
        if isinstance(node, ast.Subscript):
            base = self.value(node.value, scope)
            self.value(node.slice, scope)
            item = constant_item(base, node.slice)
            if item is not None:
                return item
            found = element(base, whole_slice=isinstance(node.slice, ast.Slice))
            return self._special(base, ("__getitem__", "__missing__"), found)
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.IfExp):
            self.value(node.test, scope)
            return join(self.value(node.body, scope), self.value(node.orelse, scope))
        if isinstance(node, ast.BoolOp):
            return functools.reduce(join, [self.value(one, scope) for one in node.values])
        if isinstance(node, ast.NamedExpr):
            value = self.value(node.value, scope)
            self._store(node.target, value, scope)
            return value
        if isinstance(node, ast.Lambda):
            return self._written_here(node, scope)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            return self._comprehension(node, scope)
        if isinstance(node, ast.Compare):  # a deadline is no part of the result
            for one in (node.left, *node.comparators):
                self._special(self.value(one, scope), COMPARED)
            return LOCAL
        if isinstance(node, ast.Starred | ast.Await):
            return self.value(node.value, scope)
        if isinstance(node, ast.Yield | ast.YieldFrom):
            if node.value is not None:
                self._result(self.value(node.value, scope), node, scope)
            return LOCAL
        parts = [self.value(child, scope) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        for part in parts:
            self._special(part, OPERATORS)
        return Value(clock=any(part.clock for part in parts))

    def _comprehension(self, node: Any, scope: Scope) -> Value:
        inner = scope.inner()
        for generator in node.generators:
            self._store(generator.target, self._iterated(generator.iter, inner), inner)
            for condition in generator.ifs:
                self.value(condition, inner)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return Value(clock=any([self.value(part, inner).clock for part in parts]))

    def _iterated(self, node: ast.expr, scope: Scope) -> Value:
        value = self.value(node, scope)
        self._consume(value, node, scope)
        return self._special(value, ITERATED, element(value))

    def _consume(self, value: Value, node: Any, scope: Scope) -> None:
        if is_iterator(value):
            self._tell("state", node, scope, f"takes elements from {value.words}")

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        receiver, method = LOCAL, ""
        if isinstance(node.func, ast.Attribute):
            receiver, method = self.value(node.func.value, scope), node.func.attr
            callee = attribute(receiver, method)
        else:
            callee = self.value(node.func, scope)
        given = [self.value(one, scope) for one in node.args]
        named = {one.arg: self.value(one.value, scope) for one in node.keywords}
        timed = Value(clock=any(one.clock for one in (*given, *named.values())))
        function = callee.obj
        if isinstance(function, functools.partial):
            function, bound, bound_by_name = taken_apart(function)
            given, named = [*bound, *given], {**bound_by_name, **named}
        if isinstance(receiver.obj, GENERATORS) and receiver.shared and not method.startswith(("get", "spawn")):
            self._tell("random", node, scope, f"draws from {receiver.words}")
            self._tell("state", node, scope, f"draws from {receiver.words}, which goes on from call to call")
            return LOCAL
        if seeds(function):
            self._tell("state", node, scope, "seeds the random numbers of the whole process")
        elif (drawn := draws(function, bool(given or named))) is not None:
            self._tell("random", node, scope, f"draws random numbers ({drawn})")
        if clock(function):
            return Value(clock=True)
        if (found := looked_up(function, node, given, scope)) is not None:
            return found
        changed = writes_into(function, given, named)
        if changed is not None and changed.shared:
            self._tell("state", node, scope, f"writes into {changed.words}")
        if setter(function) and given and given[0].shared:
            self._tell("state", node, scope, f"sets an attribute of {given[0].words}")
        if function is next and given:
            if given[0].shared:
                self._tell("state", node, scope, f"takes the next element of {given[0].words}")
            return element(given[0])
        if _in(function, _CONSUMERS):
            for one in given:
                self._consume(one, node, scope)
                self._special(one, ITERATED)
            self._given_away([*given, *named.values()])
            kept = [one for one in given if one.shared or one.obj is not UNKNOWN]
            return functools.reduce(join, kept) if kept and _in(function, _ELEMENTS) else timed
        for other in callee.others:
            self._followed(other, receiver, given, named)
        followed = self._followed(function, receiver, given, named)
        if followed is not None:
            return followed
        self._given_away([*given, *named.values()])
        self._held(function)
        if isinstance(function, type | types.BuiltinFunctionType):
            for one in given:  # len(), str(), int(), abs()
                self._special(one, CONVERTED)
        self._method(receiver, method, node, scope)
        if method in SAME_MEMORY and receiver.shared and not harmless(receiver.obj):
            return element(receiver) if method == "get" else receiver
        if method in ("pop", "setdefault") and receiver.shared:
            return element(receiver)
        return timed

    def _special(self, value: Value, names: Iterable[str], otherwise: Value = LOCAL) -> Value:
        """Read the methods and properties that Python runs by itself where they are the user's.

        Returns:
            What they return; ``otherwise`` where there are none.
        """
        found = [self.function(one) for obj in candidates(value) for one in special_methods(obj, names)]
        return found[-1] if found else otherwise

    def _given_away(self, given: Iterable[Value]) -> None:
        """Functions of the user's that a library is given: it will call them."""
        for obj in (obj for value in given for obj in candidates(value)):
            if isinstance(obj, functools.partial | types.FunctionType | types.MethodType):
                self._read_alone(obj)

    def _held(self, function: Any) -> None:
        """Functions of the user's that a library's object holds: calling it calls them."""
        for one in held_callables(function):
            self._read_alone(one)

    def _read_alone(self, function: Any) -> None:
        if isinstance(function, functools.partial):
            self.partial(function)
        elif (run := users_function(function)) is not None:
            self.function(run)

    def partial(self, function: Any) -> None:
        """Read a function of the user's with the arguments that ``functools.partial`` has bound to it."""
        function, positional, named = taken_apart(function)
        self._followed(function, LOCAL, positional, named)

    def _read_variable(self, name: str, value: Value, node: ast.expr, scope: Scope) -> None:
        if is_variable(value.obj):
            self._tell("read", node, scope, f"reads the variable {name!r}, which may be assigned anywhere")
        elif not isinstance(value.obj, _NAMED):
            self.variables.setdefault((scope.function.__code__, name), f"{scope.where}:{node.lineno} reads {name!r}")

    def _read_attribute(self, base: Value, name: str, node: ast.expr, scope: Scope) -> None:
        for obj in candidates(base) if base.shared else ():
            held = getattr(obj, "__dict__", None)
            if not isinstance(held, dict) or name not in held or isinstance(obj, types.ModuleType | type):
                continue
            if is_variable(held[name]):
                self._tell("read", node, scope, f"reads the variable {name!r}, which may be assigned anywhere")
            else:
                self.attributes.setdefault((type(obj), name), f"{scope.where}:{node.lineno} reads {name!r}")

    def _method(self, receiver: Value, method: str, node: ast.Call, scope: Scope) -> None:
        """A method by its name, where its code is not the user's."""
        if not method or not receiver.shared or harmless(receiver.obj):
            return
        if receiver.obj is not UNKNOWN and (immutable(receiver.obj) or of_one_thread(receiver.obj)):
            return
        if method in MUTATORS or taken_from(receiver.obj, method, with_arguments=bool(node.args)):
            self._tell("state", node, scope, f"calls {method}() of {receiver.words}")

    def _followed(self, function: Any, receiver: Value, given: list[Value], named: dict[Any, Value]) -> Value | None:
        """What a function of the user's own returns, read with these arguments; ``None`` where it is not the user's."""
        memoised = isinstance(function, functools._lru_cache_wrapper)
        made = isinstance(function, type)
        if memoised:
            function = function.__wrapped__
        first: list[Value] = []
        if made:
            function, first = vars(function).get("__init__"), [LOCAL]
        elif isinstance(function, types.MethodType):
            owner = function.__self__
            first = [receiver if receiver.obj is owner else Value(True, owner, receiver.name)]
            function = function.__func__
        elif not isinstance(function, types.FunctionType) and function is not UNKNOWN:
            call = call_of(function)
            first, function = [Value(True, function, receiver.name)], call
        if not isinstance(function, types.FunctionType) or not is_users(function):
            return None
        names = list(parameters_of(function))
        arguments = dict(zip(names, [*first, *given], strict=False))
        arguments |= {name: value for name, value in named.items() if name in names}
        before = sum(one.kind == "random" for one in self.told)
        result = self.function(function, arguments)
        if memoised and sum(one.kind == "random" for one in self.told) > before:
            self.told.append(Told("state", f"{function.__name__}() keeps in a memo what it has drawn at random"))
        if made:
            return LOCAL
        return Value(True, UNKNOWN, getattr(function, "__name__", "")) if memoised else result


def _in(function: Any, functions: tuple[Any, ...]) -> bool:
    return any(function is one for one in functions)
