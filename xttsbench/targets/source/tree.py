"""The tree of one file of the user's, read by LibCST and never run: its text, its nodes and their places, its calls.

LibCST tells where everything stands; what is added here are offsets into the text, and the way up from a node.
"""

from __future__ import annotations

import ast
import bisect
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import libcst as cst
from libcst.metadata import (
    CodePosition,
    ExpressionContextProvider,
    MetadataWrapper,
    PositionProvider,
    ScopeProvider,
)

from xttsbench.records.code import SourceFact, SourceKind

Node = TypeVar("Node", bound=cst.CSTNode)
Span = tuple[int, int]
"""Offsets of a part of the text: its start, and behind its end."""

BOM: Final = "\ufeff"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_COMMENT: Final = re.compile(r"[ \t\f]*(#[^\r\n]*)")


@dataclass(frozen=True, eq=False)
class Link:
    """One call, as a link of a chain: ``.map(f)``, or the whole ``make(x)`` where a plain name is called."""

    node: cst.Call
    name: str  # what is called, without what comes before the last dot
    start: int  # of the dot, or of the name where there is none
    end: int  # behind the closing parenthesis
    line: int  # where Python says that the call runs: the line of the name
    own_line: bool  # whether its dot is the first on a line inside brackets

    @property
    def shown(self) -> str:
        """The link in a message."""
        return f".{self.name}(...) of line {self.line}"


class _Parents(cst.CSTVisitor):
    """The parent of each node, inner nodes first, in a third of the time that LibCST's own provider takes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[cst.CSTNode, cst.CSTNode] = {}
        self._around: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        self._around.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self._around.pop()
        if self._around:
            self.found[original_node] = self._around[-1]

    def on_visit_attribute(self, node: cst.CSTNode, attribute: str) -> None:
        """Spare the look-up of a method for each attribute of each node."""

    def on_leave_attribute(self, original_node: cst.CSTNode, attribute: str) -> None:
        """As above."""


class Tree:
    """The text of one file, taken apart.

    Raises:
        SyntaxError, ValueError, RecursionError: the text is not Python, or too deep.
    """

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        body = text.removeprefix(BOM)
        ast.parse(body)  # what is no Python, or nested too deep for it, is refused in Python's own words
        try:
            wrapper = MetadataWrapper(cst.parse_module(body), unsafe_skip_copy=True)
        except cst.ParserSyntaxError as error:
            raise SyntaxError(error.message) from error
        self.tree = wrapper.module
        self.line_end = self.tree.default_newline
        """Newline of the file."""
        wrapper.resolve_many([PositionProvider, ScopeProvider, ExpressionContextProvider])  # together, then kept
        self._positions = wrapper.resolve(PositionProvider)
        self._scopes = wrapper.resolve(ScopeProvider)
        self._contexts = wrapper.resolve(ExpressionContextProvider)
        parents = _Parents()
        self.tree.visit(parents)
        self._parents = parents.found
        self._starts = [len(text) - len(body), *(end.end() for end in _LINE_END.finditer(text))]
        self._of: dict[type[cst.CSTNode], list[cst.CSTNode]] = {}

    # The text and its places

    def _offset(self, at: CodePosition) -> int:
        return self._starts[at.line - 1] + at.column

    def span(self, node: cst.CSTNode) -> Span:
        """Start and end of a node, without parentheses around it."""
        return self.start(node), self.end(node)

    def start(self, node: cst.CSTNode) -> int:
        """Offset at which a node starts."""
        return self._offset(self._positions[node].start)

    def end(self, node: cst.CSTNode) -> int:
        """Offset behind a node."""
        return self._offset(self._positions[node].end)

    def line(self, node: cst.CSTNode) -> int:
        """Number of the line on which a node starts, from 1."""
        return self._positions[node].start.line

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, without comments around it."""
        return self.text[slice(*self.span(node))]

    def shown(self, node: cst.CSTNode) -> str:
        """The text of a node on one line."""
        return " ".join(self.code(node).split())

    def fact(self, kind: SourceKind, node: cst.CSTNode, detail: str) -> SourceFact:
        """A fact at the node's line."""
        start = self.start(node)
        line = self.text[self.line_start(start) : self.line_stop(start)].strip()
        return SourceFact(kind=kind, file=self.file, line=self.line(node), text=line[:200], detail=detail)

    def line_start(self, offset: int) -> int:
        """Offset at which the line of ``offset`` begins."""
        return max(self.text.rfind("\n", 0, offset), self.text.rfind("\r", 0, offset)) + 1

    def line_stop(self, offset: int) -> int:
        """Offset at which the text of that line ends, before its line end."""
        found = _LINE_END.search(self.text, offset)
        return found.start() if found else len(self.text)

    def indent(self, offset: int) -> str:
        """The white space with which that line begins."""
        line = self.text[self.line_start(offset) : self.line_stop(offset)].removeprefix(BOM)
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def begins_line(self, offset: int) -> bool:
        """Whether there is only white space before it on its line."""
        return not self.text[self.line_start(offset) : offset].strip(f" \t\f{BOM}")

    def comment_behind(self, offset: int) -> Span | None:
        """The comment that is all that follows on the line, behind a node."""
        found = _COMMENT.match(self.text, offset)
        return found.span(1) if found else None

    # The tree

    def of(self, kind: type[Node]) -> list[Node]:
        """All nodes of a kind, in the order of the text."""
        if kind not in self._of:
            self._of[kind] = sorted((node for node in self._parents if isinstance(node, kind)), key=self.start)
        return self._of[kind]  # type: ignore[return-value]  # a list of them is kept under each kind

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node that holds this one."""
        return self._parents.get(node)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Parent, its parent, and so on up to the module."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def inside(self, node: cst.CSTNode, kind: type[Node]) -> list[Node]:
        """The nodes of a kind in a node, itself included."""
        start, end = self.span(node)
        found = self.of(kind)
        first, last = (bisect.bisect_left(found, at, key=self.start) for at in (start, end + 1))
        return [one for one in found[first:last] if self.end(one) <= end]

    def statement(self, node: cst.CSTNode) -> cst.BaseSmallStatement | cst.BaseCompoundStatement:
        """The innermost statement that holds an expression."""
        statements = (cst.BaseSmallStatement, cst.BaseCompoundStatement)
        return next(found for found in (node, *self.ancestors(node)) if isinstance(found, statements))

    def block(self, statement: cst.CSTNode) -> list[cst.CSTNode]:
        """The statements of the block that one is in, those on one line each by itself."""
        holder = next(found for found in self.ancestors(statement) if not isinstance(found, cst.SimpleStatementLine))
        if not isinstance(holder, cst.Module | cst.IndentedBlock | cst.SimpleStatementSuite):
            return [statement]  # an ``elif``
        found: list[cst.CSTNode] = []
        for one in holder.body:
            found += one.body if isinstance(one, cst.SimpleStatementLine) else [one]
        return found

    @functools.cached_property
    def links(self) -> tuple[Link, ...]:
        """All calls of names and attributes, by their ends."""
        found = []
        for node in self.of(cst.Call):
            if isinstance(node.func, cst.Attribute):
                named, before = node.func.attr, node.func.dot.whitespace_before
                start, own_line = self.end(before), isinstance(before, cst.ParenthesizedWhitespace)
            elif isinstance(node.func, cst.Name):
                named, start, own_line = node.func, self.start(node.func), False
            else:
                continue
            found.append(Link(node, named.value, start, self.end(node), self.line(named), own_line))
        return tuple(sorted(found, key=lambda link: link.end))

    def link(self, node: cst.CSTNode | None) -> Link | None:
        """The link of a call."""
        found = self._by_end.get(self.end(node)) if isinstance(node, cst.Call) else None
        return found if found is not None and found.node is node else None

    def ending(self, line: int | None, column: int | None) -> Link | None:
        """The call whose expression ends there: a line, and bytes of UTF-8 from its start, as Python's frames say."""
        if line is None or column is None or line > len(self._starts):
            return None
        start = self._starts[line - 1]
        row = self.text[start : self.line_stop(start)]
        return self._by_end.get(start + len(row.encode()[:column].decode(errors="replace")))

    @functools.cached_property
    def _by_end(self) -> dict[int, Link]:
        return {link.end: link for link in self.links}

    def called_with(self, node: cst.CSTNode) -> cst.Call | None:
        """The call of a method of an expression's value, or with it as an argument."""
        parent = self.parent(node)
        above = self.parent(parent) if isinstance(parent, cst.Attribute | cst.Arg) else None
        return above if isinstance(above, cst.Call) and (isinstance(parent, cst.Arg) or above.func is parent) else None

    def next_link(self, link: Link) -> Link | None:
        """The link whose method is called on what this one returns."""
        return self.link(self.called_with(link.node)) if isinstance(self.parent(link.node), cst.Attribute) else None
