"""Items of an opened generator as tensors, where all are alike: what its head hands on, and how its body gets them.

An item is what the head of a loop binds and the body reads: numbers, text, paths and arrays, and tuples, lists and
dictionaries of them. Each becomes tensors, so that the body is a function of tensors, which can be traced, and not one
of a table of Python's. What all items have in common has to be the same in every epoch.
"""

from __future__ import annotations

import ast
import pathlib
import random
import re
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.python.names import copied, placed
from xttsbench.pipeline.python.opened import Compiled, Shared, function_of, grouped, is_unbegun, with_code
from xttsbench.pipeline.python.split import EMIT
from xttsbench.pipeline.python.state import state_effects
from xttsbench.pipeline.source import is_users, made_from, place

_MOST_SEEN: Final = 100_000
_SEEN_S: Final = 1.0  # how many items are looked at before they are handed on as tensors, and for how long at most
_PATH: Final = "_xttsbench_path"
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_TEXT: Final = (str, pathlib.PosixPath)
_MADE_BY: Final = {int: "int", float: "float", bool: "bool", pathlib.PosixPath: _PATH}
"""Kinds whose values are made of what a tensor holds, and the name of what makes them; text is decoded first."""
_CONVERTED: Final = frozenset((*_TEXT, *_MADE_BY))


class NotAlikeError(Exception):
    """Why items stay in Python, as a phrase after "it"."""


@dataclass(frozen=True)
class Leaf:
    """One tensor of an item."""

    name: str  # of the parameter that it becomes
    written: str  # how the head writes its value
    kind: type  # of the value, in Python
    dtype: np.dtype[Any]  # of the tensor; strings are objects
    rank: int  # of the tensor

    def flat(self, value: Any) -> Iterator[Any]:
        """The value as an array."""
        if type(value) is not self.kind:
            raise NotAlikeError(f"has {_words(type(value))} for {self.written} where others have {_words(self.kind)}")
        array = _array(value)
        if (array.dtype, array.ndim) != (self.dtype, self.rank):
            raise NotAlikeError(f"has an array of {array.dtype} {list(array.shape)} for {self.written}, unlike others")
        yield array

    def back(self) -> ast.expr:
        """Expression that rebuilds the value from the parameter."""
        given: ast.expr = ast.Name(self.name, ast.Load())
        if self.kind in _TEXT:
            given = ast.Call(ast.Attribute(given, "decode", ast.Load()), [], [])
        if self.kind in _MADE_BY:
            given = ast.Call(ast.Name(_MADE_BY[self.kind], ast.Load()), [given], [])
        return given

    def leaves(self) -> Iterator[Leaf]:
        """Itself."""
        yield self


@dataclass(frozen=True)
class Group:
    """A tuple, a list or a dictionary of parts."""

    written: str
    kind: type
    keys: tuple[Any, ...]
    parts: tuple[Part, ...]

    def flat(self, value: Any) -> Iterator[Any]:
        """The values of all leaves as arrays."""
        same: bool = type(value) is self.kind and _keys(value) == self.keys
        if not same:
            raise NotAlikeError(f"has another structure for {self.written} than others")
        for key, part in zip(self.keys, self.parts, strict=True):
            yield from part.flat(value[key])

    def back(self) -> ast.expr:
        """Expression that rebuilds the value from the parameters."""
        made = [one.back() for one in self.parts]
        if self.kind is dict:
            return ast.Dict([ast.Constant(one) for one in self.keys], made)
        return ast.Tuple(made, ast.Load()) if self.kind is tuple else ast.List(made, ast.Load())

    def leaves(self) -> Iterator[Leaf]:
        """All of them, in order."""
        for one in self.parts:
            yield from one.leaves()


Part = Leaf | Group


@dataclass(frozen=True)
class Items:
    """Tensors of a generator's items, and the function that makes the element of one item."""

    parts: Mapping[str, Part]  # of an item, by the name that the body reads
    common: Mapping[str, Any]  # what all items have in common, by name
    function: Callable[..., Any]  # the body as a function of the leaves, which returns the element

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tensors of an item, in the order of the function's parameters."""
        return tuple(leaf for part in self.parts.values() for leaf in part.leaves())


class ItemSource:
    """Hands on the items of an opened generator as tensors; in groups where they are single values.

    ``specs`` are NumPy's dtype and the shape of each tensor that is handed on. ``ops_behind`` is how many ops follow
    until there is an element: the one that takes groups apart, and the map.
    """

    def __init__(self, items: Items, cut: Compiled, generator: Callable[..., Any]) -> None:
        """Take what items are, the generator's parts, and the generator as ``from_generator`` was given it."""
        self._items, self._cut, self._generator = items, cut, generator
        self.in_groups = all(leaf.rank == 0 for leaf in items.leaves)
        self.specs = [(leaf.dtype, [None] * (leaf.rank + self.in_groups)) for leaf in items.leaves]
        self.ops_behind = 2 if self.in_groups else 1

    def handed_on(self, *arguments: Any) -> Iterator[tuple[Any, ...]]:
        """The items of an epoch, or groups of them, each as a tuple of arrays."""
        single = self._single(arguments)
        if not self.in_groups:
            return single
        return (tuple(map(np.stack, zip(*group, strict=True))) for group in grouped(single))

    def _single(self, arguments: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """The items of an epoch, each as a tuple of arrays.

        Raises:
            RuntimeError: an item is not like those that were seen, or what they have in common is another now.
        """
        known: Shared | None = None
        for number, (shared, item) in enumerate(_begun(self._cut, self._generator, arguments)):
            try:
                held = dict(zip(self._cut.split.shared, shared.values, strict=True))
                if shared is not known:
                    if other := [name for name, one in self._items.common.items() if not _same(one, held[name])]:
                        raise NotAlikeError(f"finds another {other[0]!r} than when items were looked at")
                    known = shared
                held |= zip(self._cut.split.items, item, strict=True)
                yield tuple(array for name, part in self._items.parts.items() for array in part.flat(held[name]))
            except NotAlikeError as error:
                raise RuntimeError(
                    f"Item {number} of {self._cut.of.co_name}() {error}. Its items are handed on as tensors because "
                    "all that were seen are alike; leave the fix 'native' out."
                ) from None


def items_of(cut: Compiled, generator: Callable[..., Any], arguments: Sequence[Any]) -> Items:
    """Reads the items of one epoch, for at most a second, and describes them.

    Generator and arguments are as given to ``from_generator``.

    Raises:
        NotAlikeError: the items are not alike or cannot be read, or the body is no function of one item.
    """
    if not cut.split.once:
        raise NotAlikeError("does not give exactly one element for each item")
    if (state := state_effects(generator)) != ():
        raise NotAlikeError(f"cannot be looked at without a change of state: {state[0]}")
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        first, common, parts = _seen(cut, generator, arguments)
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
    return Items(parts, common, _function(cut, first, parts, common))


def _seen(
    cut: Compiled, generator: Callable[..., Any], arguments: Sequence[Any]
) -> tuple[types.FunctionType, dict[str, Any], dict[str, Part]]:
    """The generator's function, what its items have in common, and the parts of each."""
    until, function = time.monotonic() + _SEEN_S, None
    taken = {one.id for one in ast.walk(cut.split.body) if isinstance(one, ast.Name)}
    shares, parts = list[Shared](), dict[str, Part]()
    try:
        for _ in range(2):  # what is made anew for each epoch shows in the second one
            made = generator(*arguments)
            function = function_of(made) if is_unbegun(made) else None
            if function is None or made.gi_code is not cut.of or not is_users(function):
                raise NotAlikeError("is a library's, or another generator than was read")
            for count, (shared, item) in enumerate(cut.begun(made)):
                if not shares or shared is not shares[-1]:
                    shares.append(shared)
                for name, value in zip(cut.split.items, item, strict=True):
                    if name not in parts:
                        parts[name] = _part(value, name, name, taken)
                    deque(parts[name].flat(value), maxlen=0)
                if count >= _MOST_SEEN or time.monotonic() > until:
                    break
    except NotAlikeError:
        raise
    except Exception as error:
        raise NotAlikeError(f"raises {type(error).__name__} while its items are looked at: {error}") from error
    if not shares or function is None:
        raise NotAlikeError("gave no item")
    common = dict(zip(cut.split.shared, shares[0].values, strict=True))
    for number, name in enumerate(cut.split.shared):
        values = [one.values[number] for one in shares]
        if all(_same(one, values[0]) for one in values):
            continue
        part = parts[name] = _part(common.pop(name), name, name, taken)
        for value in values:
            deque(part.flat(value), maxlen=0)
    if not parts:
        raise NotAlikeError("hands nothing on from its loop")
    return function, common, parts


def _begun(
    cut: Compiled, generator: Callable[..., Any], arguments: Sequence[Any]
) -> Iterator[tuple[Shared, tuple[Any, ...]]]:
    made = iter(generator(*arguments))
    if not (is_unbegun(made) and isinstance(made, types.GeneratorType) and made.gi_code is cut.of):
        raise RuntimeError(f"{cut.of.co_name}() is another generator than was read.")
    return cut.begun(made)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        alike = (one.dtype, one.shape) == (other.dtype, other.shape)
        return alike and one.dtype != object and bool(np.array_equal(one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, (*_PLAIN, pathlib.PurePath, set, frozenset)) and bool(one == other)


def _part(value: Any, name: str, written: str, taken: set[str]) -> Part:
    if type(value) in (tuple, list, dict):
        keys = _keys(value)
        if not keys or not all(isinstance(one, str | int) for one in keys):
            raise NotAlikeError(f"has an empty {type(value).__name__} for {written}, or keys that are no text")
        inner = [(_free(f"{name}_{key}", taken), f"{written}[{key!r}]", value[key]) for key in keys]
        return Group(written, type(value), keys, tuple(_part(one, as_, path, taken) for as_, path, one in inner))
    if not (isinstance(value, np.ndarray | np.generic) or type(value) in (*_CONVERTED, bytes)):
        raise NotAlikeError(f"has {_words(type(value))} for {written}, which is no number, text or array")
    array = _array(value)
    how = f"str({written})" if isinstance(value, pathlib.PurePath) else written
    return Leaf(name, how, type(value), array.dtype, array.ndim)


def _keys(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, dict) else tuple(range(len(value)))


def _free(wanted: str, taken: set[str]) -> str:
    name = re.sub(r"\W", "_", wanted)
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, str | pathlib.PurePath):
        try:
            return np.array(str(value).encode(), object)
        except UnicodeEncodeError as error:
            raise NotAlikeError(f"has text that is no UTF-8 ({error.reason})") from error
    if isinstance(value, bytes):
        return np.array(value, object)
    try:
        array = np.asarray(value, np.int64 if type(value) is int else None)
    except OverflowError as error:
        raise NotAlikeError("has a whole number of more than 64 bits") from error
    if array.dtype.kind not in "biufc" or array.dtype.char in "gG":
        raise NotAlikeError(f"has an array of {array.dtype}")
    return array


def _words(kind: type) -> str:
    return f"an {kind.__name__}" if kind.__name__[0] in "aeiou" else f"a {kind.__name__}"


def _function(
    cut: Compiled, like: types.FunctionType, parts: Mapping[str, Part], common: Mapping[str, Any]
) -> types.FunctionType:
    """The body as a function of the leaves: an item's own values, the statements, and the element returned."""
    body = copied(cut.split.body.body)
    if not _returning(body):
        raise NotAlikeError("does something behind its element")
    loop = cut.split.body
    given = [
        ast.Assign([ast.Name(name, ast.Store())], part.back())
        for name, part in parts.items()
        if isinstance(part, Group) or part.kind in _CONVERTED
    ]
    leaves = [leaf.name for part in parts.values() for leaf in part.leaves()]
    arguments = ast.arguments([], [ast.arg(name) for name in leaves], None, [], [], None, [])
    node: Any = ast.FunctionDef(loop.name, arguments, [*(placed(loop, one) for one in given), *body], [])
    node = ast.fix_missing_locations(placed(loop, node))
    cells = {**common, _PATH: pathlib.Path}
    code = made_from(node, [*like.__code__.co_freevars, *cells], place(like.__code__)[0])
    return with_code(like, code, cells)


def _returning(body: list[ast.stmt]) -> bool:
    """Have the last statement, which gives the element, return it; whether it is the last one."""
    last: Any = body[-1]
    if isinstance(last, ast.With):
        return _returning(last.body)
    call = last.value if isinstance(last, ast.Expr) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == EMIT):
        return False
    body[-1] = ast.copy_location(ast.Return(call.args[0]), last)
    return True
