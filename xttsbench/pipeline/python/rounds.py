"""Variables that a line reads and that the loop around it changes from round to round, by the source alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from xttsbench.pipeline.definitions import LOOPS, above
from xttsbench.pipeline.python import names
from xttsbench.pipeline.python.mutators import MUTATORS


def carried(tree: ast.Module, line: int) -> tuple[str, ...]:
    """Variables and paths that a line reads whose values hang on the rounds before, in the innermost loop around it.

    Counters are left out: they are the same in every epoch. The tree has the parent of each node.
    """
    statement = _at(tree, line)
    loop = next((one for one in above(statement) if isinstance(one, LOOPS | names.SCOPES)), None)
    if not isinstance(loop, LOOPS):
        return ()
    bound = names.stored([loop.target]) if not isinstance(loop, ast.While) else set()
    first = names.exposed(loop.body) - bound
    found = {path for path in _changed(loop.body) if path.split(".")[0] in first}
    every = list(names.own_nodes(loop.body))
    made: list[tuple[list[Any], Any]] = [(one.targets, one.value) for one in every if isinstance(one, ast.Assign)]
    made += [([one.target], one.iter) for one in every if isinstance(one, ast.For)]
    for _ in made:
        found |= {name for targets, value in made if _read(value, found) for name in names.stored(targets)}
    own = {*_changed([statement])} - names.stored([statement])  # the list in `rows.append(load(path))`
    holds = [one for one in ast.iter_child_nodes(statement) if _spans(one, line)] if hasattr(statement, "body") else []
    used = statement.value if isinstance(statement, ast.AugAssign) else holds[0] if holds else statement
    return tuple(sorted(_read(used, found - own)))


def _at(tree: ast.Module, line: int) -> Any:
    """The innermost statement of a line; the tree itself where there is none."""
    holding = (one for one in ast.walk(tree) if isinstance(one, ast.stmt) and _spans(one, line))
    return max(holding, key=lambda one: one.lineno, default=tree)


def _spans(node: Any, line: int) -> bool:
    return isinstance(node, ast.stmt | ast.expr) and node.lineno <= line <= (node.end_lineno or line)


def _read(node: Any, paths: set[str]) -> set[str]:
    """Paths, of those given, to which or to a part of which a node has a path that it reads."""
    within = {one for one in names.paths([node]) if one.split(".")[0] in names.read([node])}
    return {path for path in paths if any(f"{one}.".startswith(f"{path}.") for one in within)}


def _changed(statements: list[Any]) -> Iterator[str]:
    """Names that statements bind anew, and paths of what they change in place, but for counters."""
    every = list(names.own_nodes(statements))
    plus = [one for one in every if isinstance(one, ast.AugAssign)]
    counters = {names.dotted(one.target) for one in plus if isinstance(one.value, ast.Constant)}
    yield from names.stored(statements) - counters
    for one in every:
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in MUTATORS:
            yield from {names.dotted(one.func.value)} - {""}
        elif isinstance(one, ast.Attribute | ast.Subscript) and not isinstance(one.ctx, ast.Load):
            yield from {names.dotted(one)} - counters - {""}
