"""Reaching assignments of a name at each place of a function, and where a value goes from there.

Branches, loops, ``try`` and ``with`` are gone through as Python does, and where ways meet, a name may hold the value of
any of them. ``self.x`` is followed like a name inside one function; what other functions do to it is not known. A name
read in a nested function is read whenever that runs, so each of its assignments is taken to reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst
from libcst.helpers import get_full_name_for_node

from xttsbench.targets.source.branches import branches
from xttsbench.targets.source.edits import NoEditError
from xttsbench.targets.source.module import Module
from xttsbench.targets.source.tree import Link

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

    def reads_of(self, node: cst.CSTNode, through: Sequence[Link] = (), *, strict: bool = True) -> list[cst.CSTNode]:
        """The places that read the value of an expression, also by another name, or behind some links.

        Raises:
            NoEditError: it goes where it cannot be followed, and that matters (``strict``).
        """
        module, waiting, found = self._module, [node], list[cst.CSTNode]()
        passed, seen = {link.node for link in through}, set[cst.CSTNode]()
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            parent = module.parent(current)
            if isinstance(parent, cst.Attribute | cst.Arg | cst.Comparison | cst.ComparisonTarget):
                call = module.called_with(current)
                link = module.link(call)
                if call is not None and (call in passed or (link is not None and link.name == "with_options")):
                    waiting.append(call)
                else:
                    found.append(current)
            elif isinstance(parent, cst.IfExp) and current is not parent.test:
                waiting.append(parent)
            elif isinstance(parent, cst.Assign | cst.AnnAssign):
                targets = [one.target for one in parent.targets] if isinstance(parent, cst.Assign) else [parent.target]
                if strict and not all(isinstance(target, cst.Name | cst.Attribute) for target in targets):
                    raise NoEditError(f"line {module.line(parent)} unpacks the data")
                waiting += [use for target in targets for use in self.readers.get(target, ())]
            elif isinstance(current, cst.Name) and not isinstance(parent, cst.NamedExpr):
                found.append(current)
            elif strict and not isinstance(parent, cst.Expr):
                raise NoEditError(f"the data cannot be followed from line {module.line(current)} on")
        return sorted(found, key=module.start)

    def same_values(self, node: cst.CSTNode, args: Sequence[cst.CSTNode], where: cst.CSTNode) -> None:
        """Raise unless what a call or reader needs, and conditions around it, are the same where a statement begins."""
        module = self._module
        theirs = {at for at, _ in branches(module, where)}
        around = [at for at, _ in branches(module, node) if isinstance(at, cst.If | cst.IfExp) and at not in theirs]
        tests = [at for at in around if isinstance(at, cst.If)]
        nodes: list[cst.CSTNode] = [*args, *(at.test for at in around)]
        nodes += [body for one in list(nodes) for body in self._bodies(one)]
        then = self.before.get(where, {})
        earlier = [self.before.get(at, {}) for at in (module.statement(node), *tests)]
        for one in nodes:
            for name in module.inside(one, cst.Name):
                known = frozenset[cst.CSTNode]().union(*(state.get(name.value, ()) for state in earlier))
                if name in self.reaching and then.get(name.value, frozenset()) - known:
                    raise NoEditError(
                        f"`{name.value}` gets its value between lines {module.line(node)} and {module.line(where)}"
                    )
            for read in module.inside(one, cst.Attribute):
                for other in module.of(cst.Attribute):
                    between = module.start(node) < module.start(other) < module.start(where)
                    if between and module.is_set(other) and other.attr.value == read.attr.value:
                        raise NoEditError(f"`{module.code(other)}` gets its value at line {module.line(other)}")

    def _bodies(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The bodies of functions of this function that are named in an argument: they are traced where it stands."""
        names = self._module.inside(node, cst.Name)
        owners = (self._module.parent(target) for name in names for target in self.reaching.get(name, ()))
        return (owner.body for owner in owners if isinstance(owner, cst.FunctionDef))

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
