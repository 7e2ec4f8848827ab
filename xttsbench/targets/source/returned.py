"""Tests of a script that depend on what its training step returned.

A step that is left out returns what it once returned. Where an ``if`` or a ``while`` of the function that called it, or
of those around, looks at that, the script would take another course than beside a step that trains. Values are followed
through assignments, expressions, lists that they are put into, and out of functions that return them; what a function
does to an argument is not. Whether a value is finite, there, or of some shape is the same each time.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from typing import Final

import libcst as cst

from xttsbench.records.pipeline import CallSite
from xttsbench.targets.source.flow import Flow
from xttsbench.targets.source.module import Module, read_module

_SAME: Final = frozenset(
    {"len", "isinstance", "hasattr", "type", "callable", "id", "print"}
    | {"isnan", "is_nan", "isinf", "is_inf", "isfinite", "is_finite", "check_numerics", "assert_all_finite"}
)
"""Functions whose result is the same for each value of a step, or is for nobody."""
_ABOUT: Final = frozenset({"shape", "dtype", "ndim", "name", "device", "keys"})
_HOLD: Final = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "update_state", "put"})
"""Methods after which an object holds what they were given."""


def branch_on_step(calls: Sequence[CallSite], lines: tuple[int, int] | None = None) -> str | None:
    """The test that depends on a step's result, as ``file:line: text``; ``None`` where there is none.

    Args:
        calls: the user's calls that were running, innermost first; the first one is the step's, or stands beside it.
        lines: first and last line of a step that is written out, in the file of the first call.

    Raises:
        SyntaxError, ValueError, RecursionError: a file is not Python, or too deep.
    """
    attributes: set[str] = set()
    returned = True
    for number, call in enumerate(calls):
        module = read_module(call.file, "".join(linecache.getlines(call.file)))
        found = _Followed(module, _around(module, call.line), attributes)
        if number == 0 and lines is not None:
            found.set_within(*lines)
        elif returned:
            link = module.ending(call.end_line, call.end_column)
            on_line = (one.node for one in module.links if one.line == call.line)
            found.read(on_line if link is None else [link.node])
        found.finish()
        if found.test is not None:
            return f"{call.file}:{module.line(found.test)}: {module.shown(found.test)}"
        returned = found.returned
        if not returned and not attributes:
            return None
    return None


def branch_on_argument(file: str, line: int, name: str) -> str | None:
    """The same of an argument of the function that is defined at a line."""
    module = read_module(file, "".join(linecache.getlines(file)))
    functions = [one for one in module.of(cst.FunctionDef) if module.line(one) == line]
    for function in functions:
        found = _Followed(module, function, set())
        for given in (*function.params.params, *function.params.kwonly_params):
            if given.name.value == name:
                found.assigned(given.name)
        found.finish()
        if found.test is not None:
            return f"{file}:{module.line(found.test)}: {module.shown(found.test)}"
    return None


def _around(module: Module, line: int) -> cst.FunctionDef | cst.Module:
    """The innermost function around a line, or the module."""
    within = [one for one in module.of(cst.FunctionDef) if module.line(one) <= line <= _last(module, one)]
    return within[-1] if within else module.tree


def _last(module: Module, node: cst.CSTNode) -> int:
    return module.text.count("\n", 0, module.end(node)) + 1


class _Followed:
    """Ways that values take within one function.

    Attributes:
        test: the first test that depends on them.
        returned: whether the function gives them to its caller.
    """

    def __init__(self, module: Module, within: cst.FunctionDef | cst.Module, attributes: set[str]) -> None:
        self.test: cst.CSTNode | None = None
        self.returned = False
        self._module = module
        self._within = within
        self._flow = Flow(module, within)
        self._attributes = attributes
        self._waiting: list[cst.CSTNode] = []
        self._known: set[cst.CSTNode] = set()

    def read(self, nodes: Iterable[cst.CSTNode]) -> None:
        """Expressions have such a value."""
        new = [node for node in nodes if node not in self._known]
        self._known.update(new)
        self._waiting += new

    def assigned(self, target: cst.CSTNode) -> None:
        """A target gets such a value."""
        if isinstance(target, cst.Tuple | cst.List):
            for one in target.elements:
                self.assigned(one.value)
        elif isinstance(target, cst.StarredElement):
            self.assigned(target.value)
        elif isinstance(target, cst.Subscript):
            self._held_by(target.value)
        else:
            self.read(self._flow.readers.get(target, ()))
            if isinstance(target, cst.Attribute):
                self._attributes.add(target.attr.value)

    def set_within(self, first: int, last: int) -> None:
        """Take all names that are set on these lines to have such a value."""
        for name in self._module.inside(self._within, cst.Name):
            if first <= self._module.line(name) <= last and self._module.is_set(name):
                self.assigned(name)

    def finish(self) -> None:
        """Follow everything to its end."""
        while self._waiting or self._held():
            while self._waiting:
                self._follow(self._waiting.pop())

    def _held(self) -> bool:
        reads = self._module.inside(self._within, cst.Attribute) if self._attributes else []
        self.read(one for one in reads if one.attr.value in self._attributes and self._module.reads(one))
        return bool(self._waiting)

    def _held_by(self, holder: cst.BaseExpression) -> None:
        """An object has such a value in it, from now on to its last use."""
        if isinstance(holder, cst.Attribute):
            self._attributes.add(holder.attr.value)
        elif isinstance(holder, cst.Name):
            alike = (one for one in self._module.inside(self._within, cst.Name) if one.value == holder.value)
            self.read(one for one in alike if self._module.reads(one))

    def _follow(self, child: cst.CSTNode) -> None:
        """Go from an expression to what it is a part of, as far as that has its value."""
        for parent in self._module.ancestors(child):
            if isinstance(parent, cst.Call) and child is not parent.func:
                name = parent.func.attr if isinstance(parent.func, cst.Attribute) else parent.func
                called = name.value if isinstance(name, cst.Name) else ""
                if called in _HOLD and isinstance(parent.func, cst.Attribute):
                    self._held_by(parent.func.value)
                if called in _SAME:
                    return
            elif _is_same(parent, child):
                return
            elif isinstance(parent, cst.BooleanOperation) and child is parent.left and self._is_argument(child):
                if isinstance(parent.operator, cst.And):
                    return
            elif (isinstance(parent, cst.If | cst.While) and child is parent.test) or (
                isinstance(parent, cst.Match) and child is parent.subject
            ):
                self.test = self.test or (None if self._is_argument(child) else child)
                return
            elif isinstance(parent, cst.Assign | cst.AnnAssign | cst.AugAssign | cst.NamedExpr):
                targets = [one.target for one in parent.targets] if isinstance(parent, cst.Assign) else [parent.target]
                for target in targets:
                    self.assigned(target)
            elif isinstance(parent, cst.For) and child is parent.iter:
                self.assigned(parent.target)
            elif isinstance(parent, cst.Return | cst.Yield):
                self.returned = True
            if isinstance(parent, cst.BaseSmallStatement | cst.BaseCompoundStatement | cst.Lambda):
                return
            child = parent

    def _is_argument(self, node: cst.CSTNode) -> bool:
        """Whether a node is an argument as it came, logs say, which are there each time."""
        return isinstance(node, cst.Name) and self._module.parameter(node) is not None


def _is_same(parent: cst.CSTNode, child: cst.CSTNode) -> bool:
    """Whether an expression asks of what shape a value is, whether it is there, or whether it has a key."""
    if not isinstance(parent, cst.Comparison):
        return isinstance(parent, cst.Attribute) and parent.attr.value in _ABOUT
    operators = [one.operator for one in parent.comparisons]
    if all(isinstance(one, cst.Is | cst.IsNot) for one in operators):
        return True
    return child is not parent.left and all(isinstance(one, cst.In | cst.NotIn) for one in operators)
