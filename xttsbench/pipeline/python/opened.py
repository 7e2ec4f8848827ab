"""A generator of the user's that runs in two parts: its head in turn, its body for several items at a time.

What TensorFlow calls for each epoch may be a generator function, a method, a partial, or anything that returns a
generator (``lambda: samples(files)``), so the generator itself is what is opened: it has not begun yet, and its frame
holds the arguments that it was called with. One that turns out to be another than was read runs whole, in the head.
"""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import itertools
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.python.effects import LoopEffects
from xttsbench.pipeline.python.names import normalised
from xttsbench.pipeline.python.reading import Reader
from xttsbench.pipeline.python.split import SHARE, CannotSplitError, Split, split
from xttsbench.pipeline.python.state import python_state
from xttsbench.pipeline.python.values import LOCAL, Value, taken_apart
from xttsbench.pipeline.source import definition, holds, place, tree_of

_GROUP: Final = 16
_GROUP_S: Final = 5e-4
"""Numbers of items go to TensorFlow in groups of so many, or of as many as are there in this time."""
_MOST_FINISHED: Final = 8  # epochs that are over and whose items are kept: calls of their bodies may still be under way


@dataclass(frozen=True, eq=False)
class Shared:
    """Body and values that all items of one run of a loop have in common."""

    function: Callable[..., None]
    """The body: it is given what to call with each element, then the shared values and the item's own."""
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Compiled:
    """A generator's two parts as code."""

    split: Split
    of: types.CodeType
    head: types.CodeType
    body: types.CodeType
    reads: str | None
    reads_within_epoch: str | None
    """Phrase for state that the body reads and other code changes: ``reads`` at all, here without Keras's changes
    between epochs.
    """
    example: Shared  # the body with what is known of the shared values; ``None`` stands for what an epoch makes

    def begun(self, generator: types.GeneratorType[Any, Any, Any]) -> Iterator[tuple[Shared, tuple[Any, ...]]]:
        """The head in a generator's place, which must not have begun, and is closed."""
        function, frame = function_of(generator), generator.gi_frame
        held = {} if frame is None else dict(frame.f_locals)
        generator.close()
        (names, rest, more), count = inspect.getargs(function.__code__), function.__code__.co_argcount
        positional = [*(held[name] for name in names[:count]), *(held[rest] if rest else ())]
        named = {name: held[name] for name in names[count:]} | (held[more] if more else {})
        body = with_code(function, self.body, {})
        head = with_code(function, self.head, {SHARE: lambda *values: Shared(body, values)})
        return iter(head(*positional, **named))


class Opened:
    """A generator in two parts that share a table of items.

    ``head`` is called for each epoch and yields the numbers of items; :meth:`taken` gives what one stands for, once.
    """

    def __init__(self, generator: Callable[..., Any], compiled: Compiled) -> None:
        self.compiled = compiled
        self.generator = generator
        self._items: dict[int, tuple[int, Shared | None, Any]] = {}
        self._numbers = itertools.count()
        self._epochs = itertools.count()
        self._finished: deque[int] = deque()
        self.ops_behind = 2 if compiled.split.once else 4
        """Number of ops behind the generator until there is an element: unbatch and map; or unbatch, map, flat_map and
        map.
        """

    def head(self, *arguments: Any) -> Iterator[int]:
        """The numbers of an epoch's items, in order."""
        made = iter(self.generator(*arguments))
        pairs: Iterator[tuple[Shared | None, Any]]
        if is_unbegun(made) and made.gi_code is self.compiled.of:
            pairs = self.compiled.begun(made)
        else:
            pairs = ((None, value) for value in made)
        epoch = next(self._epochs)
        try:
            for shared, item in pairs:
                number = next(self._numbers)
                self._items[number] = (epoch, shared, item)
                yield number
        finally:
            self._finished.append(epoch)
            if len(self._finished) > _MOST_FINISHED:
                old = self._finished.popleft()
                for number in [one for one, item in list(self._items.items()) if item[0] == old]:
                    self._items.pop(number, None)

    def groups(self, *arguments: Any) -> Iterator[Any]:
        """The same in groups, ``[count]``."""
        return map(np.array, grouped(self.head(*arguments)))

    def taken(self, number: int) -> tuple[Shared | None, Any]:
        """Shared values and item of a number, handed out once."""
        _, shared, item = self._items.pop(int(number))
        return shared, item


def grouped(items: Iterator[Any]) -> Iterator[list[Any]]:
    """Items in groups: as many at once as are there within half a millisecond; what is raised comes behind them."""
    over = False
    while not over:
        group: list[Any] = []
        failed: BaseException | None = None
        until = time.perf_counter() + _GROUP_S
        while len(group) < _GROUP and not over and time.perf_counter() < until:
            try:
                group.append(next(items))
            except StopIteration:
                over = True
            except Exception as error:  # comes behind the items that were picked before
                over, failed = True, error
        if group:
            yield group
        if failed is not None:
            raise failed


def made_of(function: Callable[..., None], values: Sequence[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """The elements that a body gives, converted as they come.

    Raises:
        RuntimeError: the body raised ``StopIteration``, as a generator says it.
    """
    found: list[Any] = []
    try:
        function(lambda element: found.append(convert(element)), *values)
    except StopIteration as error:
        raise RuntimeError("generator raised StopIteration") from error
    return found


def compiled(generator: Callable[..., Any]) -> Compiled:
    """Read and cut what a callable gives that ``from_generator`` was given; it is called where only that shows it.

    Raises:
        CannotSplitError: it cannot be cut.
    """
    function, given = _generator_function(generator)
    node = _node(function)
    effects = LoopEffects(function, normalised(node), given)
    found = split(node, effects)
    head, made = _codes(function, node, found)
    reads = effects.reads(found.body.body, frozenset(found.shared))
    example = Shared(with_code(function, made, {}), tuple(given.get(name) for name in found.shared))
    return Compiled(found, function.__code__, head, made, *reads, example)


def is_unbegun(made: Any) -> bool:
    """Whether something is a generator none of whose code has run."""
    return isinstance(made, types.GeneratorType) and inspect.getgeneratorstate(made) == inspect.GEN_CREATED


def function_of(generator: types.GeneratorType[Any, Any, Any]) -> types.FunctionType:
    """The function that made a generator; its frame refers to it.

    Raises:
        CannotSplitError: it is not to be found.
    """
    for one in gc.get_referents(generator):
        if isinstance(one, types.FunctionType) and one.__code__ is generator.gi_code:
            return one
    raise CannotSplitError("the function that made it is not known")


def _generator_function(generator: Any) -> tuple[types.FunctionType, dict[str, Any]]:
    """The generator function behind a callable, and its arguments as far as they are known."""
    function, _positional, _named = taken_apart(generator)
    arguments = list(generator.args) if isinstance(generator, functools.partial) else []
    keywords = dict(generator.keywords) if isinstance(generator, functools.partial) else {}
    if not isinstance(function, types.FunctionType | types.MethodType) and not isinstance(function, type):
        function = getattr(function, "__call__", function)  # noqa: B004 - bound to the object
    if isinstance(function, types.MethodType):
        arguments, function = [function.__self__, *arguments], function.__func__
    if isinstance(function, types.FunctionType) and inspect.isgeneratorfunction(function):
        parameters = inspect.signature(function, follow_wrapped=False).parameters
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [name for name, one in parameters.items() if one.kind in plain]
        known = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
        rest = dict.fromkeys(parameters, np.zeros(1))  # what TensorFlow passes on is an array
        return function, rest | known | dict(zip(names, arguments, strict=False)) | keywords
    state = python_state(generator, _Making() if _only_makes(generator) else None)
    if (why := state.state or state.random) is not None:
        raise CannotSplitError(f"what makes the generator does more: {why}")
    try:
        made = iter(generator())
    except Exception as error:
        why = f"its generator could not be made to look at ({type(error).__name__}: {error})"
        raise CannotSplitError(why) from error
    if not is_unbegun(made):
        raise CannotSplitError(f"it gives an object of type {type(made).__name__}, which is no generator of Python's")
    given = {("source" if name == ".0" else name): value for name, value in made.gi_frame.f_locals.items()}
    found = function_of(made)
    made.close()
    return found, given


def _only_makes(generator: Any) -> bool:
    """Whether a function is one call with what is there already: ``lambda: iter(data)``, ``lambda: samples(files)``."""
    node = definition(generator.__code__) if isinstance(generator, types.FunctionType) else None
    match node:
        case ast.Lambda(body=ast.Call() as call) | ast.FunctionDef(body=[ast.Return(value=ast.Call() as call)]):
            given = [*call.args, *(one.value for one in call.keywords)]
            return all(isinstance(one, ast.Name | ast.Attribute | ast.Constant) for one in given)
    return False


class _Making(Reader):
    """Leaves out what a generator that is made, and has not begun, will do."""

    def function(self, function: Any, given: dict[str, Value] | None = None) -> Value:
        """Read a function unless it is the one whose generator is made."""
        made = self._depth == 1 and inspect.isgeneratorfunction(function)
        return LOCAL if made else super().function(function, given)


def _node(function: types.FunctionType) -> Any:
    code = function.__code__
    if code.co_name != "<genexpr>":
        found: Any = definition(code)
    else:
        file, line = place(code)
        here = [one for one in ast.walk(tree_of(file)) if isinstance(one, ast.GeneratorExp) and one.lineno == line]
        found = min((one for one in here if holds(one, code)), key=lambda one: len(ast.dump(one)), default=None)
    if found is None:
        raise CannotSplitError("its source is not known", code.co_firstlineno)
    return found


def _codes(function: types.FunctionType, node: Any, found: Split) -> tuple[types.CodeType, types.CodeType]:
    """Both parts compiled with the closure and, in a class, the private names of the function."""
    cells = [ast.arg(name) for name in (*function.__code__.co_freevars, SHARE)]
    given = ast.arguments([], cells, None, [], [], None, [])
    outer: ast.stmt = ast.FunctionDef("outer", given, [found.head, found.body], [])
    while (node := getattr(node, "parent", None)) is not None:
        if isinstance(node, ast.ClassDef):
            outer = ast.ClassDef(node.name, [], [], [outer], [])
            break
    module = ast.fix_missing_locations(ast.Module([outer], []))
    code = compile(module, place(function.__code__)[0], "exec", dont_inherit=True)
    inner = {one.co_name: one for one in _every_code(code)}
    return inner[found.head.name], inner[found.body.name]


def _every_code(code: types.CodeType) -> Iterator[types.CodeType]:
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _every_code(one)
            yield one


def with_code(like: types.FunctionType, code: types.CodeType, cells: Mapping[str, Any]) -> types.FunctionType:
    """A function of other code with the globals and the closure of one, and some captured values more."""
    held = dict(zip(like.__code__.co_freevars, like.__closure__ or (), strict=True))
    held |= {name: types.CellType(value) for name, value in cells.items()}
    made = types.FunctionType(
        code, like.__globals__, code.co_name, None, tuple(held[name] for name in code.co_freevars)
    )
    made.__module__ = like.__module__
    made.__qualname__ = f"{like.__qualname__}.{code.co_name}"
    return made
