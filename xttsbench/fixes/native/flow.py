"""Names that hold what comes from a function's arguments: those become tensors, all others stay as they are.

Flow-insensitive: a name that holds it once holds it always, and so does one that is assigned where arguments decide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from xttsbench.fixes.native.names import STATIC
from xttsbench.fixes.native.observe import Observer, Watched, users_function

_CONTAINERS: Final = ("list", "dict", "set")
_TAKES: Final = frozenset({"append", "extend", "insert", "add", "update", "setdefault"})


@dataclass
class Flow:
    """The part of one function that comes from its arguments.

    Attributes:
        watched: the function.
        names: variables that hold it.
        decided: variables that are assigned where it decides.
    """

    watched: Watched
    names: set[str] = field(default_factory=set)
    decided: set[str] = field(default_factory=set)

    def given(self, node: Any) -> bool:
        """Whether an expression comes from the arguments."""
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Attribute) and node.attr in STATIC:
            return False
        if isinstance(node, ast.Compare) and all(isinstance(one, ast.Is | ast.IsNot) for one in node.ops):
            return False
        return any(self.given(one) for one in ast.iter_child_nodes(node))

    def spread(self) -> None:
        """Add the names of the function that hold what comes from those that are known."""
        before = -1
        while before != len(self.names) + len(self.decided):
            before = len(self.names) + len(self.decided)
            for one in self.watched.nodes:
                self._step(one)

    def _step(self, one: Any) -> None:
        if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and one.value is not None:
            if self.given(one.value):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                self.names.update(*map(_stored, targets))
        elif isinstance(one, ast.For | ast.comprehension) and self.given(one.iter):
            self.names |= _stored(one.target)
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in _TAKES:
            owner = self.watched.fact(one.func.value)
            if any(map(self.given, [*one.args, *one.keywords])) and owner is not None and owner.kind in _CONTAINERS:
                self.names |= _stored(one.func.value)
        elif isinstance(one, ast.FunctionDef | ast.Lambda) and one is not self.watched.node:
            self.names |= {arg.arg for arg in ast.walk(one.args) if isinstance(arg, ast.arg)}
            if isinstance(one, ast.FunctionDef) and any(map(self.given, one.body)):
                self.names.add(one.name)
        decides = one.test if isinstance(one, ast.If | ast.While) else one.iter if isinstance(one, ast.For) else None
        if decides is not None and self.given(decides):
            inside = [name for part in (*one.body, *one.orelse) for name in _bound(part)]
            self.names.update(inside)
            self.decided.update(inside)


def _stored(target: ast.expr) -> set[str]:
    """Variables that an assignment to a target changes."""
    if isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
        return _stored(target.value)
    if isinstance(target, ast.Tuple | ast.List):
        return set[str]().union(*map(_stored, target.elts))
    return {target.id} if isinstance(target, ast.Name) else set()


def _bound(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def flows(observer: Observer, root: Watched, given: Iterable[str]) -> dict[Watched, Flow]:
    """The flow of each function that is called with what comes from the arguments, the first one's among them."""
    found = {root: Flow(root, set(given))}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        flow = found[one]
        flow.spread()
        for call in one.nodes:
            inner = helper(observer, one, call)
            if inner is None or not any(map(flow.given, [*call.args, *call.keywords])):  # type: ignore[attr-defined]
                continue
            fresh, known = inner not in found, found.setdefault(inner, Flow(inner))
            more = set(_parameters(one, inner, call, flow)) - known.names
            if more or fresh:
                known.names |= more
                waiting.append(inner)
    return found


def helper(observer: Observer, watched: Watched, call: Any) -> Watched | None:
    """The user's function that a call runs."""
    fact = watched.fact(call.func) if isinstance(call, ast.Call) else None
    function = users_function(fact.value) if fact is not None and fact.kind == "callable" else None
    plain = getattr(function, "__func__", function)
    return None if plain is None else observer.seen.get(plain.__code__)


def bound(function: Any) -> bool:
    """Whether a call gives a function its first argument by itself."""
    return hasattr(users_function(function), "__func__")


def _parameters(outer: Watched, inner: Watched, call: Any, flow: Flow) -> Iterator[str]:
    """Parameters of the user's function that get what comes from the arguments."""
    plain = [one.arg for one in (*inner.node.args.posonlyargs, *inner.node.args.args)]
    code = inner.function.__code__
    every = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        yield from every
    fact = outer.fact(call.func)
    for name, one in zip(plain[fact is not None and bound(fact.value) :], call.args, strict=False):
        if flow.given(one):
            yield name
    yield from (one.arg for one in call.keywords if one.arg and flow.given(one.value))
