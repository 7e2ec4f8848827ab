"""The user's own function with other names: its source, in which what comes from its arguments is a tensor.

What stands between names is kept as it is written. Where NumPy changes a dtype by itself, the change is written out.
Text that comes of this is what is traced, compared and proposed as a patch.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from xttsbench.fixes.native.calls import called
from xttsbench.fixes.native.expressions import EDITS, cast_text
from xttsbench.fixes.native.flow import Flow
from xttsbench.fixes.native.observe import Fact, Watched

_STATEMENTS: Final = (
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr, ast.If, ast.While, ast.For, ast.Pass, ast.Break),
    *(ast.Continue, ast.Assert, ast.Raise, ast.FunctionDef, ast.With, ast.Import, ast.ImportFrom),
)
_EDITS: Final = {**EDITS, ast.Call: called}
CHECKED: Final = "__xttsbench_checked__"
"""Name of a function that is handed the number of an expression and its tensor, in text that is traced."""
_SILENT: Final = re.compile(r"[\w.]*errstate\((\w+='(ignore|warn)'(, )?)+\)")
_NUMBERS: Final = ("array", "scalar", "int", "float", "bool")
_CONTAINERS: Final = ("list", "tuple", "dict")


class Rebound:
    """A function's source, written anew."""

    def __init__(self, watched: Watched, flow: Flow, names: Mapping[Watched, str], *, checking: bool = False) -> None:
        """Take a function, and the names of all as ops, empty of those that stay as they are.

        ``checking`` has expressions handed on.
        """
        self.watched, self.flow, self.names, self.checking = watched, flow, names, checking
        self._bytes = watched.text.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    @property
    def changed(self) -> bool:
        """Whether anything is written otherwise than the user wrote it."""
        node = self.watched.node
        body = node.body if isinstance(node.body, list) else [node.body]
        return any(self.render(one) != self.own(one) for one in body)

    def text(self, closed: int = 0) -> str:
        """The whole function, without its first parameters where they are known in its scope.

        Raises:
            RefusedError: something of it has no equal among TensorFlow's ops.
        """
        node, name = self.watched.node, self.names[self.watched]
        self._check()
        header = f"def {name}({self._header(closed)}):\n"
        if isinstance(node, ast.Lambda):
            return f"{header}    return {self.render(node.body)}\n"
        first, lines = node.body[0].lineno - 1, self.watched.text.splitlines()
        if lines[first].strip() and not lines[first][: node.body[0].col_offset].isspace():  # behind the header's colon
            body = "\n".join(self.render(one) for one in node.body)
        else:
            while first > node.lineno and lines[first - 1].strip().startswith("#"):
                first -= 1
            body = textwrap.dedent(self._between(self._starts[first], len(self._bytes), node.body)).rstrip()
        return f"{header}{textwrap.indent(body, '    ')}\n"

    def _header(self, closed: int) -> str:
        given = self.watched.node.args
        arguments = ast.arguments(
            [ast.arg(one.arg) for one in given.posonlyargs],
            [ast.arg(one.arg) for one in given.args],
            given.vararg and ast.arg(given.vararg.arg),
            [ast.arg(one.arg) for one in given.kwonlyargs],
            given.kw_defaults,
            given.kwarg and ast.arg(given.kwarg.arg),
            given.defaults,
        )
        for _ in range(closed):
            (arguments.posonlyargs or arguments.args).pop(0)
        return ast.unparse(arguments)

    def _check(self) -> None:
        """Refuse statements that mean something else where tensors stand for arrays."""
        for node in self.watched.nodes:
            if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
                raise self.watched.refused(f"has a statement `{type(node).__name__.lower()}`", node)
            if isinstance(node, ast.With) and not _SILENT.fullmatch(ast.unparse(node.items[0].context_expr)):
                raise self.watched.refused("has a statement `with`", node)
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                self._check_targets(node)
            if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
                raise self.watched.refused("yields", node)
            if isinstance(node, ast.JoinedStr) and self.flow.given(node) and not self._raised(node):
                raise self.watched.refused("makes text", node)

    def _raised(self, node: Any) -> bool:
        inside = [one for one in self.watched.nodes if isinstance(one, ast.Raise | ast.Assert)]
        return any(child is node for one in inside for child in ast.walk(one))

    def _check_targets(self, node: Any) -> None:
        """Refuse what is assigned to a part of an array."""
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for one in ast.walk(target):
                if isinstance(one, ast.Subscript) and self.flow.given(one):
                    held = self.watched.fact(one.value)
                    if held is None or held.kind not in _CONTAINERS or self.flow.given(one.slice):
                        raise self.watched.refused("assigns to a part of an array", node)

    def fact(self, node: Any) -> Fact:
        """The fact of an expression.

        Raises:
            RefusedError: no recorded call came to it, or calls differ.
        """
        found = self.watched.fact(node)
        if found is None:
            raise self.watched.refused("has a line that no recorded call comes to", node)
        if found.kind == "several":
            raise self.watched.refused(f"has values of several types in `{ast.unparse(node)}`", node)
        return found

    def constant(self, node: Any) -> Any:
        """The value of an expression that has one and the same whatever the arguments; ``...`` for others."""
        fact = self.watched.fact(node)
        return ... if fact is None or self.flow.given(node) or fact.kind in ("array", "scalar") else fact.value

    def loop(self, function: Any, node: Any, *facts: Fact) -> tuple[Any, ...]:
        """Dtypes that NumPy gives the operands and the result of a ufunc.

        Raises:
            RefusedError: it takes none of these.
        """
        for one in facts:
            if one.kind not in _NUMBERS:
                raise self.watched.refused(f"computes with a {one.kind} in `{ast.unparse(node)}`", node)
        kinds: list[Any] = [{"int": int, "float": float}.get(one.kind, one.dtype) for one in facts]
        if all(isinstance(one, type) for one in kinds):
            kinds = [one.dtype for one in facts]
        try:
            return tuple(function.resolve_dtypes((*kinds, None)))
        except (TypeError, AttributeError) as error:
            raise self.watched.refused(f"has no dtype for `{ast.unparse(node)}`", node) from error

    def cast(self, node: Any, dtype: Any) -> str:
        """An operand as a dtype: as it is written where it has it, or is a number that takes it."""
        fact, text = self.fact(node), self.render(node)
        if fact.dtype == dtype or (fact.kind in ("int", "float") and not self.flow.given(node)):
            return text
        return cast_text(text, fact.dtype, dtype)

    def render(self, node: Any) -> str:
        """The text of a node, with other names where it comes from the arguments."""
        edit = _EDITS.get(type(node))
        stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        new = None if edit is None or stored else edit(self, node)
        text = self.around(node) if new is None else new
        checks = self.checking and isinstance(node, ast.expr) and not stored and self.flow.given(node)
        fact = self.watched.fact(node) if checks and not isinstance(node, ast.Starred | ast.Slice) else None
        if fact is None or fact.kind not in _NUMBERS or isinstance(node, ast.Constant):
            return text
        return f"{CHECKED}({self.watched.numbers[id(node)]}, {text})"

    def around(self, node: Any, *given: tuple[Any, str]) -> str:
        """The user's text of a node with that of the nodes inside it, some of which is given."""
        texts = {id(one): text for one, text in given}
        return self._between(*self._at(node), _placed(node), texts)

    def own(self, node: Any) -> str:
        """The user's text of a node."""
        begin, end = self._at(node)
        return self._bytes[begin:end].decode()

    def _between(self, begin: int, end: int, nodes: Any, given: Mapping[int, str] | None = None) -> str:
        parts, at, texts = [], begin, given or {}
        for one in sorted(nodes, key=self._at):
            first, last = self._at(one)
            parts += [self._bytes[at:first].decode(), texts[id(one)] if id(one) in texts else self.render(one)]
            at = last
        return "".join([*parts, self._bytes[at:end].decode()])

    def _at(self, node: Any) -> tuple[int, int]:
        """Span of a node in the text, in bytes."""
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )


def _placed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes directly inside one that have a place; an f-string has none that Python 3.11 tells."""
    for one in ast.iter_child_nodes(node) if not isinstance(node, ast.JoinedStr) else ():
        if isinstance(one, ast.arguments):
            yield from (*one.defaults, *(default for default in one.kw_defaults if default is not None))
        elif hasattr(one, "lineno"):
            yield one
        else:
            yield from _placed(one)


def loaded(text: str) -> tuple[str, ...]:
    """Names that a text takes from its scope."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    stored = {one.id for one in nodes if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    stored |= {one.arg for one in nodes if isinstance(one, ast.arg)}
    stored |= {one.name for one in nodes if isinstance(one, ast.FunctionDef)}
    stored |= {(one.asname or one.name).split(".")[0] for one in nodes if isinstance(one, ast.alias)}
    used = {one.id for one in nodes if isinstance(one, ast.Name)}
    return tuple(sorted(used - stored - set(dir(builtins)) - {"tf", "tnp"}))
