"""Reading a Python function statement by statement: what it changes that was there before, and what it draws.

Branches are joined, loops are read twice. A call of the user's own functions is read with what it is given, so that a
function that changes its argument is told only where that argument is shared.
"""

from __future__ import annotations

import ast
import os
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, Final

from xttsbench.pipeline.purity.expressions import ExpressionReader
from xttsbench.pipeline.purity.scope import Scope, Told
from xttsbench.pipeline.purity.source import definition, parameters_of, place
from xttsbench.pipeline.purity.values import (
    LOCAL,
    MUTABLE,
    UNKNOWN,
    Value,
    attribute,
    element,
    immutable,
    join,
    of_one_thread,
)

_MOST_FUNCTIONS: Final = 300
_DEEPEST: Final = 15


class Reader(ExpressionReader):
    """Reads functions; what it finds is in ``told``, in the order of reading."""

    def __init__(self, without_source: Callable[[Any], Iterable[Told]]) -> None:
        super().__init__()
        self._without_source = without_source
        self._known: dict[Any, Value] = {}

    def function(self, function: Any, given: dict[str, Value] | None = None) -> Value:
        """Read a function or bound method that is called with arguments of its own; returns what it returns."""
        given = dict(given or {})
        if isinstance(function, types.MethodType):
            first = next(iter(parameters_of(function.__func__)), None)
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
        file, _ = place(function.__code__)
        node = definition(function.__code__)
        if node is None:
            self.told.extend(self._without_source(function))
            return LOCAL
        name = getattr(node, "name", "<lambda>")
        scope = Scope(function, f"{name}() at {os.path.basename(file)}")
        for parameter in parameters_of(function).values():
            default = parameter.default
            kept = default is not parameter.empty and not immutable(default)
            scope.names[parameter.name] = given.get(
                parameter.name, Value(True, default, parameter.name) if kept else LOCAL
            )
        self._depth += 1
        self._body(node, scope)
        self._depth -= 1
        self._known[key] = scope.returned
        return scope.returned

    @property
    def own(self) -> list[types.CodeType]:
        """Code of all functions that were read."""
        return [key[0] for key in self._known]

    def _body(self, node: Any, scope: Scope) -> None:
        if isinstance(node, ast.Lambda):
            scope.returned = self._result(self.value(node.body, scope), node, scope)
            return
        for inner in ast.walk(node):
            if isinstance(inner, ast.Global | ast.Nonlocal) and _owner(node, inner):
                scope.declared.update(inner.names)
        self._block(node.body, scope)

    def _block(self, statements: Iterable[ast.stmt], scope: Scope) -> None:
        for statement in statements:
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        if isinstance(node, ast.Assign):
            value = self.value(node.value, scope)
            for target in node.targets:
                self._store(target, value, scope)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._store(node.target, self.value(node.value, scope), scope)
        elif isinstance(node, ast.AugAssign):
            self._augmented(node, scope)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if not isinstance(target, ast.Name):
                    self._store(target, LOCAL, scope)
        elif isinstance(node, ast.Return):
            if node.value is not None:
                scope.returned = join(scope.returned, self._result(self.value(node.value, scope), node, scope))
        elif isinstance(node, ast.If):
            self.value(node.test, scope)
            self._branches([node.body, node.orelse], scope)
        elif isinstance(node, ast.While):
            self.value(node.test, scope)
            self._branches([[*node.body, *node.body, *node.orelse], []], scope)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._store(node.target, self._iterated(node.iter, scope), scope)
            self._branches([[*node.body, *node.body, *node.orelse], []], scope)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                value = self.value(item.context_expr, scope)
                self._special(value, ("__enter__", "__exit__"))
                if item.optional_vars is not None:
                    self._store(item.optional_vars, value, scope)
            self._block(node.body, scope)
        elif isinstance(node, ast.Try):
            self._block(node.body, scope)
            self._branches([node.orelse, *(handler.body for handler in node.handlers)], scope)
            self._block(node.finalbody, scope)
        elif isinstance(node, ast.Match):
            self.value(node.subject, scope)
            self._branches([case.body for case in node.cases], scope)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            scope.names[node.name] = LOCAL
            self._written_here(node, scope)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, scope)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child, scope)

    def _branches(self, blocks: Iterable[list[ast.stmt]], scope: Scope) -> None:
        """Read each block from the same start and join what the names stand for after each."""
        before, after = dict(scope.names), list[dict[str, Value]]()
        for block in blocks:
            scope.names = dict(before)
            self._block(block, scope)
            after.append(scope.names)
        scope.names = {}
        for names in after:
            for name, value in names.items():
                scope.names[name] = join(scope.names[name], value) if name in scope.names else value

    def _augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        added = self.value(node.value, scope)
        if not isinstance(node.target, ast.Name):
            self._store(node.target, added, scope)
            return
        name = node.target.id
        held = scope.value(name)
        if held.shared and isinstance(held.obj, MUTABLE) and name not in scope.declared:
            self._tell("state", node, scope, f"changes {held.words} in place")
        elif name in scope.declared or not held.shared or immutable(held.obj):
            self._store(node.target, Value(clock=held.clock or added.clock), scope)

    def _store(self, target: ast.expr, value: Value, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            if not scope.store(target.id, value):
                self._tell("state", target, scope, f"sets the variable {target.id!r}, which outlives the call")
        elif isinstance(target, ast.Tuple | ast.List):
            for item in target.elts:  # a callable is what enumerate() or zip() gave along with something else
                self._store(item, value if callable(value.obj) else element(value), scope)
        elif isinstance(target, ast.Starred):
            self._store(target.value, element(value), scope)
        elif isinstance(target, ast.Attribute):
            base = self.value(target.value, scope)
            if base.shared and not of_one_thread(base.obj):
                self._tell("state", target, scope, f"sets {target.attr!r} of {base.words}")
        elif isinstance(target, ast.Subscript):
            base = self.value(target.value, scope)
            self.value(target.slice, scope)
            if base.shared:
                memo = ", as a memo does" if isinstance(base.obj, dict) else ""
                self._tell("state", target, scope, f"stores into {base.words}{memo}")

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            if isinstance(node, ast.Import):
                module = sys.modules.get(alias.name if alias.asname else name, UNKNOWN)
                scope.names[name] = Value(True, module, name)
            else:
                module = sys.modules.get(node.module or "", UNKNOWN)
                scope.names[name] = attribute(Value(True, module, ""), alias.name)

    def _written_here(self, node: Any, scope: Scope) -> Value:
        """A function that is written inside: read as if it were called here, with arguments of its own."""
        inner = scope.inner()
        arguments = node.args
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if one is not None:
                inner.names[one.arg] = LOCAL
        self._body(node, inner)
        return LOCAL


def _owner(node: Any, declaration: ast.stmt) -> bool:
    """Whether a declaration stands in the function itself, and in none that is written inside."""
    waiting = list(node.body)
    while waiting:
        one = waiting.pop()
        if one is declaration:
            return True
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(one))
    return False
