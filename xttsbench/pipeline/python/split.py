"""A generator function cut in two at its loop: a head that picks the next item, and a body that makes elements of it.

The head stays a generator: the same function with the same statements before, around and after the loop, so that order,
shuffles, epochs and what it counts stay what they were. Of the loop's own statements it keeps those that later items
feel (what is counted from element to element, what is drawn from a random generator or read from a stream, what ends
the loop), with all that these need, in their order. The others make up the body, a function of what they read, and can
be called for several items at once. Pure: trees of the source, and what another module says each statement does.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from xttsbench.pipeline.python import names

EMIT: Final = "_xttsbench_emit"
"""Name of the callback that a body calls with each element."""
SHARE: Final = "_xttsbench_share"
"""Name of the callback that the head calls with the values that all items of one run of the loop share."""


class CannotSplitError(Exception):
    """Why a generator is not cut in two, as a phrase, and the line that speaks against it."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.line = line

    def told(self, file: str | None) -> str:
        """The phrase, with the file and line where it names none."""
        where = f"{os.path.basename(file or '')}:{self.line}"
        named = self.line is None or where in str(self) or str(self).startswith("line ")
        return str(self) if named else f"{self} ({where})"


@dataclass(frozen=True)
class Felt:
    """Something that a statement does and that is felt outside of its own item."""

    node: Any  # the call, or the statement, that does it
    text: str  # what, in words, with its place
    allowed: bool  # whether it may be done in the head, in order, earlier than before


class Effects(Protocol):
    """Effects of statements, as far as trees alone do not show them."""

    def __call__(self, statements: Sequence[ast.stmt], items: frozenset[str], shared: frozenset[str]) -> Sequence[Felt]:
        """Effects outside of their own item; ``items`` are names of an item's values, ``shared`` of common ones."""

    def works(self, statement: ast.stmt) -> bool:
        """Whether a statement runs the user's code without calling it by name."""


@dataclass(frozen=True)
class Split:
    """A generator in two."""

    head: Any  # a generator function of the same parameters, which calls :data:`SHARE` and yields ``(shared, items)``
    body: Any  # a function of :data:`EMIT`, the shared values and the items
    shared: tuple[str, ...]  # names of values that were made before the loop
    items: tuple[str, ...]  # names of values that each item has of its own
    once: bool  # whether the body gives one element for each item
    line: int  # of the loop
    kept: tuple[int, ...]  # lines of the loop's own statements that stay in the head
    drawn: tuple[tuple[int, int, int, int], ...]  # calls that the head makes: line and column of beginning and end


_SHARED: Final = "_xttsbench_shared"
_UNCONDITIONAL: Final = ast.Call | ast.Attribute | ast.Subscript | ast.Tuple | ast.List | ast.Dict | ast.BinOp
_MOST_ROUNDS: Final = 200


def split(function: Any, effects: Effects) -> Split:
    """Cut a generator function, whose tree stays as it is, at the loop that gives the most to the body.

    Raises:
        CannotSplitError: no loop can be cut, with the reason of the one that should have been.
    """
    whole = names.normalised(function)
    if not isinstance(whole, ast.FunctionDef):
        raise CannotSplitError("it is no plain generator function", function.lineno)
    around = names.chain(whole)
    loops = [node for node in around if isinstance(node, ast.For | ast.While)]
    if not loops:
        raise CannotSplitError("its elements do not come from one loop", function.lineno)
    first: CannotSplitError | None = None
    for loop in names.by_work(loops):
        try:
            return _Cut(whole, around[: around.index(loop)], loop, effects).made()
        except CannotSplitError as error:
            first = first or error
    raise first or CannotSplitError("it has no loop", function.lineno)


@dataclass
class _Cut:
    function: ast.FunctionDef
    around: Sequence[Any]
    loop: Any
    effects: Effects
    kept: dict[ast.stmt, str] = field(default_factory=dict)  # statements that stay in the head, and why
    lifted: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    def made(self) -> Split:
        """Both parts."""
        self._check_around()
        self.statements: list[ast.stmt] = list(self.loop.body)
        for _ in range(_MOST_ROUNDS):
            if not (self._keep_jumps() or self._keep_carried() or self._keep_needed() or self._keep_felt()):
                break
        if "super" in names.read(self.body):
            raise CannotSplitError("it calls super(), which a function of its own cannot", self.loop.lineno)
        if not any(names.works(one) or self.effects.works(one) for one in self.body):
            why = next(iter(self.kept.values()), "the loop makes nothing of its items that takes time")
            raise CannotSplitError(why, self.loop.lineno)
        self._check_changed()
        return self._assembled()

    @property
    def head(self) -> list[ast.stmt]:
        """The loop's statements that stay."""
        return [one for one in self.statements if one in self.kept]

    @property
    def body(self) -> list[ast.stmt]:
        """The others."""
        return [one for one in self.statements if one not in self.kept]

    # What stays in the head

    def _keep(self, statement: ast.stmt, why: str) -> bool:
        if statement in self.kept:
            return False
        if names.yields(statement):
            raise CannotSplitError(why, statement.lineno)
        self.kept[statement] = why
        return True

    def _keep_jumps(self) -> bool:
        last = max((number for number, one in enumerate(self.statements) if one in self.kept), default=-1)
        found = False
        for number, one in enumerate(self.statements):
            leaving = names.jumps(one) - (set() if number < last else {ast.Continue})
            if leaving and one not in self.kept:
                word = "ends the loop" if leaving & {ast.Break, ast.Return} else "leaves out an element"
                found |= self._keep(one, f"line {one.lineno} {word} by what was made of the item")
        return found

    def _keep_carried(self) -> bool:
        """Keeps in the head the statements that store a value for the next item; whether there were any."""
        target = names.stored(self.loop.target) if isinstance(self.loop, ast.For) else set[str]()
        carried = names.exposed(self.statements, target) & names.stored(self.statements)
        return self._keep_storing(carried, "is carried from element to element")

    def _keep_needed(self) -> bool:
        """Keeps in the head the statements that store what it reads, or code outside of the loop; whether any."""
        outside = [self.loop.test] if isinstance(self.loop, ast.While) else []
        return self._keep_storing(
            names.read([*self.head, *outside]) | self._read_outside(),
            "decides what comes next, or is read after the loop",
        )

    def _keep_storing(self, wanted: set[str], why: str) -> bool:
        found = False
        for one in self.statements:
            both = sorted(names.stored(one) & wanted) if one not in self.kept else []
            if both:
                found |= self._keep(one, f"line {one.lineno}: {both[0]!r} {why}")
        return found

    def _read_outside(self) -> set[str]:
        """Names that are read once the loop is over, before they are bound anew."""
        parts = [getattr(node, "test", getattr(node, "iter", None)) for node in self.around]
        return names.exposed(self._later()) | names.read([one for one in parts if one is not None])

    def _later(self) -> list[ast.stmt]:
        """The statements that run when the loop is over, all of them where it begins again."""
        inner = [self.loop, *self.around]
        every = [self.function.body, *(block for node in self.around for block in names.blocks(node))]
        outside = [one for block in reversed(every) for one in block if one not in inner]
        after = [one for one in outside if one.lineno > self.loop.lineno]
        again = any(isinstance(one, ast.For | ast.While) for one in self.around)
        return [*after, *(one for one in outside if again and one not in after)]

    def _keep_felt(self) -> bool:
        items, shared = self._names()
        for felt in self.effects(self.body, frozenset(items), frozenset(shared)):
            statement = next((one for one in self.body if felt.node in ast.walk(one)), None)
            if statement is None or not felt.allowed:
                raise CannotSplitError(felt.text, getattr(felt.node, "lineno", None))
            if isinstance(felt.node, ast.Call) and self._lift(statement, felt.node, felt.text):
                return True
            return self._keep(statement, felt.text)
        return False

    def _lift(self, statement: ast.stmt, call: ast.Call, why: str) -> bool:
        """Have the head make a call of a statement of the body, where that is always made; the rest of it stays."""
        if not _always(statement, call) or not (names.yields(statement) or isinstance(statement, ast.Assign | ast.If)):
            return False
        if isinstance(statement, ast.Assign) and statement.value is call:
            return False
        name = f"_xttsbench_drawn_{len(self.lifted)}"
        self.lifted[name] = (call.lineno, call.col_offset, call.end_lineno or 0, call.end_col_offset or 0)
        made = names.placed(call, ast.Assign([ast.Name(name, ast.Store())], names.copied(call)))
        place = self.statements.index(statement)
        other = _Replace(call, names.placed(call, ast.Name(name, ast.Load()))).visit(statement)
        self.statements[place : place + 1] = [made, other]
        self.kept[made] = why
        return True

    # What has to hold

    def _check_around(self) -> None:
        for node in self.around:
            if isinstance(node, ast.Try) and (node.handlers or node.orelse):
                raise CannotSplitError("what the loop raises is caught around it", node.lineno)
        plain = {one.value for one in ast.walk(self.function) if isinstance(one, ast.Expr)}
        for one in names.own_nodes(self.function):
            if isinstance(one, ast.Yield | ast.Await) and one not in plain:
                raise CannotSplitError("it takes what is sent to it", one.lineno)
        if seen := names.read(self.function.body) & {"locals", "eval", "exec"}:
            raise CannotSplitError(f"it looks at its own variables by {min(seen)}()", self.function.lineno)
        for node in names.own_nodes(self.function):
            if isinstance(node, ast.Global | ast.Nonlocal) and names.stored(self.loop.body) & set(node.names):
                raise CannotSplitError(f"the loop sets {node.names[0]!r}, which outlives it", node.lineno)

    def _check_changed(self) -> None:
        """Refuse a body that reads what the head changes, or ends, meanwhile."""
        used = names.paths_read(self.body)
        items = [item for node in self.around if isinstance(node, ast.With) for item in node.items]
        bound = names.stored([item.optional_vars for item in items if item.optional_vars is not None])
        for path in sorted((names.changed([*self.head, *self._later()]) - names.numbers(self.function)) | bound):
            for other in sorted(used):
                if other == path or other.startswith(f"{path}.") or path.startswith(f"{other}."):
                    verb = "is closed" if path in bound else "is changed"
                    raise CannotSplitError(f"{path!r} {verb} while elements may still be made of it", self.loop.lineno)

    # What comes out

    def _names(self) -> tuple[list[str], list[str]]:
        """Local names that the body reads: of each item, and of the whole loop."""
        local = (
            {one.arg for one in names.parameters(self.function)} | names.stored(self.function.body) | set(self.lifted)
        )
        each = names.stored(self.head) | (names.stored(self.loop.target) if isinstance(self.loop, ast.For) else set())
        wanted = names.exposed(self.body) & local
        return sorted(wanted & each), sorted(wanted - each)

    def _assembled(self) -> Split:
        items, shared = self._names()
        values = self._values(items)
        given = "".join(f"{values[name][0] if name in values else name}, " for name in items)
        kept: list[ast.stmt] = []
        for one in self.head:
            kept += [self._new(f"{as_} = {name}") for name, (as_, before) in values.items() if before is one]
            kept.append(one)
        sharing = self._new(f"{_SHARED} = {SHARE}({', '.join(shared)})")
        written = [*kept, self._new(f"yield {_SHARED}, ({given})")]
        loop = type(self.loop)(**{**dict(ast.iter_fields(self.loop)), "body": written})
        ast.copy_location(loop, self.loop)
        whole = names.copied(_Replace(self.loop, [sharing, loop]).visit(self.function))
        _plain(whole)
        emitting = [_Emitting().visit(names.copied(one)) for one in self.body]
        once = _once(self.body)
        if any(map(names.jumps, self.body)):
            one_turn: Any = self._new("for _xttsbench_once in (0,): pass")
            one_turn.body = emitting
            emitting = [one_turn]
        made: Any = self._new(f"def {self.function.name}_element({', '.join((EMIT, *shared, *items))}): pass")
        made.body = emitting
        lines = tuple(one.lineno for one in self.head if not names.stored(one) & self.lifted.keys())
        return Split(
            head=ast.fix_missing_locations(whole),
            body=ast.fix_missing_locations(made),
            shared=tuple(shared),
            items=tuple(items),
            once=once,
            line=self.loop.lineno,
            kept=lines,
            drawn=tuple(self.lifted.values()),
        )

    def _new(self, text: str) -> ast.stmt:
        """A statement of our own, at the place of the loop."""
        (made,) = ast.parse(text).body
        for one in ast.walk(made):
            ast.copy_location(one, self.loop)
        return made

    def _values(self, items: Iterable[str]) -> dict[str, tuple[str, Any]]:
        """Items that the head binds anew after the body would have read them: name -> name kept, and before what.

        Raises:
            CannotSplitError: the body reads two values of one name.
        """
        found: dict[str, tuple[str, Any]] = {}
        for name in items:
            versions, version = list[int](), 0
            later: dict[int, Any] = {}
            for one in self.statements:
                if one in self.kept:
                    if name in names.stored(one):
                        later.setdefault(version, one)
                        version += 1
                elif name in names.exposed([one]):
                    versions.append(version)
            if len(set(versions)) > 1:
                raise CannotSplitError(f"{name!r} has two values while one element is made", self.loop.lineno)
            if versions and versions[0] != version:
                found[name] = (f"_xttsbench_{name}", later[versions[0]])
        return found


def _plain(function: Any) -> None:
    given = function.args
    given.defaults, given.kw_defaults = [], [None] * len(given.kwonlyargs)
    for one in names.parameters(function):
        one.annotation = None
    function.decorator_list, function.returns = [], None


def _always(statement: ast.stmt, call: ast.Call) -> bool:
    """Whether a call in a simple statement, or a condition, is made exactly once, whatever the values."""
    if not isinstance(statement, ast.Assign | ast.Expr | ast.If):
        return False
    waiting: list[Any] = [statement.test if isinstance(statement, ast.If) else statement.value]
    while waiting:
        node = waiting.pop()
        if node is call:
            return True
        if isinstance(node, ast.Compare):  # of a < b < c the third may not be asked for
            waiting += [node.left, node.comparators[0]]
        elif isinstance(node, _UNCONDITIONAL | ast.Yield | ast.keyword | ast.UnaryOp | ast.Starred):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def _once(body: Sequence[ast.stmt]) -> bool:
    """Whether statements give exactly one element."""
    if any(map(names.jumps, body)):
        return False
    found, waiting = 0, list(body)
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.With):
            waiting.extend(one.body)
        elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Yield):
            found += 1
        elif names.yields(one):
            return False
    return found == 1


class _Replace(ast.NodeTransformer):
    """Another node, or several, in the place of one; the trees around it stay, in copies of the nodes on the way."""

    def __init__(self, old: Any, new: Any) -> None:
        self._old, self._new = old, new

    def visit(self, node: Any) -> Any:
        if node is self._old:
            return self._new
        if not any(one is self._old for one in ast.walk(node)):
            return node
        fields = {name: list(one) if isinstance(one, list) else one for name, one in ast.iter_fields(node)}
        return super().visit(ast.copy_location(type(node)(**fields), node))


class _Emitting(ast.NodeTransformer):
    """``yield x`` as a call with the element; functions and lambdas inside keep their own."""

    def visit_Expr(self, node: ast.Expr) -> Any:
        if not isinstance(node.value, ast.Yield):
            return node
        given = node.value.value or ast.Constant(None)
        return names.placed(node, ast.Expr(ast.Call(ast.Name(EMIT, ast.Load()), [given], [])))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node

    def visit_Yield(self, node: ast.Yield) -> Any:
        raise CannotSplitError("it takes what is sent to it", node.lineno)
