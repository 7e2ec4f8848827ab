"""One file of the user's, read by LibCST and never run: its text, its tree, its calls, and what its names stand for.

LibCST tells where everything stands and which assignments a name can mean. What is added here is small: offsets into
the text, and plain assignments followed from a name to its value. What cannot be told from the text is unknown.
"""

from __future__ import annotations

import ast
import bisect
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import (
    Assignment,
    BuiltinAssignment,
    ClassScope,
    CodePosition,
    ExpressionContext,
    ExpressionContextProvider,
    FunctionScope,
    GlobalScope,
    ImportAssignment,
    MetadataWrapper,
    PositionProvider,
    Scope,
    ScopeProvider,
)

from xttsbench.records.code import SourceFact, SourceKind

Node = TypeVar("Node", bound=cst.CSTNode)
Span = tuple[int, int]
"""Offsets of a part of the text: its start, and behind its end."""

_BOM: Final = "\ufeff"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_COMMENT: Final = re.compile(r"[ \t\f]*(#[^\r\n]*)")
_SECOND_NAMES: Final = re.compile(r"^tensorflow\.(compat\.v[12]|_api\.v2)(?=\.|$)")
"""TensorFlow's second names for its own modules."""
_DEPTH: Final = 6  # assignments followed from a name to what it stands for


@dataclass(frozen=True, eq=False)
class Link:
    """One call, as a link of a chain: ``.map(f)``, or the whole ``make(x)`` where a plain name is called."""

    node: cst.Call
    name: str  # what is called, without what comes before the last dot
    start: int  # of the dot, or of the name where there is none
    end: int  # behind the closing parenthesis
    line: int  # where Python says that the call runs: the line of the name
    own_line: bool  # whether its dot is the first on a line inside brackets


@functools.lru_cache(maxsize=64)
def read_module(file: str, text: str) -> Module:
    """A file's module; the same text is taken apart once.

    Raises:
        SyntaxError, ValueError, RecursionError: the text is not Python, or too deep.
    """
    module = Module(file, text)
    if _BOM * text.startswith(_BOM) + module.tree.code != text:
        raise ValueError("LibCST does not give the text back as it is, so that its places cannot be relied on")
    return module


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


class Module:
    """The text of one file, taken apart.

    Raises:
        SyntaxError, ValueError, RecursionError: the text is not Python, or too deep.
    """

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        body = text.removeprefix(_BOM)
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
        self._value_of: dict[cst.CSTNode, cst.BaseExpression] = {}
        self._attributes: dict[str, list[cst.BaseExpression]] = {}
        for assign in self.of(cst.Assign):
            for target in assign.targets:
                self._bind(target.target, assign.value)
        for annotated in self.of(cst.AnnAssign):
            if annotated.value is not None:
                self._bind(annotated.target, annotated.value)

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
        line = self.text[self.line_start(offset) : self.line_stop(offset)].removeprefix(_BOM)
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def begins_line(self, offset: int) -> bool:
        """Whether there is only white space before it on its line."""
        return not self.text[self.line_start(offset) : offset].strip(f" \t\f{_BOM}")

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

    def next_link(self, link: Link) -> Link | None:
        """The link whose method is called on what this one returns."""
        attribute = self.parent(link.node)
        call = self.parent(attribute) if isinstance(attribute, cst.Attribute) else None
        return self.link(call) if isinstance(call, cst.Call) and call.func is attribute else None

    # Names

    def _seen(self, node: cst.CSTNode) -> Scope:
        scope = next((self._scopes[one] for one in (node, *self.ancestors(node)) if self._scopes.get(one)), None)
        return scope or self.module_scope

    @functools.cached_property
    def module_scope(self) -> GlobalScope:
        """The scope of the whole module."""
        return next(scope.globals for scope in self._scopes.values() if scope is not None)

    def scope(self, node: cst.CSTNode) -> Scope:
        """The scope of the innermost function, class or module that a node is in, comprehensions left out."""
        scope = self._seen(node)
        while not isinstance(scope, GlobalScope | ClassScope | FunctionScope):
            scope = scope.parent
        return scope

    def in_function(self, node: cst.CSTNode) -> bool:
        """Whether a node runs only when a function is called."""
        return any(isinstance(one, cst.FunctionDef | cst.Lambda) for one in self.ancestors(node))

    def assignments(self, name: str, at: cst.CSTNode) -> list[Assignment]:
        """All that gives the variable which a name means at a place its value, in the order of the text."""
        found = (one for one in self._seen(at)[name] if isinstance(one, Assignment))
        return sorted(found, key=lambda one: self.start(one.node))

    def uses(self, same: list[Assignment]) -> list[cst.CSTNode]:
        """Reads of the variable of these assignments."""
        found = {access.node for one in same for access in one.references}
        return sorted(found, key=self.start)

    def reads(self, node: cst.CSTNode) -> bool:
        """Whether a name or attribute is read here, neither set nor deleted."""
        return self._contexts.get(node) is ExpressionContext.LOAD

    def is_set(self, node: cst.CSTNode) -> bool:
        """Whether a name, an attribute or an item is given a value here."""
        return self._contexts.get(node) is ExpressionContext.STORE

    def values(self, node: cst.Name | cst.Attribute) -> list[cst.BaseExpression]:
        """Values assigned to a name (or to ``self.name``) before this line; of an enclosing scope anywhere in it."""
        own = self.scope(node)
        if isinstance(node, cst.Attribute):
            held = self._attributes.get(get_full_name_for_node(node) or "", [])
            return [value for value in held if own is not self.module_scope or self.line(value) < self.line(node)]
        found = [one for one in self.assignments(node.value, node) if one.node in self._value_of]
        seen = [one for one in found if one.scope is not own or self.line(self._value_of[one.node]) < self.line(node)]
        return [self._value_of[one.node] for one in seen]

    def parameter(self, node: cst.Name) -> cst.Param | None:
        """The parameter that a name is; ``None`` where it is none."""
        found = (one.node for one in self.assignments(node.value, node) if isinstance(one.node, cst.Param))
        return next(found, None)

    def string(self, node: cst.CSTNode) -> str | None:
        """Value of a text literal, or of a name for one that is assigned once; else ``None``."""
        values: Sequence[cst.CSTNode] = self.values(node) if isinstance(node, cst.Name) else [node]
        value = getattr(values[0], "evaluated_value", None) if len(values) == 1 else None
        return value if isinstance(value, str) else None

    def integer(self, node: cst.CSTNode | None, depth: int = _DEPTH) -> int | None:
        """Value of a whole-number literal, or of a name for one that is assigned once; else ``None``."""
        if isinstance(node, cst.Integer):
            return node.evaluated_value
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            value = self.integer(node.expression, depth)
            return None if value is None else -value
        values = self.values(node) if isinstance(node, cst.Name) and depth else []
        return self.integer(values[0], depth - 1) if len(values) == 1 else None

    @functools.cached_property
    def calls(self) -> tuple[tuple[cst.Call, str], ...]:
        """Every call, with the dotted name of what is called (empty where that is unknown)."""
        return tuple((call, self.dotted(call.func)) for call in self.of(cst.Call))

    @functools.cached_property
    def imported(self) -> frozenset[str]:
        """Dotted names of everything that is imported."""
        scopes = {scope for scope in self._scopes.values() if scope is not None}
        found = (one for scope in scopes for one in scope.assignments if isinstance(one, ImportAssignment))
        return frozenset(_imported(one, one.name) for one in found)

    def is_builtin(self, node: cst.CSTNode, *names: str) -> bool:
        """Whether a node is one of these builtins, and not the module's own object of that name."""
        if not isinstance(node, cst.Name) or node.value not in names:
            return False
        return all(isinstance(one, BuiltinAssignment) for one in self._seen(node)[node.value])

    def dotted(self, node: cst.CSTNode, depth: int = _DEPTH) -> str:
        """Dotted name of a name or of attributes of one, imports and assignments followed; empty for the rest.

        ``tf.data.AUTOTUNE`` is ``tensorflow.data.AUTOTUNE`` however TensorFlow was imported.
        """
        parts: list[str] = []
        while isinstance(node, cst.Attribute):
            parts.insert(0, node.attr.value)
            node = node.value
        if not isinstance(node, cst.Name):
            return ""
        values = [value for value in self.values(node) if not is_name(value, "None")]
        imports = [one for one in self.assignments(node.value, node) if isinstance(one, ImportAssignment)]
        base = node.value
        if len(values) == 1 and depth and isinstance(values[0], cst.Name | cst.Attribute):
            base = self.dotted(values[0], depth - 1)
        elif imports and not values and self.parameter(node) is None:
            return _imported(imports[-1], ".".join([base, *parts]))
        return _plain(".".join([base, *parts])) if base else ""

    def spelled(self, at: cst.CSTNode, name: str) -> str | None:
        """Spelling of ``tensorflow.<name>`` at a place, e.g.

        ``tf.data.AUTOTUNE`` for ``data.AUTOTUNE``.

        ``None`` where TensorFlow has no name there that surely means it.
        """
        wanted = f"tensorflow.{name}"
        found: list[tuple[bool, int, str]] = []
        scope, own = self._seen(at), self.scope(at)
        while True:
            for one in scope.assignments:
                meant = self._stands_for(one)
                if meant == "tensorflow.data.experimental.AUTOTUNE":
                    meant = "tensorflow.data.AUTOTUNE"
                if not meant or not (wanted == meant or wanted.startswith(f"{meant}.")):
                    continue
                same = self.assignments(one.name, at)
                in_time = scope is not own or all(self.start(other.node) < self.start(at) for other in same)
                if one in same and in_time and self._agree(same):
                    text = one.name + wanted[len(meant) :]
                    found.append((isinstance(one, ImportAssignment), len(text), text))
            if isinstance(scope, GlobalScope):
                return min(found)[2] if found else None
            scope = scope.parent

    def _stands_for(self, one: object) -> str:
        """Dotted name of what a name is given by an import or by a plain assignment; empty where that is unknown."""
        if isinstance(one, ImportAssignment):
            return _imported(one, one.name)
        value = self._value_of.get(one.node) if isinstance(one, Assignment) else None
        return self.dotted(value) if value is not None else ""

    def _agree(self, same: list[Assignment]) -> bool:
        """Whether all assignments of a name mean the same, and none is for type checkers; an import may have failed."""
        meant = set()
        for one in same:
            value = self._value_of.get(one.node)
            if value is None or not is_name(value, "None"):
                meant.add(self._stands_for(one))
            if self.only_for_types(one.node):
                return False
        return len(meant) == 1

    def only_for_types(self, node: cst.CSTNode) -> bool:
        """Whether code is for type checkers only."""
        return any(isinstance(at, cst.If) and "TYPE_CHECKING" in self.code(at.test) for at in self.ancestors(node))

    def _bind(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        if isinstance(target, cst.Name):
            self._value_of[target] = value
            if isinstance(holder := getattr(self.scope(target), "node", None), cst.ClassDef):
                for owner in ("self", "cls", holder.name.value):
                    self._attributes.setdefault(f"{owner}.{target.value}", []).append(value)
        elif isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name):
            self._attributes.setdefault(f"{target.value.value}.{target.attr.value}", []).append(value)
        elif isinstance(target, cst.Tuple | cst.List):
            given = value.elements if isinstance(value, cst.Tuple | cst.List) else None
            if given is None or len(given) == len(target.elements):
                for number, one in enumerate(target.elements):
                    # What comes of an unpacked call is unknown: the call stands for it.
                    self._bind(one.value, given[number].value if given is not None else value)


def is_name(node: cst.CSTNode | None, *names: str) -> bool:
    """Whether a node is one of these names as they stand, ``None``, ``True`` and ``False`` among them."""
    return isinstance(node, cst.Name) and node.value in names


def argument_of(call: cst.Call, position: int, name: str) -> cst.BaseExpression | None:
    """The argument of a call by position or by name, as far as it is written out."""
    named = [one.value for one in call.args if one.keyword is not None and one.keyword.value == name]
    positional = [one.value for one in call.args if one.keyword is None]
    return next(iter([*named, *positional[position:]]), None)


def _plain(dotted: str) -> str:
    """A dotted name without TensorFlow's second names for its own modules."""
    found = _SECOND_NAMES.sub("tensorflow", dotted)
    return f"tensorflow.{found}" if found == "keras" or found.startswith("keras.") else found


def _imported(one: ImportAssignment, name: str) -> str:
    return _plain(min((found.name for found in one.get_qualified_names_for(name)), default=name))
