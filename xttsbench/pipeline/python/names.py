"""Names that statements of a generator read, bind and may change, in the order in which they run.

What a statement reads and binds is asked of Python's compiler, which knows the scopes of comprehensions, functions and
handlers. Pure: syntax trees alone.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Any, Final

SCOPES: Final = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_LEAVES: Final = ast.Return | ast.Raise | ast.Break | ast.Continue
_LOADS: Final = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME")
_STORES: Final = ("STORE_NAME", "STORE_GLOBAL")
_CHANGE_NOTHING: Final = frozenset(
    {"len", "range", "list", "tuple", "dict", "set", "sorted", "enumerate", "zip", "reversed", "min", "max", "sum"}
    | {"int", "float", "str", "print", "arange", "array", "asarray", "permutation", "concatenate", "copy", "split"}
)
"""Names of functions that change none of their arguments."""


def last_name(node: Any) -> str:
    """The last part of a dotted name; empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def copied(node: Any) -> Any:
    """A copy of a tree without the references to parents that some trees have."""
    if isinstance(node, list):
        return [copied(one) for one in node]
    if not isinstance(node, ast.AST):
        return node
    made = type(node)(**{name: copied(value) for name, value in ast.iter_fields(node)})
    return ast.copy_location(made, node) if hasattr(node, "lineno") else made


def own_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    """The nodes of trees without what functions, classes and lambdas in them hold."""
    waiting = list(nodes)
    while waiting:
        one = waiting.pop()
        yield one
        if not isinstance(one, SCOPES):
            waiting.extend(ast.iter_child_nodes(one))


def parameters(function: Any) -> list[ast.arg]:
    """The parameters of a function, in the order in which a code object has them."""
    given = function.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    return [one for one in every if one is not None]


def stored(nodes: Iterable[Any]) -> set[str]:
    """Names that statements or targets bind; the variables of comprehensions are their own."""
    return {name for one in nodes for name, stores in _uses(one) if stores}


def read(nodes: Iterable[Any]) -> set[str]:
    """Names that statements or expressions read, functions written inside them included."""
    return {name for one in nodes for name, stores in _uses(one) if not stores}


def exposed(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that statements, run in order, may read before they have bound them."""
    reading: set[str] = set()
    _run(statements, set(), reading)
    return reading


def dotted(node: Any) -> str:
    """``self.rows`` for such an expression, or for an element of it; empty for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        parts = [node.attr, *parts] if isinstance(node, ast.Attribute) else []
        node = node.value
    return ".".join([node.id, *parts]) if isinstance(node, ast.Name) else ""


def paths(nodes: Sequence[Any]) -> set[str]:
    """All names and dotted names in statements, the longest of each."""
    every = [one for node in nodes for one in ast.walk(node)]
    inside = {id(one.value) for one in every if isinstance(one, ast.Attribute | ast.Subscript)}
    return {dotted(one) for one in every if id(one) not in inside} - {""}


def touched(nodes: Iterable[Any]) -> set[str]:
    """Paths of objects that statements may change in place: their items, by their methods, or by what they go to."""
    found: list[Any] = []
    for one in (inner for node in nodes for inner in ast.walk(node)):
        if isinstance(one, ast.Attribute | ast.Subscript) and not isinstance(one.ctx, ast.Load):
            found.append(one if isinstance(one, ast.Attribute) else one.value)
        elif isinstance(one, ast.AugAssign):
            found.append(one.target)
        elif isinstance(one, ast.Call):
            found += [one.func.value] if isinstance(one.func, ast.Attribute) else []
            if getattr(one.func, "attr", getattr(one.func, "id", "")) not in _CHANGE_NOTHING:
                found += [*one.args, *(keyword.value for keyword in one.keywords)]
    return set(map(dotted, found)) - {""}


def _run(statements: Sequence[ast.stmt], bound: set[str], reading: set[str]) -> set[str] | None:
    """The names bound after statements; ``None`` where what comes after is not reached."""
    for node in statements:
        first, branches, last = _parts(node)
        for name, stores in (use for part in first for use in _uses(part)):
            if stores and not isinstance(node, ast.Match | ast.TryStar):
                bound.add(name)
            elif not stores and name not in bound:
                reading.add(name)
        if branches:
            ends = [end for one in branches if (end := _run(one, set(bound), reading)) is not None]
            after = _run(last, set.intersection(*ends), reading) if ends else None
            if after is None:
                return None
            bound = after
        if isinstance(node, _LEAVES):
            return None
    return bound


def _parts(node: Any) -> tuple[list[Any], list[list[Any]], list[ast.stmt]]:
    """Parts of a statement: those evaluated first, the blocks of which one runs then, and what runs behind these."""
    match node:
        case ast.If():
            return [node.test], [node.body, node.orelse], []
        case ast.While():
            return [node.test], [[*node.body, *node.orelse], []], []
        case ast.For():
            return [node.iter], [[_binding(node.target), *node.body, *node.orelse], []], []
        case ast.With():
            pairs = [(one.context_expr, one.optional_vars) for one in node.items]
            return [_binding(target, value) if target else value for value, target in pairs], [node.body], []
        case ast.Try():
            names = [[_binding(ast.Name(one.name, ast.Store()))] if one.name else [] for one in node.handlers]
            handlers = [[*name, *one.body] for name, one in zip(names, node.handlers, strict=True)]
            return (
                [one.type for one in node.handlers if one.type],
                [[*node.body, *node.orelse], *handlers],
                node.finalbody,
            )
    return [node], [], []


def _binding(target: ast.expr, value: ast.expr | None = None) -> ast.stmt:
    return ast.Assign([target], value or ast.Constant(None))


def _uses(node: Any) -> Iterator[tuple[str, bool]]:
    """Each name that a statement or expression reads or binds, and whether it binds it, in order."""
    if isinstance(node, ast.expr):
        stores = isinstance(getattr(node, "ctx", None), ast.Store)
        node = _binding(node) if stores else ast.Expr(node)
    module = ast.fix_missing_locations(ast.Module([_Alone().visit(copied(node))], []))
    yield from _of_code(compile(module, "<names>", "exec", dont_inherit=True), of_scope=True)


def _of_code(code: CodeType, *, of_scope: bool = False) -> Iterator[tuple[str, bool]]:
    for one in dis.get_instructions(code):
        if isinstance(one.argval, CodeType):
            yield from _of_code(one.argval)
        elif one.opname in _LOADS:
            yield one.argval, False
        elif one.opname in _STORES[0 if of_scope else 1 :]:  # a class inside binds names of its own
            yield one.argval, True


class _Alone(ast.NodeTransformer):
    """Statements that compile by themselves, outside of the loop and the generator in which they are written."""

    def visit_Break(self, node: ast.Break) -> Any:
        return ast.copy_location(ast.Pass(), node)

    def visit_Continue(self, node: ast.Continue) -> Any:
        return ast.copy_location(ast.Pass(), node)

    def visit_Return(self, node: ast.Return) -> Any:
        return ast.copy_location(ast.Expr(node.value or ast.Constant(None)), node)

    def visit_Yield(self, node: ast.Yield) -> Any:
        return self.visit(node.value) if node.value else ast.Constant(None)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node
