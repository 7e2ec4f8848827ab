"""One file of the user's, read and never run: what its names stand for.

LibCST tells which assignments a name can mean. What is added here are plain assignments, followed from a name to its
value. What cannot be told from the text is unknown.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import (
    Assignment,
    BuiltinAssignment,
    ClassScope,
    ExpressionContext,
    FunctionScope,
    GlobalScope,
    ImportAssignment,
    Scope,
)

from xttsbench.targets.source.tree import BOM, Tree

_SECOND_NAMES: Final = re.compile(r"^tensorflow\.(compat\.v[12]|_api\.v2)(?=\.|$)")
"""TensorFlow's second names for its own modules."""
_DEPTH: Final = 6  # assignments followed from a name to what it stands for


@functools.lru_cache(maxsize=64)
def read_module(file: str, text: str) -> Module:
    """A file's module; the same text is taken apart once.

    Raises:
        SyntaxError, ValueError, RecursionError: the text is not Python, or too deep.
    """
    module = Module(file, text)
    if BOM * text.startswith(BOM) + module.tree.code != text:
        raise ValueError("LibCST does not give the text back as it is, so that its places cannot be relied on")
    return module


class Module(Tree):
    """The tree of one file, and the names in it.

    Raises:
        SyntaxError, ValueError, RecursionError: the text is not Python, or too deep.
    """

    def __init__(self, file: str, text: str) -> None:
        super().__init__(file, text)
        self._value_of: dict[cst.CSTNode, cst.BaseExpression] = {}
        self._attributes: dict[str, list[cst.BaseExpression]] = {}
        for assign in self.of(cst.Assign):
            for target in assign.targets:
                self._bind(target.target, assign.value)
        for annotated in self.of(cst.AnnAssign):
            if annotated.value is not None:
                self._bind(annotated.target, annotated.value)

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
