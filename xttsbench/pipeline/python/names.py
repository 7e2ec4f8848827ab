"""Statements of a generator: the names that they read, bind and change, in order, and the loops around its elements.

``yield from`` and generator expressions are loops, too, and are written as such here. Pure: syntax trees alone.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

MUTATING: Final = frozenset({
    "append", "appendleft", "extend", "extendleft", "insert", "update", "setdefault", "pop", "popleft", "popitem",
    "add", "discard", "remove", "clear", "sort", "reverse", "rotate", "fill", "put", "resize", "shuffle", "close",
    "partition", "subtract", "write", "seek", "heappush", "heappop", "heapreplace", "release", "unlink",
})  # fmt: skip
"""Methods and functions that change, or end, what they are called on or given first."""
_JUMPS: Final = ast.Continue | ast.Break | ast.Return | ast.Raise
_SCOPES: Final = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_COMPREHENSIONS: Final = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_LOOPS: Final = ast.For | ast.While


def copied(node: Any) -> Any:
    """A copy of a tree without the references to parents that some trees have."""
    if isinstance(node, list):
        return [copied(one) for one in node]
    if not isinstance(node, ast.AST):
        return node
    made = type(node)(**{name: copied(value) for name, value in ast.iter_fields(node)})
    return ast.copy_location(made, node) if hasattr(node, "lineno") else made


def own_nodes(node: Any) -> Iterator[Any]:
    """A tree's nodes without what functions, classes and lambdas in it hold."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        if one is node or not isinstance(one, _SCOPES):
            waiting.extend(reversed(list(ast.iter_child_nodes(one))))


def parameters(function: Any) -> list[ast.arg]:
    """The parameters of a function, in the order in which a code object has them."""
    given = function.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    return [one for one in every if one is not None]


def yields(node: Any) -> list[Any]:
    """The ``yield`` expressions of a statement, in order."""
    return [one for one in own_nodes(node) if isinstance(one, ast.Yield | ast.YieldFrom | ast.Await)]


def jumps(statement: ast.stmt) -> set[type]:
    """``Break``, ``Continue`` and ``Return`` that lead out of a statement of a loop's body."""
    found: set[type] = set()
    waiting: list[tuple[Any, bool]] = [(statement, True)]
    while waiting:
        node, of_loop = waiting.pop()
        if isinstance(node, ast.Return) or (of_loop and isinstance(node, ast.Break | ast.Continue)):
            found.add(type(node))
        if isinstance(node, _SCOPES):
            continue
        inner = of_loop and not isinstance(node, _LOOPS)
        orelse = node.orelse if isinstance(node, _LOOPS) else []
        waiting.extend((one, of_loop if one in orelse else inner) for one in ast.iter_child_nodes(node))
    return found


def stored(nodes: Any | Iterable[Any]) -> set[str]:
    """Names that statements bind; the variables of comprehensions are their own."""
    return {name for one in _listed(nodes) for name, how in _uses(one) if how == "store"}


def read(nodes: Any | Iterable[Any]) -> set[str]:
    """Names that statements read, functions written inside them included."""
    return {name for one in _listed(nodes) for name, how in _uses(one) if how == "load"}


def changed(nodes: Any | Iterable[Any]) -> set[str]:
    """Paths of objects that statements change in place, as written: ``order`` for ``rng.shuffle(order)``."""
    found: set[str] = set()
    for one in (inner for node in _listed(nodes) for inner in ast.walk(node)):
        target: Any = None
        if isinstance(one, ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store | ast.Del):
            target = one if isinstance(one, ast.Attribute) else one.value
        elif isinstance(one, ast.AugAssign):
            target = one.target
        elif isinstance(one, ast.Call):
            name = one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
            if name in MUTATING:
                found |= {path for path in map(dotted, one.args[:1]) if path}
                target = one.func.value if isinstance(one.func, ast.Attribute) else None
        while isinstance(target, ast.Subscript):
            target = target.value
        if target is not None and (path := dotted(target)):
            found.add(path)
    return found


def numbers(function: Any) -> set[str]:
    """Names of a function that only ever stand for plain numbers, which nothing changes in place."""
    given: dict[str, list[Any]] = {}
    for one in ast.walk(function):
        if isinstance(one, ast.Assign | ast.AugAssign):
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                if isinstance(target, ast.Name):
                    given.setdefault(target.id, []).append(one.value)
    found = set(given) - {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    while wrong := {name for name in found if not all(_is_number(one, found) for one in given[name])}:
        found -= wrong
    bound = [one.id for one in ast.walk(function) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)]
    return {name for name in found if bound.count(name) == len(given[name])}


def _is_number(node: Any, names: set[str]) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float | str | None)
        case ast.Name(id=name):
            return name in names
        case ast.UnaryOp() | ast.BinOp():
            return all(_is_number(one, names) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
        case ast.Call(func=ast.Name(id=name)):
            return name in ("len", "int", "float", "round", "bool")
    return False


def dotted(node: Any) -> str:
    """``self.rows`` for such an expression; empty for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *parts]) if isinstance(node, ast.Name) else ""


def paths_read(nodes: Any | Iterable[Any]) -> set[str]:
    """All names and dotted names in statements, the longest of each."""
    found: set[str] = set()
    for node in _listed(nodes):
        inside = {id(one.value) for one in ast.walk(node) if isinstance(one, ast.Attribute)}
        found |= {path for one in ast.walk(node) if id(one) not in inside and (path := dotted(one))}
    return found


def exposed(statements: Iterable[ast.stmt], bound: Iterable[str] = ()) -> set[str]:
    """Names that statements, run in order, may read before they have bound them."""
    reading: set[str] = set()
    _run(statements, set(bound), reading)
    return reading


def _run(statements: Iterable[ast.stmt], bound: set[str], reading: set[str]) -> set[str] | None:
    """The names bound after statements; ``None`` where what comes after is not reached."""
    for node in statements:
        after = _statement(node, bound, reading)
        if after is None:
            return None
        bound = after
    return bound


def _statement(node: ast.stmt, bound: set[str], reading: set[str]) -> set[str] | None:
    def expressions(*parts: Any) -> set[str]:
        held = set(bound)
        for part in parts:
            for name, how in _uses(part) if part is not None else ():
                if how == "store":
                    held.add(name)
                elif name not in held:
                    reading.add(name)
        return held

    def together(*blocks: set[str] | None) -> set[str] | None:
        reached = [one for one in blocks if one is not None]
        return set.intersection(*reached) if reached else None

    match node:
        case ast.If():
            bound = expressions(node.test)
            return together(_run(node.body, set(bound), reading), _run(node.orelse, set(bound), reading))
        case ast.For() | ast.While():
            bound = expressions(node.iter if isinstance(node, ast.For) else node.test)
            _run(node.body, bound | (stored(node.target) if isinstance(node, ast.For) else set()), reading)
            _run(node.orelse, set(bound), reading)
            return bound
        case ast.With():
            for item in node.items:
                bound = expressions(item.context_expr, item.optional_vars)
            return _run(node.body, bound, reading)
        case ast.Try():
            whole = _run(node.body, set(bound), reading)
            handled = [_run(one.body, bound | ({one.name} if one.name else set()), reading) for one in node.handlers]
            done = _run(node.orelse, set(whole), reading) if whole is not None else None
            joined = together(done, *handled)
            final = _run(node.finalbody, set(bound), reading)
            return None if joined is None or final is None else joined | final
        case ast.Match():
            expressions(node.subject)
            for case in node.cases:
                _run(case.body, bound | stored(case.pattern), reading)
            return bound
    after = expressions(node)
    return None if isinstance(node, _JUMPS) else after


def _uses(node: Any) -> Iterator[tuple[str, str]]:
    """``(name, load or store)`` in the order of evaluation, as near as it matters."""
    match node:
        case ast.Name(id=name, ctx=context):
            yield name, "load" if isinstance(context, ast.Load) else "store"
        case ast.Assign() | ast.AnnAssign():
            if node.value is not None:
                yield from _uses(node.value)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    yield from _uses(target)
        case ast.AugAssign():
            if isinstance(node.target, ast.Name):
                yield node.target.id, "load"
            yield from _uses(node.value)
            yield from _uses(node.target)
        case ast.For():
            yield from _uses(node.iter)
            yield from _uses(node.target)
            for one in (*node.body, *node.orelse):
                yield from _uses(one)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            own = {name for one in node.generators for name, _ in _uses(one.target)}
            for part in ast.iter_child_nodes(node):
                yield from ((name, how) for name, how in _uses(part) if name not in own)
        case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef():
            inner = node.body if isinstance(node.body, list) else [node.body]
            own = {one.arg for one in parameters(node)} | stored(inner)
            for default in (*node.args.defaults, *node.args.kw_defaults):
                yield from _uses(default)
            for statement in inner:
                yield from ((name, "load") for name, how in _uses(statement) if name not in own and how == "load")
            if not isinstance(node, ast.Lambda):
                yield node.name, "store"
        case ast.ClassDef():
            for one in node.body:
                yield from ((name, how) for name, how in _uses(one) if how == "load")
            yield node.name, "store"
        case ast.Import() | ast.ImportFrom():
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], "store"
        case ast.ExceptHandler():
            if node.type is not None:
                yield from _uses(node.type)
            if node.name:
                yield node.name, "store"
            for one in node.body:
                yield from _uses(one)
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
            yield name, "store"
            for part in ast.iter_child_nodes(node):
                yield from _uses(part)
        case ast.AST():
            for part in ast.iter_child_nodes(node):
                yield from _uses(part)


def _listed(nodes: Any) -> list[Any]:
    return [nodes] if isinstance(nodes, ast.AST) else list(nodes)


_EPOCHS: Final = re.compile(r"epoch|pass|round|repeat|^_+$", re.IGNORECASE)
_QUICK: Final = frozenset(  # calls that are no work to speak of
    {"range", "len", "enumerate", "zip", "reversed", "sorted", "list", "tuple", "iter", "int", "float", "str", "min"}
    | {"max", "count", "repeat", "cycle", "super", "dict", "set", "isinstance"}
    | {"float32", "float64", "int32", "int64", "asarray", "array", "astype", "bool"}
)


def normalised(function: Any) -> Any:
    """A copy in which ``yield from`` is a loop, and a generator expression a function of its outermost source."""
    if isinstance(function, ast.GeneratorExp):
        source = ast.copy_location(ast.Name("source", ast.Load()), function)
        arguments = ast.arguments([], [ast.arg("source")], None, [], [], None, [])
        whole = ast.FunctionDef("genexpr", arguments, [_loop_of(copied(function), source)], [])
        return ast.fix_missing_locations(ast.copy_location(whole, function))
    return ast.fix_missing_locations(_Delegated().visit(copied(function)))


class _Delegated(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> Any:
        if not isinstance(node.value, ast.YieldFrom):
            return node
        given: Any = node.value.value
        if isinstance(given, ast.GeneratorExp):
            return _loop_of(given, given.generators[0].iter)
        target, each = ast.Name("_xttsbench_each", ast.Store()), ast.Name("_xttsbench_each", ast.Load())
        function, source = given.args if _maps(given) else (None, given)
        element: ast.expr = each if function is None else ast.Call(function, [each], [])
        return placed(node, ast.For(target, source, [ast.Expr(ast.Yield(element))], []))


def _maps(node: Any) -> bool:
    """Whether a node is ``map(f, items)`` with a function by its name, which a loop may look up for each item."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "map"
    return named and len(node.args) == 2 and isinstance(node.args[0], ast.Name | ast.Attribute)


def _loop_of(given: ast.GeneratorExp, source: ast.expr) -> ast.stmt:
    inner: ast.stmt = placed(given.elt, ast.Expr(ast.Yield(given.elt)))
    for number, one in reversed(list(enumerate(given.generators))):
        for condition in reversed(one.ifs):
            inner = placed(given, ast.If(condition, [inner], []))
        inner = placed(given, ast.For(one.target, source if number == 0 else one.iter, [inner], []))
    return inner


def placed(place: Any, node: Any) -> Any:
    """A new node, and those in it that have no place, at the place of another."""
    ast.copy_location(node, place)
    for one in ast.walk(node):
        if hasattr(one, "_attributes") and "lineno" in one._attributes and not hasattr(one, "lineno"):
            ast.copy_location(one, place)
    return node


def chain(function: ast.FunctionDef) -> list[Any]:
    """The compound statements around all elements, the outermost first."""
    found: list[Any] = []
    statements: list[ast.stmt] = function.body
    while len(holding := [one for one in statements if yields(one)]) == 1:
        every = blocks(holding[0])
        inside = [block for block in every if any(map(yields, block))]
        if len(inside) != 1 or inside[0] is not every[0]:
            break
        found.append(holding[0])
        statements = inside[0]
    return found


def blocks(node: Any) -> list[list[ast.stmt]]:
    """The blocks of statements in a compound one, the one that runs first in front."""
    if isinstance(node, ast.For | ast.While | ast.If):
        return [node.body, node.orelse]
    if isinstance(node, ast.With):
        return [node.body]
    if isinstance(node, ast.Try):
        return [node.body, *(one.body for one in node.handlers), node.orelse, node.finalbody]
    return []


def by_work(loops: Sequence[Any]) -> list[Any]:
    """The loops, the one whose body holds the work first; an epoch is no item."""
    for outer, inner in itertools.pairwise(loops):
        if not isinstance(outer, ast.For) or any(_EPOCHS.search(name) for name in stored(outer.target)):
            continue
        made = [one for one in outer.body if not yields(one) and works(one)]
        source = inner.iter if isinstance(inner, ast.For) else inner.test
        wanted = read(source) & (stored(outer.target) | stored(made))
        if wanted & stored(made) or (wanted and works(source)):
            return [outer, *(one for one in reversed(loops) if one is not outer)]
    return list(reversed(loops))


def works(node: Any) -> bool:
    """Whether something is called that may be work."""
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return any(getattr(one, "attr", getattr(one, "id", "")) not in _QUICK for one in calls)
