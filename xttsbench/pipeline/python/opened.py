"""A generator of the user's that runs in two parts: its head in turn, its body for several items at a time.

What TensorFlow calls for each epoch may be a generator function, a method, a partial, or a function that returns a
generator (``lambda: samples(files)``), so the generator itself is what is opened: it has not begun yet, and its frame
holds the arguments that it was called with.

What a body reads is what its objects are now: the parameters and what is global or captured. Of the variables that the
generator makes itself nothing is known before it runs, so that they, and what the loop goes over, have to be plain data
when it does: numbers, text, arrays, and lists and the like of these.
"""

from __future__ import annotations

import ast
import gc
import inspect
import io
import itertools
import os
import random
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.definitions import definition, made_from, place
from xttsbench.pipeline.python.libraries import may_write
from xttsbench.pipeline.python.names import last_name, parameters
from xttsbench.pipeline.python.reading import Reader
from xttsbench.pipeline.python.split import ITERATE, SHARE, CannotOpenError, Split, split
from xttsbench.pipeline.python.state import changed_elsewhere, python_state
from xttsbench.pipeline.python.values import LOCAL, UNKNOWN, Scope, Value, attribute, immutable
from xttsbench.pipeline.source import is_users

_SEEN: Final = 1000  # parts of a container that are looked at
_KEEPERS: Final = np.random.Generator | np.random.RandomState | random.Random | io.IOBase
_ARRAY: Final = np.zeros(1)  # in place of an argument that TensorFlow passes on
_PLAIN: Final = (bool, int, float, complex, str, bytes, range, type(None))
_VIEWS: Final[tuple[type, ...]] = (type({}.keys()), type({}.values()), type({}.items()))
_GROUPS: Final = (list, tuple, set, frozenset, dict, *_VIEWS)
_OF_PANDAS: Final = ("pandas.core.series", "pandas.core.indexes", "pandas.core.frame")


@dataclass(frozen=True)
class Compiled:
    """A generator's two parts as functions."""

    split: Split
    generator: Callable[..., Any]  # as ``from_generator`` was given it
    function: types.FunctionType  # the generator function behind it
    head: Callable[..., Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]]
    body: types.FunctionType  # makes the element of the values of one item, which are given by their names
    known: Mapping[str, Any]  # those that are the same for all items of all epochs
    reads: str | None
    """Phrase for state that the body reads and other code changes."""
    reads_within_epoch: str | None  # the same without what Keras has a ``PyDataset`` change between epochs

    def items(self, *arguments: Any) -> Iterator[dict[str, Any]]:
        """The values of each item of an epoch, by their names: the head in the generator's place.

        Raises:
            CannotOpenError: the generator is another than was read, or goes over or hands on what is no plain data.
        """
        made = self.generator(*arguments)
        if not _is_unbegun(made) or _function_of(made) is not self.function:
            raise CannotOpenError(f"{self.function.__name__}() is another generator than was read")
        held = made.gi_frame.f_locals
        given = [held[one.arg] for one in parameters(definition(self.function.__code__))]
        made.close()
        for shared, item in self.head(*given):
            yield dict(zip((*self.split.shared, *self.split.items), (*shared, *item), strict=True))


def compiled(generator: Callable[..., Any]) -> Compiled:
    """Read and cut what a callable gives that ``from_generator`` was given; it is called, but nothing of it begins.

    Raises:
        CannotOpenError: it cannot be cut.
    """
    function, given = _generator_function(generator)
    node = definition(function.__code__)
    if node is None:
        raise CannotOpenError("its source is not known")
    found = split(node)
    known = {name: value for name, value in given.items() if name not in found.rebound}
    reader = _BodyReader()
    reader.body(function, found, known)
    felt = next((one for one in reader.effects if one.kind != "read"), None)
    if felt is not None:
        raise CannotOpenError(felt.text)
    fixed = next((one.text for one in reader.effects), None)
    # A head that goes on may itself do what Keras else does between epochs.
    file = place(function.__code__)[0]
    reads = [fixed or changed_elsewhere(reader, file, within_epoch=only) for only in (False, not found.goes_on)]

    def share(*values: Any) -> tuple[Any, ...]:
        for name, value in zip(found.shared, values, strict=True):
            if not (name in known and known[name] is value) and (why := _not_plain(value)) is not None:
                raise CannotOpenError(f"line {found.line}: the loop reads {name!r}, which {why}")
            if name in found.touched and not immutable(value):
                raise CannotOpenError(f"line {found.line}: {name!r} may be changed while elements are still made of it")
        return values

    def iterate(value: Any) -> Any:
        if (why := _not_plain(value)) is not None:
            raise CannotOpenError(f"line {found.line}: the loop goes over something that {why}; make a list of it")
        return value

    head = with_code(function, found.head, {SHARE: share, ITERATE: iterate})
    held = {name: known[name] for name in found.shared if known.get(name, _ARRAY) is not _ARRAY}
    return Compiled(found, generator, function, head, with_code(function, found.body, {}), held, *reads)


def with_code(like: types.FunctionType, node: ast.FunctionDef, cells: Mapping[str, Any]) -> types.FunctionType:
    """A function of another node with the globals and the closure of one, and some captured values more."""
    held = dict(zip(like.__code__.co_freevars, like.__closure__ or (), strict=True))
    held |= {name: types.CellType(value) for name, value in cells.items()}
    around: Any = definition(like.__code__)
    while around is not None and not isinstance(around, ast.ClassDef):
        around = getattr(around, "parent", None)
    code = made_from(node, list(held), place(like.__code__)[0], getattr(around, "name", None))
    closure = tuple(held[name] for name in code.co_freevars)
    made = types.FunctionType(code, like.__globals__, code.co_name, None, closure)
    made.__module__, made.__qualname__ = like.__module__, f"{like.__qualname__}.{code.co_name}"
    return made


def _is_unbegun(made: Any) -> bool:
    return isinstance(made, types.GeneratorType) and inspect.getgeneratorstate(made) == inspect.GEN_CREATED


def _function_of(generator: Any) -> types.FunctionType | None:
    """The function that made a generator; its frame refers to it."""
    every = gc.get_referents(generator)
    found = (one for one in every if isinstance(one, types.FunctionType) and one.__code__ is generator.gi_code)
    return next(found, None)


def _generator_function(generator: Any) -> tuple[types.FunctionType, dict[str, Any]]:
    """The generator function behind a callable, and its arguments as far as they are known."""
    own = getattr(generator, "__call__", None)  # noqa: B004 - bound to the object
    given: list[Any] = []
    if inspect.isgeneratorfunction(generator) or inspect.isgeneratorfunction(own):
        every = inspect.signature(generator, follow_wrapped=False).parameters.values()
        required = [one for one in every if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
        given = [_ARRAY] * len(required)
    elif not _only_makes(generator):
        state = python_state(generator)
        if (why := state.state or state.random) is not None:
            raise CannotOpenError(f"what makes the generator does more: {why}")
    try:
        made = generator(*given)
    except Exception as error:
        why = f"its generator could not be made to look at ({type(error).__name__}: {error})"
        raise CannotOpenError(why) from error
    function = _function_of(made) if _is_unbegun(made) else None
    if function is None:
        raise CannotOpenError(f"it gives an object of type {type(made).__name__}, which is no generator of Python's")
    held = dict(made.gi_frame.f_locals)
    made.close()
    return function, held


def _only_makes(generator: Any) -> bool:
    """Whether a function only calls a generator function, with what is there already: ``lambda: samples(files)``."""
    node = definition(generator.__code__) if isinstance(generator, types.FunctionType) else None
    match node:
        case ast.Lambda(body=ast.Call() as call) | ast.FunctionDef(body=[ast.Return(value=ast.Call() as call)]):
            parts = [call.func, *call.args, *(one.value for one in call.keywords)]
            plain = all(isinstance(one, ast.Name | ast.Attribute | ast.Constant) for one in parts)
            return plain and inspect.isgeneratorfunction(Reader().value(call.func, Scope(generator, "")).obj)
    return False


def _not_plain(value: Any, most: int = _SEEN) -> str | None:
    """Why a value is not plain data, as a phrase after "which"; of long containers the beginning is looked at."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, np.generic | PurePath) or kind.__module__.startswith(_OF_PANDAS):
        return None
    array = isinstance(value, np.ndarray)
    if array and value.dtype != object:
        return None
    if not array and kind not in _GROUPS:
        return f"is a {kind.__name__}: that may keep something, or give one object again and again"
    parts = (value.flat,) if array else (value, value.values()) if kind is dict else (value,)
    for one in itertools.chain.from_iterable(itertools.islice(part, most) for part in parts):
        if (why := _not_plain(one, max(most // 10, 1))) is not None:
            return why if why.startswith("holds") else why.replace("is a", "holds a", 1)
    return None


class _BodyReader(Reader):
    """Reads the statements of a loop's body, and what they call, for what is felt outside of their own item."""

    def body(self, function: types.FunctionType, found: Split, known: Mapping[str, Any]) -> None:
        """Read the body of a generator's loop."""
        scope = Scope(function, f"{function.__name__}() at {os.path.basename(place(function.__code__)[0])}")
        for name in (*found.shared, *found.items):
            scope.names[name] = Value(True, known.get(name, UNKNOWN) if name in found.shared else UNKNOWN, name)
        self._depth = 1
        self._block(found.statements, scope)

    def _augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        held = scope.value(node.target.id) if isinstance(node.target, ast.Name) else LOCAL
        if held.shared and held.obj is UNKNOWN:
            self.effects.report("state", node, scope, f"changes {held.words} in place")
        super()._augmented(node, scope)

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        owner = scope.value(base.id) if isinstance(base, ast.Name) else LOCAL
        named = last_name(node.func)
        function = (attribute(owner, named) if base is not None else scope.value(named)).obj
        if not is_users(getattr(function, "__func__", function)):
            for one in (*node.args, *(keyword.value for keyword in node.keywords)):
                held = scope.value(one.id) if isinstance(one, ast.Name) else LOCAL
                if isinstance(held.obj, _KEEPERS) or (held.shared and hasattr(type(held.obj), "__next__")):
                    text = f"takes or draws from {held.name!r}, which goes on from call to call"
                    self.effects.report("state", node, scope, text)
            if (writes := may_write(node, owner)) is not None:
                self.effects.report("state", node, scope, writes)
        return super()._call(node, scope)
