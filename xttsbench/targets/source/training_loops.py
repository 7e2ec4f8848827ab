"""Loops of a script that train on batches of its own making: where a batch is asked for, and where it has come.

``for batch in loader`` over a class, a list or a generator, ``batch = next(batches)``, ``batch = queue.get()`` and
``x, y = data[i]`` tell nobody that they wait. In the code that Python runs each such place of a loop that trains tells
when it begins and ends. Which loop trains is seen in its text: it opens a gradient tape, updates variables, or calls a
function that does.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from xttsbench.pipeline.python.names import last_name, own_nodes
from xttsbench.targets.source.rewritten import Rewrite, rewriting

_NAME: Final = "__xttsbench_loop__"
_MARKS: Final = (b"for ", b"while ")
_UPDATES: Final = frozenset({"apply_gradients", "minimize", "train_on_batch", "GradientTape"})
_TRAINS: Final = re.compile(r"_?(train|training|fit|update)_?(one_?|on_?)?(step|batch|iteration)|_?(step|batch)_?train")
"""Names of functions that are taken to train, where their text is not at hand."""
_MOST_FILES: Final = 50  # that a file imports, which are read for functions that train


class Place(NamedTuple):
    """Place where a loop gets its batches: file, line, the text there, and the names that have the batch then.

    Of statements within a ``for`` loop ``over`` is the number of its place: where the loop is over batches, what the
    statements do is no longer asking for one.
    """

    file: str
    line: int
    text: str
    names: str
    over: int | None = None


class Hearing:
    """Hears of the batches of loops, by the numbers of their places; this one does nothing with them."""

    def over(self, iterable: Any, number: int, anew: Callable[[], Any]) -> Any:
        """The iterable to go over in place of one, which ``anew`` makes another time."""
        return iterable

    def take(self, make: Callable[[], Any], number: int) -> Any:
        """The batch that ``make`` gives, an argument of what trains."""
        return make()

    def asks(self, number: int) -> None:
        """A batch is asked for."""

    def came(self, number: int) -> None:
        """The statements that ask for it have ended, or raised."""

    def got(self, batch: Any, number: int) -> None:
        """A batch has come."""


class Loops:
    """The places that were found, and who hears of them: the code asks for both each time."""

    def __init__(self) -> None:
        self.hearing = Hearing()
        self.places: list[Place] = []

    def place(self, place: Place) -> int:
        """Number of a place, for the code to name it."""
        self.places.append(place)
        return len(self.places) - 1


def hearing(loops: Loops) -> AbstractContextManager[None]:
    """Have the loops of the user's files that are loaded inside the context tell of their batches.

    It has to stay open as long as their code runs.
    """

    def change(tree: ast.Module, path: str) -> None:
        _Telling(loops, path, _training(tree, path)).visit(tree)

    return rewriting(Rewrite(_MARKS, change, _NAME, loops))


def _training(tree: ast.Module, path: str) -> frozenset[str]:
    """Names of functions that train, and what they are called otherwise: ``train = tf.function(step)``.

    They are those of the file itself, and of files beside it that it imports. A method counts by its name alone,
    whatever object has it.
    """
    mentions: dict[str, set[str]] = {}
    trees, folder = [tree], os.path.dirname(path)
    files = dict.fromkeys(_imported(tree, folder))
    for file in itertools.islice(files, _MOST_FILES):
        with contextlib.suppress(OSError, SyntaxError, ValueError), open(file, "rb") as source:
            trees.append(ast.parse(source.read(), file))
    for node in itertools.chain.from_iterable(map(ast.walk, trees)):
        if isinstance(node, ast.FunctionDef):
            mentions.setdefault(node.name, set()).update(*map(_mentioned, node.body))
        elif isinstance(node, ast.Assign) and not _is_result(node.value):
            for name in filter(None, map(last_name, node.targets)):
                mentions.setdefault(name, set()).update(_mentioned(node.value))
    known: frozenset[str] = frozenset()
    while (found := frozenset(name for name, own in mentions.items() if own & (_UPDATES | known))) != known:
        known = found
    return known


def _imported(tree: ast.Module, folder: str) -> Iterator[str]:
    """Files in a folder, or below it, that a file there may import."""
    for node in (one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)):
        module = getattr(node, "module", None) or ""
        for name in (module, *(f"{module}.{one.name}".strip(".") for one in node.names)):
            stem = os.path.join(folder, *name.split("."))
            yield from filter(os.path.isfile, (f"{stem}.py", os.path.join(stem, "__init__.py")))


def _is_result(value: ast.AST) -> bool:
    """Tell whether what is assigned is the result of a call, and no function: ``loss = train(batch)``."""
    return isinstance(value, ast.Call) and last_name(value.func) not in ("function", "partial", "jit", "wraps")


def _mentioned(node: ast.AST) -> set[str]:
    return {last_name(one) for one in ast.walk(node)}


class _Telling(ast.NodeTransformer):
    """Puts the calls in; of loops in one another the innermost that trains on something it asks for."""

    def __init__(self, loops: Loops, file: str, training: frozenset[str]) -> None:
        self._loops = loops
        self._file = file
        self._training = training
        self._told: set[ast.AST] = set()

    def visit_For(self, node: ast.For) -> ast.AST:
        """A loop over batches, or over numbers with a batch asked for in it."""
        return self._loop(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        """A loop in which a batch is asked for."""
        return self._loop(node)

    def _loop(self, node: ast.For | ast.While) -> ast.AST:
        self.generic_visit(node)
        if not any(map(self._trains, node.body)) or any(one in self._told for one in ast.walk(node)):
            return node
        over = None
        if isinstance(node, ast.For) and not _of_numbers(node.iter) and not _waits(node.iter):
            text = f"for {_bare(node.target)} in {ast.unparse(node.iter)}"
            target, given = node.target, node.iter
            numbered = given if isinstance(given, ast.Call) and last_name(given.func) == "enumerate" else None
            if numbered is not None and numbered.args and isinstance(target, ast.Tuple) and len(target.elts) == 2:
                target, given = target.elts[1], numbered.args[0]
            over = self._loops.place(Place(self._file, node.lineno, text, _bare(target)))
            asked = _call("over", given, over, given)
            asked.args.append(_lambda(copy.deepcopy(given)))
            if numbered is None or given is node.iter:
                node.iter = asked
            else:
                numbered.args[0] = asked
        numbers = _names(node.target, ast.Store) if isinstance(node, ast.For) and over is None else set()
        if self._tell_of_statements(node.body, over) or over is not None or self._tell_of_part(node.body, numbers):
            self._told.add(node)
        return node

    def _tell_of_part(self, block: list[ast.stmt], numbers: set[str]) -> bool:
        """Have the first part of some data tell that is taken by the loop's number: ``model(X[i : i + 32])``."""
        for one in (one for statement in block for one in ast.walk(statement) if isinstance(one, ast.Subscript)):
            if isinstance(one.ctx, ast.Load) and _names(one.slice, ast.Load) & numbers and not _waits(one):
                place = self._loops.place(Place(self._file, one.lineno, ast.unparse(one), "batch"))
                whole = ast.copy_location(ast.Subscript(one.value, one.slice, one.ctx), one)
                taken = _call("take", _lambda(whole), place, whole)
                one.value, one.slice = ast.Tuple([taken], ast.Load()), ast.Constant(0)  # (batch,)[0]
                return True
        return False

    def _trains(self, node: ast.AST) -> bool:
        """Whether a statement trains when it runs: what it defines does so only when it is called."""
        return any(isinstance(one, ast.Call) and self._is_training(one) for one in own_nodes([node]))

    def _is_training(self, call: ast.Call) -> bool:
        name = last_name(call.func)
        return name in _UPDATES or name in self._training or bool(_TRAINS.match(name))

    def _tell_of_statements(self, block: list[ast.stmt], over: int | None) -> bool:
        """Have the statements of a block tell that ask for what its training statement reads; whether there are any.

        They may stand beside the training statement, within ``if``, ``with`` or ``try``, or before all of that.
        """
        trains = next((number for number, one in enumerate(block) if self._trains(one)), None)
        if trains is None:
            return False
        if not _opens_tape(block[trains]):  # what is in there makes the loss
            inner = [getattr(block[trains], name, None) for name in ("body", "orelse")]
            if any(isinstance(one, list) and self._tell_of_statements(one, over) for one in inner):
                return True
        wanted, computed = _names(block[trains], ast.Load), set[str]()
        models = _called(block[trains]) if _opens_tape(block[trains]) else set[str]()
        for one in block[:trains]:  # What the model makes of a batch is none
            if _called(one) & models or _names(one, ast.Load) & computed:
                computed |= _names(one, ast.Store)
        read, asking = wanted, []
        for number in range(trains - 1, -1, -1):
            one = block[number]
            made = (_names(one, ast.Store) - computed) & read
            if made and isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None and _asks(one.value):
                asking.append(number)
            if made:
                read = read | _names(one, ast.Load)
        if not asking:
            return over is None and self._tell_of_argument(block[trains])
        first, last = asking[-1], asking[0]
        own = block[first : last + 1]
        if any(map(_waits, own)):
            return False
        names = sorted(wanted & _names(ast.Module(own, []), ast.Store))
        text = ast.unparse(own[0]).splitlines()[0]
        number = self._loops.place(Place(self._file, own[0].lineno, text, ", ".join(names), over))
        batch = ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())
        asks, came = (ast.Expr(_call(name, None, number, own[0])) for name in ("asks", "came"))
        got = ast.Expr(_call("got", batch, number, own[-1]))
        tried = ast.Try(body=own, handlers=[], orelse=[], finalbody=[ast.copy_location(came, own[-1])])
        told = [ast.copy_location(asks, own[0]), ast.copy_location(tried, own[0]), ast.copy_location(got, own[-1])]
        block[first : last + 1] = told
        return True

    def _tell_of_argument(self, node: ast.stmt) -> bool:
        """Have the first argument tell that is made in the call that trains: ``train_step(next(batches))``."""
        for call in (one for one in ast.walk(node) if isinstance(one, ast.Call) and self._is_training(one)):
            for number, argument in enumerate(call.args):
                value = argument.value if isinstance(argument, ast.Starred) else argument
                if not isinstance(value, ast.Call | ast.Subscript) or self._trains(value) or _waits(value):
                    continue
                text = ast.unparse(value)
                place = self._loops.place(Place(self._file, value.lineno, text, "batch"))
                taken = _call("take", _lambda(value), place, value)
                call.args[number] = (
                    ast.copy_location(ast.Starred(taken, ast.Load()), argument) if value is not argument else taken
                )
                return True
        return False


def _opens_tape(node: ast.stmt) -> bool:
    return isinstance(node, ast.With) and any("GradientTape" in ast.unparse(one) for one in node.items)


def _call(name: str, value: ast.expr | None, number: int, at: ast.AST) -> ast.Call:
    """``__xttsbench_loop__.hearing.name(value, number)``, at the place of a node."""
    hearing = ast.Attribute(ast.Name(_NAME, ast.Load()), "hearing", ast.Load())
    method = ast.Attribute(hearing, name, ast.Load())
    made = ast.Call(method, [*([] if value is None else [value]), ast.Constant(number)], [])
    for one in ast.walk(made):
        if not hasattr(one, "lineno"):
            ast.copy_location(one, at)
    return made


def _bare(target: ast.expr) -> str:
    """Text of what a loop sets, without parentheses."""
    text = ast.unparse(target)
    return text[1:-1] if isinstance(target, ast.Tuple) else text


def _lambda(value: ast.expr) -> ast.Lambda:
    return ast.copy_location(ast.Lambda(ast.arguments([], [], None, [], [], None, []), value), value)


def _of_numbers(node: ast.AST) -> bool:
    """Tell whether what is iterated is a range, in whatever it is wrapped."""
    while isinstance(node, ast.Call):
        if last_name(node.func) in ("range", "trange", "arange", "count"):
            return True
        if not node.args:
            return False
        node = node.args[0]
    return False


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


def _called(node: ast.AST) -> set[str]:
    """Functions and models that are called by a bare name that is none of Python's."""
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return {one.id for one in calls if isinstance(one, ast.Name) and not hasattr(builtins, one.id)}


def _asks(value: ast.AST) -> bool:
    return any(isinstance(one, ast.Call | ast.Subscript) for one in ast.walk(value))


def _waits(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr) for one in ast.walk(node))
