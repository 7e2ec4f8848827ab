"""A generator function cut in two at its loop: a head that picks items, and a body that makes the element of one.

The form is a ``for`` loop whose last statement is the only ``yield``, in other loops or in none. The head is the same
function, whose loop yields its items, so that order, shuffles and epochs stay what they were; the body is a function of
the names that the loop's statements read. Everything else is refused with its line. Pure: trees of the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xttsbench.pipeline.python import names

SHARE: Final = "_xttsbench_share"
"""Name of the callback that the head gives the values that all items of one run of the loop have in common."""
ITERATE: Final = "_xttsbench_iterate"
"""Name of the callback through which the head goes over what the loop iterates."""
_SHARED: Final = "_xttsbench_shared"
_TAKE_APART: Final = ("zip", "enumerate", "reversed")
_SEE_VARIABLES: Final = frozenset({"super", "__class__", "locals", "vars", "eval", "exec"})


class CannotOpenError(Exception):
    """Why a generator is not opened: a phrase with the line."""

    def __init__(self, why: str, at: Any = None) -> None:
        """Take the phrase, and a node whose line goes in front of it."""
        super().__init__(why if at is None else f"line {at.lineno}: {why}")


@dataclass(frozen=True)
class Split:
    """A generator in two."""

    head: ast.FunctionDef  # of the parameters by their names, which calls the callbacks and yields ``(shared, items)``
    body: ast.FunctionDef  # of the shared values and the items, which returns the element
    statements: Sequence[ast.stmt]  # of the body, as they are written
    shared: tuple[str, ...]  # names of values that were made before the loop
    items: tuple[str, ...]  # names of values that each item has of its own
    rebound: frozenset[str]  # names that the function itself binds
    touched: frozenset[str]  # names of what may be changed in place once the loop has begun
    line: int  # of the loop
    goes_on: bool  # whether the head does anything once it has picked the last item of the loop


def split(function: Any) -> Split:
    """Cut a generator function, whose tree stays as it is.

    Raises:
        CannotOpenError: it has another form, or its elements depend on one another.
    """
    if not isinstance(function, ast.FunctionDef):
        raise CannotOpenError("it is no generator function that is written as one", function)
    around, loop = _loops(function)
    body = loop.body
    _check_statements(function, loop)
    parameters = [one.arg for one in names.parameters(function)]
    own, target = names.stored(body), names.stored([loop.target])
    outer = [one for node in around for one in node.body if one not in around and one is not loop]
    behind = [one for one in function.body if one.lineno > loop.lineno and one not in around]
    before = [one for one in function.body if one.lineno < loop.lineno and one not in around]
    headers = [getattr(node, "iter", getattr(node, "test", None)) for node in (*around, loop)]
    rebound = names.stored([*before, *outer, *behind, *(one.target for one in around if isinstance(one, ast.For))])
    outside = names.read([*before, *outer, *behind, *headers])
    # Names that the body binds are its own; the loop's variable may be bound anew where nobody else reads it.
    first = names.exposed(body)
    for name in sorted(own & (outside | ((first | rebound | {*parameters}) - target))):
        at = next(one for one in body if name in names.stored([one]))
        raise CannotOpenError(f"{name!r} is carried from element to element, or used outside of the loop", at)
    local = rebound | {*parameters}
    again = names.touched([*outer, *behind, *(headers if around else [])])
    used = {one: path for path in again - {"self"} for one in names.paths(body) if _meet(one, path)}  # methods are read
    for path in sorted(one for one in used if "." in one and one.split(".")[0] in local):
        raise CannotOpenError(f"{path!r} may be changed while elements are still made of it", loop)
    items, shared = sorted(first & target), sorted(first & local - target)
    return Split(
        head=_head(function, loop, parameters, shared, items),
        body=_body(function, loop, [*shared, *items]),
        statements=body,
        shared=tuple(shared),
        items=tuple(items),
        rebound=frozenset(rebound),
        touched=frozenset(used),
        line=loop.lineno,
        goes_on=bool(around or behind),
    )


def _meet(one: str, other: str) -> bool:
    """Whether one path leads to a part of what the other leads to."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _loops(function: ast.FunctionDef) -> tuple[list[Any], ast.For]:
    """The loops around the loop that ends with the only ``yield``, the outermost first, and that loop."""
    every = [one for one in names.own_nodes(function.body) if isinstance(one, ast.Yield | ast.YieldFrom | ast.Await)]
    every.sort(key=lambda one: (one.lineno, one.col_offset))
    if not every or not isinstance(every[0], ast.Yield) or every[0].value is None:
        raise CannotOpenError("its elements do not come from `yield element`", every[0] if every else function)
    if len(every) > 1:
        raise CannotOpenError("it yields at several places", every[1])
    around, statements = list[Any](), function.body
    while not isinstance(holder := next((one for one in statements if every[0] in ast.walk(one)), None), ast.Expr):
        if not isinstance(holder, ast.For | ast.While) or holder.orelse:
            why = "its `yield` is no statement of a loop: not each item gives one element"
            raise CannotOpenError(why, holder or every[0])
        around.append(holder)
        statements = holder.body
    *outer, loop = around or [None]
    if not isinstance(loop, ast.For) or holder.value is not every[0] or holder is not statements[-1]:
        raise CannotOpenError("its `yield` is not the last statement of a `for` loop", holder)
    return outer, loop


def _check_statements(function: ast.FunctionDef, loop: ast.For) -> None:
    """Refuse statements that lead out of a round of the loop, or that see the variables of the generator."""
    every = list(names.own_nodes(loop.body))
    loops = [node for node in every if isinstance(node, ast.For | ast.While)]
    inner = [one for node in loops for statement in node.body for one in ast.walk(statement)]
    for one in every:
        if isinstance(one, ast.Return) or (isinstance(one, ast.Break | ast.Continue) and one not in inner):
            raise CannotOpenError("it leaves the loop, or an item out, by what was made of the item", one)
    for one in names.own_nodes(function.body):
        if isinstance(one, ast.Global | ast.Nonlocal):
            raise CannotOpenError(f"it sets {one.names[0]!r}, which outlives it", one)
    for one in ast.walk(function):
        if isinstance(one, ast.Name) and one.id in _SEE_VARIABLES:
            raise CannotOpenError(f"it uses {one.id}, which means another thing in a function of its own", one)
    if not all(isinstance(one, ast.Name | ast.Tuple | ast.List | ast.Store) for one in ast.walk(loop.target)):
        raise CannotOpenError("its loop stores items elsewhere than in variables", loop)
    if any(isinstance(one, ast.NamedExpr | ast.Starred) for one in ast.walk(loop.iter)):
        raise CannotOpenError("its loop goes over something that is put together with `:=` or `*`", loop)


def _head(
    function: ast.FunctionDef, loop: ast.For, parameters: Sequence[str], shared: Sequence[str], items: Sequence[str]
) -> ast.FunctionDef:
    sharing = _new(f"{_SHARED} = {SHARE}({', '.join(shared)})", loop)
    yielding = _new(f"yield {_SHARED}, ({''.join(f'{one}, ' for one in items)})", loop)

    def replaced(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        for one in statements:
            other: Any = names.copied(one)
            if one is loop:
                other.iter, other.body = _iterated(other.iter), [yielding]
                yield sharing
            elif loop in ast.walk(one):
                other.body = list(replaced(one.body))  # type: ignore[attr-defined]  # it is a loop around
            yield other

    return _function(function.name, parameters, replaced(function.body), loop)


def _body(function: ast.FunctionDef, loop: ast.For, parameters: Sequence[str]) -> ast.FunctionDef:
    *statements, last = names.copied(loop.body)
    returned = ast.copy_location(ast.Return(last.value.value), last)
    return _function(f"{function.name}_element", parameters, [*statements, returned], loop)


def _iterated(node: Any) -> Any:
    """The iterated expression with the callback around it, or around each argument of ``zip()`` and the like."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _TAKE_APART:
        taken = len(node.args) if node.func.id == "zip" else 1
        return ast.Call(node.func, [*map(_iterated, node.args[:taken]), *node.args[taken:]], node.keywords)
    return ast.Call(ast.Name(ITERATE, ast.Load()), [node], [])


def _new(text: str, loop: ast.For) -> ast.stmt:
    """A statement of our own, at the place of the loop."""
    (made,) = ast.parse(text).body
    for one in ast.walk(made):
        ast.copy_location(one, loop)
    return made


def _function(name: str, parameters: Sequence[str], statements: Iterable[ast.stmt], loop: ast.For) -> ast.FunctionDef:
    given = ast.arguments([], [ast.arg(one) for one in parameters], None, [], [], None, [])
    made = ast.FunctionDef(name, given, list(statements), [])
    return ast.fix_missing_locations(ast.copy_location(made, loop))
