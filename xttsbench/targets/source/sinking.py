"""Links of a pipeline moved behind others whatever statements stand between: the edit follows the value of the data.

What moves is taken out where it stands, and written behind the last one, in the same function. Where it stood under an
``if`` it does so there as well; who else reads the data that it made finds it before that reading. That is refused
where a name that it needs has another value by then, and where the data cannot be followed.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import libcst as cst
from libcst.helpers import get_full_name_for_node

from xttsbench.targets.source.branches import branches, condition, exclusive, joined, negated
from xttsbench.targets.source.edits import Change, Moved, NoEditError, Put, Replacement, Step
from xttsbench.targets.source.flow import Flow
from xttsbench.targets.source.link_edits import (
    argument,
    before_statement,
    behind,
    behind_statement,
    function_around,
    has_lines,
    lines_of,
    removed,
    with_argument,
)
from xttsbench.targets.source.module import Module, is_name
from xttsbench.targets.source.tree import Link, Span

_LOOKING: Final = ("print", "isinstance", "type", "id", "repr")  # functions that look at a dataset without reading it
_LOOPS: Final = (cst.For, cst.While, cst.BaseComp)
_EACH: Final = ("filter", "map", "prefetch")  # what shuffled elements go through as well before they are shuffled
LISTS_FILES: Final = "list_files"
"""A call that shuffles as it is; told not to, its files are shuffled where that is moved to."""

Gone = tuple[int, int, str]
"""A part that is taken out, from where to where, and what stands in its place."""
Where = Callable[[Module, cst.CSTNode], tuple[int, str, str]]


_flow_of: Final = functools.lru_cache(maxsize=32)(Flow)  # a function's flow is worked out once


class Sinking:
    """One edit: where data go from the moved links to the last one, and who else reads them on the way.

    The data go through the links in their order, and the last one stays. Those of ``own`` made an op themselves; the
    others are functions of the user's, in which ops were made. With ``same_elements`` what is moved changes only their
    order. Links in different functions raise :class:`NoEditError`.
    """

    def __init__(
        self, module: Module, links: list[Link], moved: list[Link], own: Collection[Link], *, same_elements: bool
    ) -> None:
        self._own = own  # links that are the calls of datasets' methods
        self._alike: set[Link] = set()  # calls of other ways that are edited as what moves
        self._not_where: list[str] = []  # a reader before the last link has put back what moved
        self._same_elements = same_elements  # without what is moved, but for their order
        self._module, self._links, self._moved, self._last = module, links, moved, links[-1]
        within = {function_around(module, link.node) for link in links}
        if len(within) > 1:
            raise NoEditError(f"{links[0].shown} and {self._last.shown} are in different functions")
        self._flow = _flow_of(module, next(iter(within)))
        self._inputs = {link: given for link in moved if (given := self._given(link)) is not None}
        self._restored = set(self._flow.reads_of(self._last.node, strict=False))

    def change(self, text: str) -> Change:
        """The edit, with the text of a new link behind the last one (empty for none).

        Raises:
            NoEditError: it cannot be made safely.
        """
        module, last = self._module, self._last
        conditions = {link: [*self._conditions(link.node), *self._asked(link)] for link in self._moved}
        again, guard = list[tuple[Link, Put]](), ""
        try:
            missing = defaultdict[cst.Name, list[Link]](list)  # by place that reads data, the moved links that it lacks
            for link in self._moved:
                for node in self._others(link):
                    missing[node].append(link)
            again += self._again(missing, conditions)
        except NoEditError as why:
            again, self._not_where = [], []
            guard = self._guard(why)
        first = behind(module, last, "")
        steps: list[Step] = [Replacement(first.start, first.start, f"{first.text}{text}")] if text else []
        puts: list[tuple[Link, Put]] = []
        assigned = self._assigned_alone(last)
        in_turn = False  # once one is a statement, those behind it are
        for link in self._moved:
            self._flow.same_values(link.node, self._needs(link), module.statement(last.node))
            holds = [*conditions[link], *self._not_where]
            in_turn |= bool(holds) and assigned is not None
            if in_turn and assigned is not None:
                put = self._as_statement(assigned, holds, link, behind_statement)
            elif holds or link in self._inputs or link.name == LISTS_FILES:
                put = Put(first.start, self._applied(link, holds))
            else:
                put = Put(first.start, (first.text, (link.start, link.end)))
            puts.append((link, put))
        taken = []
        for link in self._moved:
            start, end, left = self._stays(link, guard) if guard else self._gone(link)
            taken.append(Moved((start, end), left, tuple(put for of, put in (*puts, *again) if of is link)))
        twins = [Replacement(*self._gone(twin)) for twin in self._alike]
        shown = min(one.start for one in self._links), max(one.end for one in self._links)
        return Change(module, last.line, shown, (*taken, *steps, *twins))

    def _given(self, link: Link) -> cst.Arg | None:
        """The data where they are an argument of a call: it is a function of the user's then.

        Raises:
            NoEditError: it is not clear which argument that is.
        """
        if link in self._own:
            return None
        module, statement = self._module, self._module.parent(link.node)
        target = statement.targets[0].target if isinstance(statement, cst.Assign) else None
        found = [one for one in link.node.args if target is not None and module.code(one.value) == module.code(target)]
        if len(found) != 1:
            raise NoEditError(f"{link.name}(...) of line {link.line} is not a statement `x = {link.name}(x)`")
        return found[0]

    # Where the data go

    def _others(self, moved: Link) -> Iterator[cst.Name]:
        """The places that read data behind a moved link and do not lead to the last one."""
        module = self._module
        for use in self._flow.reads_of(moved.node, self._links[:-1]):
            call = module.called_with(use)
            if (call is not None and call is self._last.node) or (self._same_elements and _only_looks(module, use)):
                continue
            if not isinstance(use, cst.Name):
                raise NoEditError(f"the data of {moved.shown} are used at line {module.line(use)} as well")
            yield use

    def _again(
        self, missing: Mapping[cst.Name, list[Link]], conditions: Mapping[Link, list[str]]
    ) -> Iterator[tuple[Link, Put]]:
        """Copies of the moved links for other readers of the data.

        On ways on which such a reader comes before the last link, the copy is not repeated behind that link.
        """
        module, done = self._module, list[cst.CSTNode]()
        for use in sorted(missing, key=module.start):
            statement = module.statement(use)
            where = f"`{use.value}` is used for something else as well at line {module.line(use)}"
            loops = {one for one in module.ancestors(use) if isinstance(one, _LOOPS)}
            refused = (
                not self._same_elements
                or loops - set(module.ancestors(missing[use][0].node))
                or use in self._restored
                or function_around(module, use) is not function_around(module, self._last.node)
                or not module.begins_line(module.start(statement))
                or any(isinstance(at, cst.IfExp) for at, _ in branches(module, use))
            )
            if refused:
                raise NoEditError(where)
            if any(set(module.block(one)) & {statement, *module.ancestors(statement)} for one in done):
                continue  # an earlier reader of the same block has put it back
            if any(not exclusive(module, one, statement) for one in done):
                raise NoEditError(where)
            done.append(statement)
            if module.start(statement) < module.start(self._last.node) and not exclusive(module, use, self._last.node):
                aside = self._conditions(use)
                if not aside or missing[use] != self._moved:
                    raise NoEditError(where)
                self._flow.same_values(use, (), module.statement(self._last.node))
                self._not_where.append(negated(aside))
            for link in missing[use]:
                self._flow.same_values(link.node, self._needs(link), statement)
                put = self._as_statement(use.value, conditions[link], link, before_statement, statement)
                yield link, put

    def _guard(self, why: NoEditError) -> str:
        """When what moves stays where it stands: on all ways that do not come to the last link, as a condition there.

        Raises:
            NoEditError: the last link is not in branches alone that the moved ones are not in, or somebody reads the
                data elsewhere than in other branches and behind it.
        """
        module, last = self._module, self._last
        theirs, name = dict(branches(module, last.node)), self._assigned_alone(last)
        places = [dict(branches(module, link.node)) for link in self._moved]
        apart = {at: part for at, part in theirs.items() if at not in places[0] and isinstance(at, cst.If)}
        every = [*theirs, *(at for place in places for at in place)]
        same = all({at for at in theirs if at not in place} == set(apart) for place in places)
        if not apart or not same or not self._same_elements or not all(isinstance(at, cst.If) for at in every):
            raise why
        waiting: list[cst.CSTNode] = []
        for link in self._moved:
            statement = self._only(link)
            if statement is None or module.code(statement.targets[0].target) != name:
                raise why
            waiting.append(statement.targets[0].target)
            for at in apart:
                self._flow.same_values(link.node, [at.test], at)
        done = set[cst.CSTNode]()
        while waiting:
            for use in self._flow.readers.get(waiting.pop(), ()):
                place = dict(branches(module, use))
                elsewhere = any(place.get(at, part) not in (part, "test") for at, part in apart.items())
                behind_it = use in self._restored and module.start(use) > module.end(last.node)
                if use in done or elsewhere or behind_it or _only_looks(module, use):
                    continue
                done.add(use)
                end = self._end_of_chain(use)
                if end == last or end in self._moved:
                    continue
                statement = self._only(end) if end is not None else None
                if statement is None or module.code(use) != name:
                    raise why
                waiting.append(statement.targets[0].target)
        return negated([condition(module, at.test, is_not=apart[at] == "orelse") for at in reversed(apart)])

    def _end_of_chain(self, use: cst.CSTNode) -> Link | None:
        """The last call of a chain on some data, at most a known link; ``None`` where one needs them in their order."""
        link = self._module.link(self._module.called_with(use))
        while link is not None and link != self._last and link not in self._moved:
            if link not in self._links and link.name not in _EACH:
                return None
            further = self._module.called_with(link.node)
            if further is None:
                return link
            link = self._module.link(further)
        return link

    def _stays(self, link: Link, guard: str) -> Gone:
        """The text that makes a link a conditional one: in the ``if`` that has only it, or in one around it."""
        module, statement = self._module, self._only(link)
        assert statement is not None
        if (around := self._only_for(statement)) is not None:
            test = module.code(around.test)
            test = f"({test})" if isinstance(around.test, cst.BooleanOperation | cst.IfExp | cst.NamedExpr) else test
            return *module.span(around.test), f"{test} and {guard}"
        start = module.start(statement)
        if not module.begins_line(start):
            raise NoEditError(f"line {module.line(statement)} has several statements")
        inner = module.indent(start) + module.tree.default_indent
        return start, start, f"if {guard}:{module.line_end}{inner}"

    # Under which conditions, and with which values

    def _conditions(self, node: cst.CSTNode) -> list[str]:
        """Conditions for a link, or a reader, to run where the last link runs."""
        module = self._module
        mine, theirs = dict(branches(module, node)), dict(branches(module, self._last.node))
        found: list[str] = []
        for at, part in mine.items():
            if at in theirs and (theirs[at] == part or not isinstance(at, cst.If)):
                continue
            otherwise = isinstance(at, cst.IfExp) and part == "body" and module.code(at.orelse) == self._receiver(node)
            if (isinstance(at, cst.If) and at not in theirs) or (isinstance(at, cst.IfExp) and otherwise):
                found.insert(0, condition(module, at.test, is_not=part == "orelse"))
                continue
            kind, link = type(at).__name__.lower(), module.link(node)
            if isinstance(at, cst.Try) and link is not None and (twins := self._twins(link)):
                self._alike.update(twins)
                continue
            what = link.shown if link is not None else f"`{module.shown(node)}`"
            raise NoEditError(f"{what} is in a `{kind}` of line {module.line(at)} by itself")
        loops = [at for at in theirs if at not in mine and isinstance(at, _LOOPS)]
        if loops:
            raise NoEditError(f"{self._last.shown} runs several times, in line {module.line(loops[0])}")
        return found

    def _asked(self, link: Link) -> Iterator[str]:
        """Condition on the shuffle argument of ``list_files``, where that is no constant."""
        given = argument(link, "shuffle", 1) if link.name == LISTS_FILES and link in self._own else None
        if given is not None and not is_name(given.value, "True", "None"):
            yield condition(self._module, given.value, is_not=False)

    def _twins(self, link: Link) -> list[Link]:
        """The calls that list files on the other ways to the readers of a call that does; none where they differ."""
        module, assigned, found = self._module, self._module.parent(link.node), list[Link]()
        if link.name != LISTS_FILES or link not in self._own or not isinstance(assigned, cst.Assign):
            return []
        for use in (use for one in assigned.targets for use in self._flow.readers.get(one.target, ())):
            for target in self._flow.reaching[use] - {one.target for one in assigned.targets}:
                owner = next(iter(module.ancestors(module.parent(target) or target)))
                twin = module.link(owner.value) if isinstance(owner, cst.Assign) else None
                if twin is None or twin.name != LISTS_FILES:
                    return []
                if [module.code(one) for one in twin.node.args[1:]] != [module.code(one) for one in link.node.args[1:]]:
                    return []
                found.append(twin)
        return found

    def _needs(self, link: Link) -> list[cst.Arg]:
        return [given for given in link.node.args if given is not self._inputs.get(link)]

    # How it is written

    def _assigned_alone(self, link: Link) -> str | None:
        """The name that the value of a call alone is assigned to, on lines of its own."""
        module, statement = self._module, self._module.parent(link.node)
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
            return None
        target = statement.targets[0].target
        named = has_lines(module, statement) and get_full_name_for_node(target) is not None
        return module.code(target) if named else None

    def _as_statement(
        self, name: str, conditions: list[str], link: Link, where: Where, statement: cst.CSTNode | None = None
    ) -> Put:
        module = self._module
        statement = statement or module.statement(self._last.node)
        indent, end = module.indent(module.start(statement)), module.line_end
        inner = indent + module.tree.default_indent if conditions else indent
        head = f"{indent}if {joined(conditions)}:{end}" if conditions else ""
        at, first, last = where(module, statement)
        return Put(at, (f"{first}{head}{inner}{name} = ", *self._called(link, name), last))

    def _applied(self, link: Link, conditions: list[str]) -> tuple[str | Span, ...]:
        module = self._module
        used = {one.value for given in self._needs(link) for one in module.inside(given, cst.Name)}
        used.update(word for one in conditions for word in re.findall(r"\w+", one))
        name = next(one for one in ("ds", "dataset", *(f"ds_{number}" for number in range(999))) if one not in used)
        prefix = behind(module, self._last, "").text
        end = f" if {joined(conditions)} else {name})" if conditions else ")"
        return f"{prefix}.apply(lambda {name}: ", *self._called(link, name), end

    def _called(self, link: Link, name: str) -> tuple[str | Span, ...]:
        if (given := self._inputs.get(link)) is not None:  # the call of a function, and the data its argument
            start, end = self._module.span(given.value)
            return (link.start, start), name, (end, link.end)
        if link.name == LISTS_FILES:
            seed = argument(link, "seed", 2)
            said = f", seed={self._module.code(seed.value)}" if seed is not None else ""
            return (f"{name}.shuffle({name}.cardinality(){said})",)
        return name, (link.start, link.end)

    def _only(self, link: Link) -> cst.Assign | None:
        """The statement ``x = x.link()``, also with a condition behind it."""
        module, way = self._module, self._module.parent(link.node)
        statement = module.parent(way) if isinstance(way, cst.IfExp) else way
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
            return None
        return statement if module.code(statement.targets[0].target) == self._receiver(link.node) else None

    def _receiver(self, node: cst.CSTNode) -> str | None:
        """The text of the data that a call is made on, or of a name itself."""
        link = self._module.link(node)
        if link is not None and (given := self._inputs.get(link)) is not None:
            return self._module.code(given.value)
        func = getattr(node, "func", None)
        if isinstance(func, cst.Attribute):
            return self._module.code(func.value)
        return self._module.code(node) if isinstance(node, cst.Name) else None

    def _gone(self, link: Link) -> Gone:
        """Removed part for a link, and its replacement.

        The part is the link; its statement where that does nothing else; or an ``if`` that has only that.
        """
        module = self._module
        if link.name == LISTS_FILES and link not in self._inputs:
            given = with_argument(module, link, "shuffle", 1, "False")
            return (given.start, given.end, given.text) if given is not None else (link.end, link.end, "")
        if (statement := self._only(link)) is None:
            if isinstance(module.parent(link.node), cst.IfExp):
                raise NoEditError(f"{link.shown} is in an expression with a condition")
            (step,) = removed(module, link).steps
            assert isinstance(step, Replacement)
            return step.start, step.end, step.text
        block = module.block(statement)
        going = [one for other in self._moved if (one := self._only(other)) in block]
        around = self._only_for(statement)
        if around is not None and "#" not in module.code(around):
            return *lines_of(module, around), ""
        if len(going) == len(block) and statement is going[-1]:
            return *module.span(statement), "pass"
        return *lines_of(module, statement), ""

    def _only_for(self, statement: cst.CSTNode) -> cst.If | None:
        """The ``if``, no ``elif``, that has only one statement."""
        module = self._module
        kinds = (cst.BaseCompoundStatement, cst.Module)
        around = next(one for one in module.ancestors(statement) if isinstance(one, kinds))
        if not isinstance(around, cst.If) or around.orelse is not None or len(module.block(statement)) > 1:
            return None
        return None if isinstance(module.parent(around), cst.If) else around


def _only_looks(module: Module, use: cst.CSTNode) -> bool:
    """Whether a place looks at a dataset without reading it."""
    parent, call = module.parent(use), module.called_with(use)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value == "element_spec"
    return isinstance(parent, cst.Comparison) or (call is not None and module.is_builtin(call.func, *_LOOKING))
