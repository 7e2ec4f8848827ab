"""The loop of a generator in the user's file, and what becomes of it: its body moves out, and it yields items."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from xttsbench.pipeline.python.names import exposed, jumps, stored, yields
from xttsbench.records.pipeline import GeneratorParts
from xttsbench.targets.source.edits import Change, NoEditError, Replacement
from xttsbench.targets.source.module import Module


@dataclass
class Loop:
    """The loop of a generator in the user's file."""

    module: Module
    parts: GeneratorParts

    def __post_init__(self) -> None:
        self.text = self.module.text
        tree = ast.parse(self.text.removeprefix("\ufeff"))
        functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
        loops = [(function, node) for function in functions for node in _loops(function)]
        loops = [(function, node) for function, node in loops if node.lineno == self.parts.line]
        if not loops:
            raise NoEditError("its elements do not come from a loop that is written as one")
        self.function, self.node = loops[-1]
        kinds = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
        self.kind = next((one.name for one in kinds if self.function in one.body), "")
        self.tree = tree
        self.head = [one for one in self.node.body if one.lineno in self.parts.kept]
        self.body = [one for one in self.node.body if one not in self.head]
        if not self.body:
            raise NoEditError("nothing of its loop can be moved")

    def check_uses(self, other: Module) -> None:
        """Refuse where something else may use the generator, which yields calls from now on.

        Raises:
            NoEditError: its name is used at several places.
        """
        name = self.function.name if not self.function.name.startswith("__") else self.kind
        modules = {self.module.file: self.module, other.file: other}.values()
        uses = [
            one
            for module in modules
            for one in (*module.of(cst.Name), *module.of(cst.ImportAlias))
            if isinstance(one, cst.Name) and one.value == name
        ]
        imported = len(modules) - 1
        if not name or self.function.name == "__iter__" or len(uses) != 2 + imported:
            raise NoEditError(f"{name or self.function.name} may be used elsewhere, too")

    def change(self) -> Change:
        """The loop with its body as a function in front of it."""
        body = self.body
        inner: ast.stmt = body[-1]
        while isinstance(inner, ast.With):
            inner = inner.body[-1]
        plain = isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Yield)
        if not plain or sum(len(yields(one)) for one in body) != 1 or any(jumps(one) for one in body):
            raise NoEditError("an item does not give exactly one element, at the end of the loop")
        element = self._free("element")
        given = self._given()
        edge = self.module.line_end
        moved = [self._moved(one, inner, self._deeper) for one in body]
        function = [f"{' ' * self.node.col_offset}def {element}({', '.join(given)}):{edge}", *moved, edge]
        return self._yielding(", ".join((element, *given)) if given else f"{element},", function)

    def of_items(self, values: Sequence[str]) -> Change:
        """The loop without its body, so that it yields items.

        Args:
            values: the parts of an item as they are written in the loop; calls of the body that the loop makes itself
                are ``_xttsbench_drawn_0`` and so on.
        """
        self._given()  # for what it refuses
        drawn = [name for statement in self.body for name, _, _ in self._drawn(statement)]
        names = {f"_xttsbench_drawn_{number}": name for number, name in enumerate(drawn)}
        return self._yielding(re.sub(r"_xttsbench_drawn_\d+", lambda found: names[found[0]], ", ".join(values)))

    @property
    def _deeper(self) -> str:
        first = self.node.body[0]
        return " " * (first.col_offset if self._own_line(first) else self.node.col_offset + 4)

    def _yielding(self, yielded: str, before: Sequence[str] = ()) -> Change:
        """The loop with its head alone, which yields something in place of its element, behind what comes before it."""
        start, end = self._line_start(self.node.lineno), self._after(self.node)
        edge, pieces = self.module.line_end, [*before, self._header(), self.module.line_end]
        for one in self.node.body:
            if one in self.head:
                pieces.append(self._chunk(one, self._deeper))
                continue
            pieces += [f"{self._deeper}{name} = {self.text[a:b]}{edge}" for name, a, b in self._drawn(one)]
            pieces += [f"{self._deeper}yield {yielded}{edge}"] if one is self.body[-1] else []
        pieces.append(self.text[self._after(self.node.body[-1]) : end])
        return Change(self.module, self.node.lineno, (start, end), (Replacement(start, end, "".join(pieces)),))

    def _given(self) -> list[str]:
        """Arguments of the function: what changes from item to item, or may change while calls are waiting."""
        body, function = self.body, self.function
        arguments = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        each = stored(self.head) | (stored(self.node.target) if isinstance(self.node, ast.For) else set())
        wanted = exposed(body) & (arguments | stored(function.body))
        for one in self.head:
            first = next(other for other in self.node.body if other in body and exposed([other]) & wanted)
            if first.lineno < one.lineno < body[-1].lineno and stored(one) & exposed([first]):
                raise NoEditError(f"{min(stored(one))!r} is bound anew between its uses")
        around = [one for one in _loops(function) if one is not self.node]
        again = any(one.lineno < self.node.lineno <= (one.end_lineno or 0) for one in around)
        names = [one for one in ast.walk(function) if isinstance(one, ast.Name)]
        bound = [one.id for one in names if not isinstance(one.ctx, ast.Load)]
        fixed = {name for name in wanted - each if bound.count(name) + (name in arguments) <= 1 and not again}
        drawn = [name for one in body for name, _, _ in self._drawn(one)]
        order = {one.id: number for number, one in reversed(list(enumerate(names)))}
        return [*sorted(wanted - fixed, key=lambda name: order.get(name, -1)), *drawn]

    def _drawn(self, statement: ast.stmt) -> list[tuple[str, int, int]]:
        """Calls of a statement that the loop makes itself: name of the value, and the span of the call."""
        found = []
        for number, (line, column, end_line, end_column) in enumerate(self.parts.drawn):
            if statement.lineno <= line <= (statement.end_lineno or 0):
                name = self._free("drawn" if number == 0 else f"drawn_{number + 1}")
                found.append((name, self._offset(line, column), self._offset(end_line, end_column)))
        return found

    def _moved(self, statement: ast.stmt, inner: Any, indent: str) -> str:
        """A statement as it is written, with names for what was drawn before, and ``return`` for ``yield``."""
        text, base = self._chunk(statement, indent), self._chunk_start(statement)
        shift = (
            len(text) - (self._after(statement) - base)
            if self._own_line(statement)
            else len(indent) - (self._offset(statement.lineno, statement.col_offset) - base)
        )
        changes = [(a, b, name) for name, a, b in self._drawn(statement)]
        if statement.lineno <= inner.lineno <= (statement.end_lineno or 0) and isinstance(inner.value, ast.Yield):
            at = self._offset(inner.lineno, inner.col_offset)
            if self.text[at : at + 5] == "yield":
                changes.append((at, at + 5, "return"))
        for a, b, new in sorted(changes, reverse=True):
            text = text[: a - base + shift] + new + text[b - base + shift :]
        return text

    def _chunk(self, statement: ast.stmt, indent: str) -> str:
        before = "" if self._own_line(statement) else indent
        return before + self.text[self._chunk_start(statement) : self._after(statement)]

    def _chunk_start(self, statement: ast.stmt) -> int:
        """Offset of a statement, of its line where it stands on lines of its own, or of the comments above that."""
        if not self._own_line(statement):
            return self._offset(statement.lineno, statement.col_offset)
        number = self.node.body.index(statement)
        return self._after(self.node.body[number - 1]) if number else self._line_start(statement.lineno)

    def _header(self) -> str:
        return self.text[self._line_start(self.node.lineno) : self._chunk_start(self.node.body[0])].rstrip()

    def _own_line(self, statement: ast.stmt) -> bool:
        start = self._offset(statement.lineno, statement.col_offset)
        return not self.text[self.module.line_start(start) : start].strip()

    def _after(self, node: Any) -> int:
        stop = self.module.line_stop(self._offset(node.end_lineno, node.end_col_offset))
        return stop + len(self.module.line_end) if stop < len(self.text) else stop

    def _line_start(self, line: int) -> int:
        return self._offset(line, 0)

    def _offset(self, line: int, column: int) -> int:
        start = self.module._starts[line - 1]
        stop = self.module.line_stop(start)
        return start + len(self.text[start:stop].encode()[:column].decode())

    def _free(self, name: str) -> str:
        taken = {one.id for one in ast.walk(self.tree) if isinstance(one, ast.Name)}
        taken |= {one.name for one in ast.walk(self.tree) if isinstance(one, ast.FunctionDef | ast.ClassDef)}
        return name if name not in taken else f"{self.function.name}_{name}"


def _loops(function: ast.FunctionDef) -> list[ast.For | ast.While]:
    return [one for one in ast.walk(function) if isinstance(one, ast.For | ast.While)]
