"""Reaching assignments of a name at each place of a function, and the conditions under which a place runs.

Branches, loops, ``try`` and ``with`` are gone through as Python does, and where ways meet, a name may hold the value of
any of them. ``self.x`` is followed like a name inside one function; what other functions do to it is not known. A name
read in a nested function is read whenever that runs, so each of its assignments is taken to reach it. Conditions are
given as text that can be written elsewhere.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence
from typing import Final

import libcst as cst
from libcst.helpers import get_full_name_for_node

from xttsbench.targets.source.edits import NoEditError
from xttsbench.targets.source.module import Module

State = dict[str, frozenset[cst.CSTNode]]
"""Name -> the targets whose value it may hold; one that it may be without is left out."""

_PASSES: Final = 2  # through a loop: the second one has what the first one left


class Flow:
    """The assignments that reach each place of a function, or of a module's top.

    ``before`` has what names may hold when a statement begins, ``reaching`` the targets whose value a name (or
    ``self.x``) may hold where it is read, and ``readers`` the places that may read the value of a target.
    """

    def __init__(self, module: Module, within: cst.FunctionDef | cst.Module) -> None:
        self._module = module
        self._scope = module.scope(within.body) if isinstance(within, cst.FunctionDef) else module.module_scope
        self.before: dict[cst.CSTNode, State] = {}
        self.reaching: dict[cst.CSTNode, frozenset[cst.CSTNode]] = {}
        self.readers: dict[cst.CSTNode, set[cst.CSTNode]] = {}
        self._left: list[tuple[list[State], list[State]]] = []  # by break and by continue, of each loop around
        self._deferred: list[tuple[str, cst.CSTNode]] = []
        self._targets: dict[str, set[cst.CSTNode]] = {}
        state: State = {}
        if isinstance(within, cst.FunctionDef):
            given = within.params
            every = (*given.posonly_params, *given.params, *given.kwonly_params, given.star_arg, given.star_kwarg)
            for one in every:
                if isinstance(one, cst.Param):
                    self._set(one.name, one.name.value, state)
        self._suite(within.body, state)
        for name, use in self._deferred:
            self._read(use, frozenset(self._targets.get(name, ())))

    def _suite(self, body: cst.BaseSuite | Sequence[cst.CSTNode], state: State | None) -> State | None:
        """State of the names behind a block; ``None`` where its end is never reached."""
        for one in body.body if isinstance(body, cst.BaseSuite) else body:
            state = None if state is None else self._statement(one, state)  # it may be left before
        return state

    def _statement(self, node: cst.CSTNode, state: State) -> State | None:
        if isinstance(node, cst.SimpleStatementLine):
            return self._suite(list(node.body), state)
        self.before[node] = dict(state)
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._deferred += self._read_in(node.body)
            self._set(node.name, node.name.value, state)
            return state
        if isinstance(node, cst.BaseSmallStatement):
            return self._small(node, state)
        if isinstance(node, cst.If):
            self._expression(node.test, state)
            end, otherwise = self._suite(node.body, dict(state)), node.orelse
            if isinstance(otherwise, cst.If):
                return _joined(end, self._statement(otherwise, dict(state)))
            return _joined(end, state if otherwise is None else self._suite(otherwise.body, dict(state)))
        if isinstance(node, cst.For | cst.While):
            return self._loop(node, state)
        if isinstance(node, cst.Try | cst.TryStar):
            return self._try(node, state)
        if isinstance(node, cst.With):
            for item in node.items:
                self._expression(item.item, state)
                if item.asname is not None:
                    self._target(item.asname.name, state)
            return self._suite(node.body, state)
        if isinstance(node, cst.Match):
            self._expression(node.subject, state)
            ends: list[State | None] = [state]
            for case in node.cases:
                own = dict(state)
                for bound in self._module.inside(case.pattern, cst.Name):
                    self._set(bound, bound.value, own)
                ends.append(self._suite(case.body, own))
            return _joined(*ends)
        return state

    def _small(self, node: cst.BaseSmallStatement, state: State) -> State | None:
        if isinstance(node, cst.Assign):
            self._expression(node.value, state)
            for target in node.targets:
                self._target(target.target, state)
        elif isinstance(node, cst.AnnAssign | cst.AugAssign):
            if node.value is not None:
                self._expression(node.value, state)
            if isinstance(node, cst.AugAssign) and (name := get_full_name_for_node(node.target)):
                self._read(node.target, state.get(name, frozenset()))
            if node.value is not None:
                self._target(node.target, state)
        elif isinstance(node, cst.Import | cst.ImportFrom):
            for alias in () if isinstance(node.names, cst.ImportStar) else node.names:
                bound = alias.evaluated_alias or alias.evaluated_name.partition(".")[0]
                self._set(alias, bound, state)
        elif isinstance(node, cst.Del):
            for gone in self._module.inside(node, cst.Name):
                state.pop(gone.value, None)
        else:
            self._expression(node, state)
            if isinstance(node, cst.Break | cst.Continue) and self._left:
                self._left[-1][isinstance(node, cst.Continue)].append(dict(state))
            if isinstance(node, cst.Return | cst.Raise | cst.Break | cst.Continue):
                return None
        return state

    def _loop(self, node: cst.For | cst.While, state: State) -> State | None:
        if isinstance(node, cst.For):
            self._expression(node.iter, state)
        exits: list[State | None] = [state]
        for _ in range(_PASSES):
            begin = _joined(*exits) or {}
            if isinstance(node, cst.While):
                self._expression(node.test, begin)
            else:
                self._target(node.target, begin)
            self._left.append(([], []))
            end = self._suite(node.body, dict(begin))
            broken, continued = self._left.pop()
            exits = [state, end, *broken, *continued]
        after = _joined(*exits)
        return after if node.orelse is None else self._suite(node.orelse.body, after)

    def _try(self, node: cst.Try | cst.TryStar, state: State) -> State | None:
        end = self._suite(node.body, dict(state))
        inside = [found for one, found in self.before.items() if _holds(self._module, node.body, one)]
        raised = _joined(state, end, *inside) or {}
        ends = [end if node.orelse is None else self._suite(node.orelse.body, end)]
        for handler in node.handlers:
            own = dict(raised)
            if handler.name is not None:
                self._target(handler.name.name, own)
            ends.append(self._suite(handler.body, own))
        after = _joined(*ends)
        if node.finalbody is not None:
            through = self._suite(node.finalbody.body, _joined(after, raised) or {})
            return through if after is not None else None
        return after

    def _expression(self, node: cst.CSTNode, state: State) -> None:
        """Note what is read, and set what ``:=`` sets."""
        nested = self._module.inside(node, cst.Lambda)
        for name, one in self._read_in(node):
            self._read(one, state.get(name, frozenset()))
            if any(_holds(self._module, function, one) for function in nested):
                self._deferred.append((name, one))
        for walrus in self._module.inside(node, cst.NamedExpr):
            self._target(walrus.target, state)

    def _read_in(self, node: cst.CSTNode) -> list[tuple[str, cst.CSTNode]]:
        nodes: list[cst.Name | cst.Attribute] = [*self._module.inside(node, cst.Name)]
        nodes += self._module.inside(node, cst.Attribute)
        return [(name, one) for one in nodes if (name := self._followed(one)) is not None]

    def _followed(self, node: cst.Name | cst.Attribute) -> str | None:
        """The name that is read there, where it is this function's own: no parameter or name of one inside it."""
        name = get_full_name_for_node(node)
        if name is None or not self._module.reads(node):
            return None
        root: cst.BaseExpression = node
        while isinstance(root, cst.Attribute):
            root = root.value
        scopes = {one.scope for one in self._module.assignments(name.partition(".")[0], root)}
        return name if self._scope in scopes or not scopes else None

    def _target(self, node: cst.BaseExpression, state: State) -> None:
        if isinstance(node, cst.Tuple | cst.List):
            for one in node.elements:
                self._target(one.value, state)
        elif isinstance(node, cst.StarredElement):
            self._target(node.value, state)
        elif isinstance(node, cst.Name | cst.Attribute) and (name := get_full_name_for_node(node)):
            for held in [held for held in state if held.startswith(f"{name}.")]:
                del state[held]  # of another object now
            self._set(node, name, state)

    def _set(self, target: cst.CSTNode, name: str, state: State) -> None:
        state[name] = frozenset({target})
        self._targets.setdefault(name, set()).add(target)

    def _read(self, use: cst.CSTNode, targets: frozenset[cst.CSTNode]) -> None:
        self.reaching[use] = self.reaching.get(use, frozenset()) | targets
        for target in targets:
            self.readers.setdefault(target, set()).add(use)


def _joined(*states: State | None) -> State | None:
    """State of the names where several ways meet; ``None`` stands for a way that is never taken."""
    known = [one for one in states if one is not None]
    names = {name for one in known for name in one}
    return {name: frozenset().union(*(one.get(name, ()) for one in known)) for name in names} if known else None


def _holds(module: Module, function: cst.CSTNode, node: cst.CSTNode) -> bool:
    start, end = module.span(function)
    return start <= module.start(node) and module.end(node) <= end


_PURE: Final = ("len", "bool", "int", "float", "str", "max", "min", "any", "all", "isinstance", "getattr", "hasattr")
_PURE_METHODS: Final = ("get", "startswith", "endswith")
_LEAVE: Final = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def branches(module: Module, node: cst.CSTNode, *, beyond: bool = False) -> list[tuple[cst.CSTNode, str]]:
    """The statements with parts around a node in its function, innermost first, and which part it is in.

    With ``beyond`` those around the function as well.
    """
    found: list[tuple[cst.CSTNode, str]] = []
    for child, around in itertools.pairwise([node, *module.ancestors(node)]):
        if isinstance(around, cst.FunctionDef | cst.Lambda) and not beyond:
            break
        if isinstance(around, cst.If | cst.IfExp):
            part = next(name for name in ("test", "body", "orelse") if getattr(around, name) is child)
            found.append((around, part))
        elif isinstance(around, cst.Try):
            found.append((around, "handlers" if isinstance(child, cst.ExceptHandler) else "body"))
        elif isinstance(around, cst.For | cst.While | cst.With | cst.Match | cst.BaseComp):
            found.append((around, "body"))
    return found


def condition(module: Module, test: cst.BaseExpression, *, is_not: bool) -> str:
    """Text of a branch's condition that means the same where it is written again.

    Raises:
        NoEditError: it may say something else the second time.
    """
    for call in module.inside(test, cst.Call):
        method = isinstance(call.func, cst.Attribute) and call.func.attr.value in _PURE_METHODS
        if not method and not module.is_builtin(call.func, *_PURE):
            raise NoEditError(f"the condition of line {module.line(test)} calls {module.shown(call.func)}(...)")
    if module.inside(test, cst.NamedExpr):
        raise NoEditError(f"the condition of line {module.line(test)} sets a name")
    text = module.shown(test)
    if isinstance(test, cst.BooleanOperation | cst.IfExp):
        text = f"({text})"
    return negated([text]) if is_not else text


def negated(conditions: Sequence[str]) -> str:
    """The opposite of several conditions that all hold."""
    text = joined(conditions)
    if found := re.fullmatch(r"not (?:([\w.]+)|\(([^()]+)\))", text):
        return found[1] or f"({found[2]})"
    return f"not {text}" if re.fullmatch(r"[\w.]+(\([^()]*\))?", text) else f"not ({text})"


def joined(conditions: Sequence[str]) -> str:
    """Conditions as one; alone it needs no parentheses."""
    alone = conditions[0][1:-1] if len(conditions) == 1 and conditions[0].startswith("(") else ""
    try:
        ast.parse(alone, mode="eval")
    except SyntaxError:  # these parentheses are not around it all
        return " and ".join(conditions)
    return alone


def exclusive(module: Module, first: cst.CSTNode, second: cst.CSTNode) -> bool:
    """Whether no run goes through both: other branches of one ``if`` or ``try``, or the earlier one leaves."""
    mine, theirs = (dict(branches(module, one, beyond=True)) for one in (first, second))
    forks = (cst.If, cst.Try)
    if any(at in theirs and theirs[at] != part for at, part in mine.items() if isinstance(at, forks)):
        return True
    for own, other in ((mine, theirs), (theirs, mine)):
        for at, part in own.items():
            block = getattr(at, part, None) if isinstance(at, forks) and at not in other and part != "test" else None
            block = block.body if isinstance(block, cst.Else) else block
            last = block.body[-1] if isinstance(block, cst.IndentedBlock | cst.SimpleStatementSuite) else None
            last = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
            if isinstance(last, _LEAVE):
                return True
    return False
