"""Reading a Python function: what it changes that was there before, what it draws, and what others may change.

Branches are joined, loops are read twice; a condition on a setting is taken at the setting's value. A call of the
user's own functions is read with what it is given, so that a function that changes its argument is reported only where
that argument is shared.
"""

from __future__ import annotations

import ast
import functools
import random
import sys
import types
from collections.abc import Collection, Iterable
from typing import Any, Final

import numpy as np

from xttsbench.pipeline import source
from xttsbench.pipeline.definitions import definition, parameter_names, within
from xttsbench.pipeline.python import values
from xttsbench.pipeline.python.bytecode import file_name, from_bytecode
from xttsbench.pipeline.python.conditions import Conditions
from xttsbench.pipeline.python.effects import Effect, Effects
from xttsbench.pipeline.python.libraries import clock, draws, seeds, writes_into
from xttsbench.pipeline.python.values import LOCAL, UNKNOWN, Scope, Value

_MOST_FUNCTIONS: Final = 300
_DEEPEST: Final = 15
_GENERATORS: Final = np.random.Generator | np.random.RandomState | random.Random
_PASS_ON: Final = (zip, enumerate, map, filter, iter, reversed)
_CONSUMERS: Final = (*_PASS_ON, list, tuple, set, dict, sum, min, max, sorted, any, all)


class Reader:
    """Reads functions; what it finds is in ``effects``, in the order of reading.

    Args:
        settled: names of the settings whose conditions are taken at their value; ``None`` for all.
    """

    def __init__(self, settled: Collection[str] | None = ()) -> None:
        self.effects = Effects()
        self.conditions = Conditions(self.value, settled)
        self._known: dict[Any, Value] = {}
        self._depth = 0

    @property
    def own(self) -> list[types.CodeType]:
        """Code of all functions that were read."""
        return [key[0] for key in self._known]

    def function(self, function: Any, given: dict[str, Value] | None = None) -> Value:
        """Read a function or bound method that is called with arguments of its own; returns what it returns."""
        given = dict(given or {})
        if isinstance(function, types.MethodType):
            first = next(iter(source.parameters_of(function.__func__)), None)
            if first is not None:
                given.setdefault(first, Value(True, function.__self__, first))
            function = function.__func__
        if not isinstance(function, types.FunctionType):
            return LOCAL
        key = (function.__code__, id(function), tuple((n, v.shared, id(v.obj)) for n, v in sorted(given.items())))
        if key in self._known:
            return self._known[key]
        if len(self._known) >= _MOST_FUNCTIONS or self._depth >= _DEEPEST:
            return LOCAL
        self._known[key] = LOCAL
        node = definition(function.__code__)
        if node is None:
            self.effects.extend(from_bytecode(function))
            return LOCAL
        scope = Scope(function, f"{getattr(node, 'name', '<lambda>')}() at {file_name(function)}")
        for parameter in source.parameters_of(function).values():
            default = parameter.default
            kept = default is not parameter.empty and not values.immutable(default)
            otherwise = Value(True, default, parameter.name) if kept else LOCAL
            scope.names[parameter.name] = given.get(parameter.name, otherwise)
        self._depth += 1
        self._body(node, scope)
        self._depth -= 1
        self._known[key] = scope.returned
        return scope.returned

    def partial(self, function: Any) -> None:
        """Read a function of the user's with the arguments that ``functools.partial`` has bound to it."""
        function, positional, named = values.taken_apart(function)
        self._followed(function, LOCAL, positional, named)

    def _body(self, node: Any, scope: Scope) -> None:
        if isinstance(node, ast.Lambda):
            scope.returned = self._result(self.value(node.body, scope), node, scope)
            return
        for inner in within(node):
            if isinstance(inner, ast.Global | ast.Nonlocal):
                scope.declared.update(inner.names)
        self._block(node.body, scope)

    def _written_here(self, node: Any, scope: Scope) -> None:
        """A function that is written inside: read as if it were called here, with arguments of its own."""
        inner = scope.inner()
        inner.names.update(dict.fromkeys(parameter_names(node), LOCAL))
        self._body(node, inner)

    def _result(self, value: Value, node: Any, scope: Scope) -> Value:
        """A clock counts where its time becomes a part of the outermost result."""
        if value.clock and self._depth <= 1 and len(scope.names.maps) == 1:
            self.effects.report("clock", node, scope, "returns what a clock says")
        return value

    # Statements

    def _block(self, statements: Iterable[ast.stmt], scope: Scope) -> bool:
        """Read statements up to one that surely leaves them; whether there is one."""
        return any(self._statement(statement, scope) for statement in statements)

    def _statement(self, node: ast.stmt, scope: Scope) -> bool:
        """Read a statement; whether what follows it in its block is never reached."""
        match node:
            case ast.Assign(targets=targets, value=assigned):
                value = self.value(assigned, scope)
                for target in targets:
                    self._store(target, value, scope)
            case ast.AnnAssign(target=target, value=assigned):
                if assigned is not None:
                    self._store(target, self.value(assigned, scope), scope)
            case ast.AugAssign():
                self._augmented(node, scope)
            case ast.Delete(targets=targets):
                for target in targets:
                    if not isinstance(target, ast.Name):
                        self._store(target, LOCAL, scope)
            case ast.Return(value=ast.expr() as returned):
                scope.returned = values.join(scope.returned, self._result(self.value(returned, scope), node, scope))
                return True
            case ast.Return() | ast.Break() | ast.Continue():
                return True
            case ast.If(test=test, body=body, orelse=orelse):
                if (holds := self.conditions.truth(test, scope)) is not None:
                    return self._block(body if holds else orelse, scope)
                return self._branches([[body], [orelse]], scope)
            case ast.While(test=test, body=body, orelse=orelse):
                self.value(test, scope)
                self._branches([[body, body, orelse], []], scope)
            case ast.For(target=target, iter=taken, body=body, orelse=orelse):
                self._store(target, self._iterated(taken, scope), scope)
                self._branches([[body, body, orelse], []], scope)
            case ast.With(items=items, body=body):
                for item in items:
                    value = self.value(item.context_expr, scope)
                    self._special(value, ("__enter__", "__exit__"))
                    if item.optional_vars is not None:
                        self._store(item.optional_vars, value, scope)
                self._block(body, scope)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
                self._block(body, scope)
                self._branches([[orelse], *([handler.body] for handler in handlers)], scope)
                self._block(finalbody, scope)
            case ast.Match(subject=subject, cases=cases):
                self.value(subject, scope)
                self._branches([[case.body] for case in cases], scope)
            case ast.FunctionDef(name=name):
                scope.names[name] = LOCAL
                self._written_here(node, scope)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    self._imported(node, alias, scope)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child, scope)
        return False

    def _imported(self, node: ast.Import | ast.ImportFrom, alias: ast.alias, scope: Scope) -> None:
        name = alias.asname or alias.name.split(".")[0]
        if isinstance(node, ast.Import):
            module = sys.modules.get(alias.name if alias.asname else name, UNKNOWN)
            scope.names[name] = Value(True, module, name)
        else:
            module = sys.modules.get(node.module or "", UNKNOWN)
            scope.names[name] = values.attribute(Value(True, module, ""), alias.name)

    def _branches(self, branches: Iterable[Iterable[list[ast.stmt]]], scope: Scope) -> bool:
        """Read the blocks of each branch from the same start, and join what the names stand for after each.

        Returns:
            Whether the last block of every branch is surely left.
        """
        before, joined, leave = scope.names.maps[0], dict[str, Value](), list[bool]()
        for blocks in branches:
            scope.names.maps[0] = dict(before)
            left = [self._block(block, scope) for block in blocks]
            leave.append(bool(left) and left[-1])
            for name, value in scope.names.maps[0].items():
                joined[name] = values.join(joined[name], value) if name in joined else value
        scope.names.maps[0] = joined
        return all(leave)

    def _augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        added = self.value(node.value, scope)
        if not isinstance(node.target, ast.Name):
            self._store(node.target, added, scope)
            return
        name = node.target.id
        held = scope.value(name)
        if held.shared and isinstance(held.obj, values.MUTABLE) and name not in scope.declared:
            self.effects.report("state", node, scope, f"changes {held.words} in place")
        elif name in scope.declared or not held.shared or values.immutable(held.obj):
            self._store(node.target, Value(clock=held.clock or added.clock), scope)

    def _store(self, target: ast.expr, value: Value, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                if not scope.store(name, value):
                    self.effects.report("state", target, scope, f"sets the variable {name!r}, which outlives the call")
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for item in items:  # a callable is what enumerate() or zip() gave along with something else
                    self._store(item, value if callable(value.obj) else values.element(value), scope)
            case ast.Starred(value=inner):
                self._store(inner, values.element(value), scope)
            case ast.Attribute(value=held, attr=name):
                base = self.value(held, scope)
                if base.shared and not values.of_one_thread(base.obj):
                    self.effects.report("state", target, scope, f"sets {name!r} of {base.words}")
            case ast.Subscript(value=held, slice=key):
                base = self.value(held, scope)
                self.value(key, scope)
                if base.shared:
                    memo = ", as a memo does" if isinstance(base.obj, dict) else ""
                    self.effects.report("state", target, scope, f"stores into {base.words}{memo}")

    # Expressions

    def value(self, node: ast.expr, scope: Scope) -> Value:
        """Abstract value of an expression; effects of its parts are recorded."""
        match node:
            case ast.Name(id=name):
                found = scope.value(name)
                if found.shared:
                    self.effects.reads_variable(name, found, node, scope)
                return found
            case ast.Attribute(value=held, attr=name):
                base = self.value(held, scope)
                self.effects.reads_attribute(base, name, node, scope)
                return self._special(base, (name,), values.attribute(base, name))
            case ast.Subscript(value=held, slice=key):
                base = self.value(held, scope)
                self.value(key, scope)
                return self._special(base, ("__getitem__", "__missing__"), values.element(base, key))
            case ast.Call():
                return self._call(node, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                if (holds := self.conditions.truth(test, scope)) is not None:
                    return self.value(body if holds else orelse, scope)
                return values.join(self.value(body, scope), self.value(orelse, scope))
            case ast.BoolOp(values=either):
                return functools.reduce(values.join, [self.value(one, scope) for one in either])
            case ast.NamedExpr(target=target, value=assigned):
                value = self.value(assigned, scope)
                self._store(target, value, scope)
                return value
            case ast.Lambda():
                self._written_here(node, scope)
                return LOCAL
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node, scope)
            case ast.Compare(left=left, comparators=comparators):  # a deadline is no part of the result
                for one in (left, *comparators):
                    self._special(self.value(one, scope))
                return LOCAL
            case ast.Starred(value=inner):
                return self.value(inner, scope)
            case ast.Yield(value=inner) | ast.YieldFrom(value=inner):
                if inner is not None:
                    self._result(self.value(inner, scope), node, scope)
                return LOCAL
        parts = [self.value(child, scope) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        for part in parts:
            self._special(part)
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
        self.effects.taken(value, node, scope)
        return self._special(value, None, values.element(value))

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        receiver, method = LOCAL, ""
        if isinstance(node.func, ast.Attribute):
            receiver, method = self.value(node.func.value, scope), node.func.attr
            callee = values.attribute(receiver, method)
        else:
            callee = self.value(node.func, scope)
        given = [self.value(one, scope) for one in node.args]
        named: dict[Any, Value] = {one.arg: self.value(one.value, scope) for one in node.keywords}
        timed = Value(clock=any(one.clock for one in (*given, *named.values())))
        function, bound, bound_by_name = values.taken_apart(callee.obj)
        given, named = [*bound, *given], {**bound_by_name, **named}
        if isinstance(receiver.obj, _GENERATORS) and receiver.shared and not method.startswith(("get", "spawn")):
            self.effects.report("random", node, scope, f"draws from {receiver.words}")
            self.effects.report("state", node, scope, f"draws from {receiver.words}, which goes on from call to call")
            return LOCAL
        if seeds(function):
            self.effects.report("state", node, scope, "seeds the random numbers of the whole process")
        elif (drawn := draws(function, bool(given or named))) is not None:
            self.effects.report("random", node, scope, f"draws random numbers ({drawn})")
        if clock(function):
            return Value(clock=True)
        if (found := values.looked_up(function, node, given, scope)) is not None:
            return found
        changed = writes_into(function, given, named)
        if changed is not None and changed.shared:
            self.effects.report("state", node, scope, f"writes into {changed.words}")
        if values.is_one_of(function, (setattr, delattr)) and given and given[0].shared:
            self.effects.report("state", node, scope, f"sets an attribute of {given[0].words}")
        if function is next and given:
            if given[0].shared:
                self.effects.report("state", node, scope, f"takes the next element of {given[0].words}")
            return values.element(given[0])
        for other in callee.others:
            self._followed(other, receiver, given, named)
        followed = self._followed(function, receiver, given, named)
        if followed is not None:
            return followed
        # A library's: it calls what it is given and what it holds, and Python's own types call special methods.
        consumes = values.is_one_of(function, _CONSUMERS)
        for one in given if isinstance(function, type | types.BuiltinFunctionType) else ():
            self._special(one)
            if consumes:
                self.effects.taken(one, node, scope)
        for obj in (
            *(obj for one in (*given, *named.values()) for obj in one.objects),
            *values.held_callables(function),
        ):
            if isinstance(obj, functools.partial):
                self.partial(obj)
            elif (run := values.users_function(obj)) is not None:
                self.function(run)
        if consumes:
            kept = [one for one in given if one.shared or one.obj is not UNKNOWN]
            return functools.reduce(values.join, kept) if kept and values.is_one_of(function, _PASS_ON) else timed
        self.effects.called(receiver, method, node, scope)
        if method in values.SAME_MEMORY and receiver.shared and not values.harmless(receiver.obj):
            return values.element(receiver) if method == "get" else receiver
        return values.element(receiver) if method in ("pop", "setdefault") and receiver.shared else timed

    def _special(self, value: Value, names: Iterable[str] | None = None, otherwise: Value = LOCAL) -> Value:
        """Read the methods and properties that Python runs by itself where they are the user's.

        Returns:
            What they return; ``otherwise`` where there are none.
        """
        found = [self.function(one) for obj in value.objects for one in values.special_methods(obj, names)]
        return found[-1] if found else otherwise

    def _followed(self, function: Any, receiver: Value, given: list[Value], named: dict[Any, Value]) -> Value | None:
        """Abstract result of a user's function, read with these arguments; ``None`` where it is not the user's."""
        memoised, made = isinstance(function, functools._lru_cache_wrapper), isinstance(function, type)
        first: list[Value] = []
        if memoised:
            function = function.__wrapped__
        if made:
            function, first = vars(function).get("__init__"), [LOCAL]
        elif isinstance(function, types.MethodType):
            owner = function.__self__
            first = [receiver if receiver.obj is owner else Value(True, owner, receiver.name)]
            function = function.__func__
        elif not isinstance(function, types.FunctionType) and function is not UNKNOWN:
            first, function = [Value(True, function, receiver.name)], source.call_of(function)
        if not isinstance(function, types.FunctionType) or not source.is_users(function):
            return None
        names = list(source.parameters_of(function))
        arguments = dict(zip(names, [*first, *given], strict=False))
        arguments |= {name: value for name, value in named.items() if name in names}
        before = sum(one.kind == "random" for one in self.effects)
        result = self.function(function, arguments)
        if memoised and sum(one.kind == "random" for one in self.effects) > before:
            self.effects.append(Effect("state", f"{function.__name__}() keeps in a memo what it has drawn at random"))
        if made:
            return LOCAL
        return Value(True, UNKNOWN, getattr(function, "__name__", "")) if memoised else result
