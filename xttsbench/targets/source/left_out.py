"""Statements of a training step that run op by op, put behind a condition, so that a step can be left out.

The step of a loop in Python has no call that could be answered in its place: its gradient tapes, gradients and updates
stand in the user's own functions or in the loop itself. In the code that Python runs each of them is put behind
``if``: where it does not run, the names that it sets get the values that they had when it last did. Lines stay what
they are, and so does the text that ``inspect`` and AutoGraph read.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from xttsbench.targets.source.rewritten import Rewrite, rewriting

_BUILTIN: Final = "__xttsbench_step__"
_NAME: Final = f"{_BUILTIN}.deciding"
_MARKS: Final = (b"GradientTape", b"apply_gradients", b"minimize")
_RESULT: Final = "__xttsbench_result__"
_UPDATES: Final = frozenset({"apply_gradients", "minimize"})
_ASSIGNS: Final = frozenset({"apply", "assign", "assign_add", "assign_sub", "update_step"})
"""Methods that change variables by gradients that were made before."""
_OWN_LOOP: Final = (ast.For, ast.While)
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Guarded(NamedTuple):
    """Statements behind one condition: their file, their first and last line, and the names that they set.

    Those ``said`` are read by statements that run in each step.
    """

    file: str
    first: int
    last: int
    names: tuple[str, ...]
    said: frozenset[str] = frozenset()


GUARDED: Final[list[Guarded]] = []
"""All of this process; the code names them by their index."""


class Deciding:
    """Decides over statements by their index in :data:`GUARDED`; this one lets all of them run."""

    def runs(self, number: int) -> bool:
        """Decide whether statements are to run."""
        return True

    def wrote(self, number: int, *places: dict[str, Any]) -> None:
        """Take the names that statements have set, from the first of these places that has them."""

    def values(self, number: int) -> dict[str, Any]:
        """The names that were set when they last ran, with their values then."""
        return {}


class Guard:
    """Whoever decides; the code asks each time."""

    def __init__(self) -> None:
        self.deciding = Deciding()


def guarding(guard: Guard) -> AbstractContextManager[None]:
    """Have ``guard`` decide over the steps of the user's files that are loaded inside the context.

    It has to stay open as long as their code runs.
    """
    return rewriting(Rewrite(_MARKS, _guard, _BUILTIN, guard))


def _guard(tree: ast.Module, path: str) -> None:
    first = len(GUARDED)
    guarding = _Guarding(path, frozenset(_tapes(tree)))
    guarding.visit(tree)
    outside = _read_in(tree) - guarding.read
    said = frozenset(one.id for one in outside)
    GUARDED[first:] = [one._replace(said=said.intersection(one.names)) for one in GUARDED[first:]]


def _read_in(node: ast.AST) -> set[ast.Name]:
    return {one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _tapes(tree: ast.AST) -> Iterator[str]:
    """Names of gradient tapes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            yield from (_dotted(one.optional_vars) for one in node.items if _is_tape(one) and one.optional_vars)


def _is_tape(item: ast.withitem) -> bool:
    called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else None
    return called is not None and _dotted(called).rpartition(".")[2] == "GradientTape"


def _dotted(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _methods(node: ast.AST) -> list[ast.Attribute]:
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return [one for one in calls if isinstance(one, ast.Attribute)]


class _Guarding(ast.NodeTransformer):
    """Puts the statements of steps behind conditions, those of a block in a row behind one.

    A statement belongs to the step where it opens a tape, takes gradients of one, updates variables, or makes something
    of gradients in the same block. What reads losses or says what gradients are goes on, and so does what leaves a loop
    or a function.
    """

    def __init__(self, file: str, tapes: frozenset[str]) -> None:
        self.read: set[ast.Name] = set()
        """Names where they are read by what is behind conditions."""
        self._file = file
        self._tapes = tapes

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)  # inner blocks first: what is put behind a condition is not looked at again
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and not isinstance(node, ast.ClassDef):
                setattr(node, field, self._block(block))
        return node

    def _block(self, block: Sequence[ast.stmt]) -> list[ast.stmt]:
        gradients: set[str] = set()
        found: list[ast.stmt] = []
        every = itertools.chain.from_iterable(map(self._returned, block))
        for own, some in itertools.groupby(every, lambda one: self._belongs(one, gradients)):
            together = list(some)
            found += [self._condition(together)] if own else together
        return found

    def _returned(self, node: ast.stmt) -> list[ast.stmt]:
        """A statement; of one that returns gradients as it takes them two, so that the first can be left out."""
        if not isinstance(node, ast.Return) or node.value is None or not self._takes_in(node):
            return [node]
        kept = ast.copy_location(ast.Assign([ast.Name(_RESULT, ast.Store())], node.value), node)
        return [kept, ast.copy_location(ast.Return(ast.Name(_RESULT, ast.Load())), node)]

    def _belongs(self, node: ast.stmt, gradients: set[str]) -> bool:
        simple = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr)
        tape = isinstance(node, ast.With) and any(map(_is_tape, node.items))
        if not (simple or tape or isinstance(node, ast.For)) or _leaves(node):
            return False
        # A loop belongs to the step where it goes over gradients; one that takes them inside is a loop of steps.
        head = node.iter if isinstance(node, ast.For) else node
        reads = any(one.id in gradients for one in _read_in(head))
        if isinstance(node, ast.For | ast.Expr):  # else it says what they are
            reads = reads and any(one.attr in _ASSIGNS for one in _methods(node))
        made = reads or (not tape and self._takes_in(head))
        if made and not tape:
            gradients |= set(_set_by(node))
        return tape or made

    def _takes_in(self, node: ast.AST) -> bool:
        return any(one.attr in _UPDATES or _dotted(one.value) in self._tapes for one in _methods(node))

    def _condition(self, own: list[ast.stmt]) -> ast.stmt:
        """The statements behind a condition, on the line of the first of them."""
        number, names = len(GUARDED), tuple(dict.fromkeys(name for one in own for name in _set_by(one)))
        self.read |= {name for one in own for name in _read_in(one)}
        GUARDED.append(Guarded(self._file, own[0].lineno, max(one.end_lineno or 0 for one in own), names))
        lines = [f"if {_NAME}.runs({number}):", f" {_NAME}.wrote({number}, locals(), globals())", "else:", " pass"]
        lines += [
            f" if {name!r} in {_NAME}.values({number}): {name} = {_NAME}.values({number})[{name!r}]" for name in names
        ]
        (made,) = ast.parse("\n".join(lines)).body
        for one in ast.walk(made):
            ast.copy_location(one, own[0])
        assert isinstance(made, ast.If)
        made.body[:0] = own
        return made


def _leaves(node: ast.stmt) -> bool:
    """Whether a statement may leave a loop or a function around it, or waits for somebody."""
    waiting: list[tuple[ast.AST, bool]] = [(node, False)]
    while waiting:
        one, inside = waiting.pop()
        if isinstance(one, ast.Return | ast.Yield | ast.YieldFrom | ast.Await):
            return True
        if isinstance(one, ast.Break | ast.Continue) and not inside:
            return True
        if not isinstance(one, _SCOPES):
            waiting += [(child, inside or isinstance(one, _OWN_LOOP)) for child in ast.iter_child_nodes(one)]
    return False


def _set_by(node: ast.AST) -> Iterator[str]:
    """Names that a statement sets in its own scope."""
    waiting = [node]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            yield one.name
        if not isinstance(one, (*_SCOPES, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            waiting += ast.iter_child_nodes(one)
