"""A module's source with its names resolved: what an expression refers to, without running it.

Resolution is static and modest: imports, plain assignments, and defaults of parameters. What it cannot tell it calls
unknown, so that a fact that rests on it is rather missed than wrong.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Final

from xttsbench.records.source_fact import SourceFact, SourceKind

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
_SCOPES: Final = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEPTH: Final = 6
"""Assignments followed from a name to what it stands for."""


class Source:
    """One module's syntax tree.

    Raises:
        SyntaxError, ValueError: the text is not Python.
    """

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self._parents: dict[ast.AST, ast.AST] = {}
        self._imports: dict[str, str] = {}
        self._bindings: dict[tuple[Scope, str], list[ast.expr]] = {}
        self._defaults: dict[tuple[Scope, str], ast.expr] = {}
        self._parameters: set[tuple[Scope, str]] = set()
        self._calls: tuple[tuple[ast.Call, str], ...] | None = None
        self.nodes: tuple[ast.AST, ...] = tuple(ast.walk(self.tree))
        for node in self.nodes:
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
        for node in self.nodes:
            self._learn(node)

    def fact(self, kind: SourceKind, node: ast.expr | ast.stmt, detail: str) -> SourceFact:
        """A fact at the node's line."""
        text = self.lines[node.lineno - 1].strip() if node.lineno <= len(self.lines) else ""
        return SourceFact(kind=kind, file=self.file, line=node.lineno, text=text[:200], detail=detail)

    def calls(self) -> tuple[tuple[ast.Call, str], ...]:
        """Every call, with the dotted name of what is called (empty where that is unknown)."""
        if self._calls is None:
            found = [node for node in self.nodes if isinstance(node, ast.Call)]
            self._calls = tuple((node, self.dotted(node.func) or "") for node in found)
        return self._calls

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parent, its parent, and so on up to the module."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that holds this one."""
        return self._parents.get(node)

    def imported(self) -> frozenset[str]:
        """Dotted names of everything that is imported."""
        return frozenset(self._imports.values())

    def scope(self, node: ast.AST) -> Scope:
        """The innermost function, class or module whose body the node is in."""
        return next((found for found in self.ancestors(node) if isinstance(found, _SCOPES)), self.tree)

    def in_function(self, node: ast.AST) -> bool:
        """Whether it runs only when a function is called."""
        return any(isinstance(found, _FUNCTIONS) for found in self.ancestors(node))

    def dotted(self, node: ast.AST, depth: int = _DEPTH) -> str | None:
        """Dotted name of a name or of attributes of one, imports and assignments followed; ``None`` for the rest.

        ``tf.data.AUTOTUNE`` is ``tensorflow.data.AUTOTUNE`` however TensorFlow was imported.
        """
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value, depth)
            return _plain(f"{base}.{node.attr}") if base else None
        if not isinstance(node, ast.Name):
            return None
        values = self.values(node)
        if len(values) == 1 and depth and isinstance(values[0], ast.Name | ast.Attribute):
            return self.dotted(values[0], depth - 1)
        if values or self.is_parameter(node):
            return node.id
        return _plain(self._imports.get(node.id, node.id))

    def values(self, node: ast.Name | ast.Attribute) -> list[ast.expr]:
        """What was assigned to a name (or to ``self.name``) before this line; of an enclosing scope anywhere in it."""
        key = node.id if isinstance(node, ast.Name) else ast.unparse(node)
        own = self.scope(node)
        for scope in (own, *(found for found in self.ancestors(own) if isinstance(found, _SCOPES))):
            if isinstance(scope, ast.ClassDef) and scope is not own and isinstance(node, ast.Name):
                continue  # a class body's names are not seen from its methods
            found = self._bindings.get((scope, key), [])
            if scope is own:
                found = [value for value in found if value.lineno < node.lineno]
            if found or (scope, key) in self._parameters:
                return found
        return []

    def is_parameter(self, node: ast.Name) -> bool:
        """Whether it is a parameter of a function around it."""
        scopes = (found for found in self.ancestors(node) if isinstance(found, _FUNCTIONS))
        return any((scope, node.id) in self._parameters for scope in scopes)

    def default(self, node: ast.Name) -> ast.expr | None:
        """The default of the parameter of that name."""
        scopes = (found for found in self.ancestors(node) if isinstance(found, _FUNCTIONS))
        return next((self._defaults[scope, node.id] for scope in scopes if (scope, node.id) in self._defaults), None)

    def integer(self, node: ast.AST | None, depth: int = _DEPTH) -> int | None:
        """Its value where it is a whole number written out, or a name for one that is assigned once."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.integer(node.operand, depth)
            return None if value is None else -value
        if isinstance(node, ast.Name) and depth:
            values = self.values(node)
            return self.integer(values[0], depth - 1) if len(values) == 1 else None
        return None

    def is_builtin(self, node: ast.expr, *names: str) -> bool:
        """Whether it is one of these builtins, and not something of that name of the module's own."""
        return (
            isinstance(node, ast.Name)
            and node.id in names
            and hasattr(builtins, node.id)
            and node.id not in self._imports
            and not self.values(node)
        )

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for name in node.names:
                self._imports[name.asname or name.name.partition(".")[0]] = (
                    name.name if name.asname else name.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                self._imports[name.asname or name.name] = f"{'.' * node.level}{node.module or ''}.{name.name}"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, node.value)
        elif isinstance(node, _FUNCTIONS):
            self._learn_parameters(node)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        scope = self.scope(target)
        if isinstance(target, ast.Name):
            self._bindings.setdefault((scope, target.id), []).append(value)
            if isinstance(scope, ast.ClassDef):
                for owner in ("self", "cls", scope.name):
                    self._bindings.setdefault((self.tree, f"{owner}.{target.id}"), []).append(value)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            self._bindings.setdefault((self.tree, ast.unparse(target)), []).append(value)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * len(target.elts)
            if len(parts) == len(target.elts):
                for one, part in zip(target.elts, parts, strict=True):
                    # What comes of an unpacked call is unknown: a call stands for it.
                    self._bind(one, part)

    def _learn_parameters(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        everything = [*positional, *given.kwonlyargs, *(one for one in (given.vararg, given.kwarg) if one)]
        self._parameters |= {(node, one.arg) for one in everything}
        pairs = [*zip(positional[::-1], given.defaults[::-1], strict=False)]
        pairs += [(one, value) for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value]
        self._defaults |= {(node, one.arg): value for one, value in pairs}


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """The argument of a call by position or by name."""
    named = next((word.value for word in call.keywords if word.arg == name), None)
    if named is not None or position >= len(call.args):
        return named
    return call.args[position]


def _plain(dotted: str) -> str:
    """TensorFlow's second names for its own modules, taken out."""
    for longer in ("tensorflow.compat.v2", "tensorflow._api.v2"):
        if dotted == longer or dotted.startswith(longer + "."):
            return "tensorflow" + dotted[len(longer) :]
    if dotted == "keras" or dotted.startswith("keras."):
        return "tensorflow." + dotted
    return dotted
