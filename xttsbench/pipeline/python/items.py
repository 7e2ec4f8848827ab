"""Items of an opened generator as tensors, where all are alike: what its head hands on, and how its body gets them.

An item is what the head of a loop binds and the body reads: numbers, text, paths and arrays. Each becomes a tensor, so
that the body is a function of tensors, which can be traced, and not one of a table of Python's.
"""

from __future__ import annotations

import ast
import pathlib
import random
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from xttsbench.pipeline.python.names import copied
from xttsbench.pipeline.python.opened import Compiled, with_code
from xttsbench.pipeline.python.split import CannotOpenError
from xttsbench.pipeline.python.state import state_effects
from xttsbench.pipeline.source import is_users

_MOST_SEEN: Final = 100_000
_SEEN_S: Final = 1.0  # how many items are looked at before they are handed on as tensors, and for how long at most
_PATH: Final = "_xttsbench_path"
_TEXT: Final = (str, pathlib.PosixPath)
_MADE_BY: Final = {int: "int", float: "float", bool: "bool", pathlib.PosixPath: _PATH}
"""Kinds whose values are made of what a tensor holds, and the name of what makes them; text is decoded first."""


class NotAlikeError(Exception):
    """Why items stay in Python, as a phrase after "it"."""


@dataclass(frozen=True)
class Leaf:
    """One tensor of an item."""

    name: str  # of the parameter that it becomes, which is the name that the body reads
    kind: type  # of the value, in Python
    dtype: np.dtype[Any]  # of the tensor; strings are objects
    rank: int  # of the tensor

    @property
    def written(self) -> str:
        """The value as the head writes it."""
        return f"str({self.name})" if issubclass(self.kind, pathlib.PurePath) else self.name

    def array(self, value: Any) -> np.ndarray[Any, Any]:
        """The value as an array.

        Raises:
            NotAlikeError: it is another kind of value.
        """
        if type(value) is not self.kind:
            raise NotAlikeError(f"has {_words(type(value))} for {self.name} where others have {_words(self.kind)}")
        array = _array(value)
        if (array.dtype, array.ndim) != (self.dtype, self.rank):
            raise NotAlikeError(f"has an array of {array.dtype} {list(array.shape)} for {self.name}, unlike others")
        return array

    def back(self) -> ast.stmt | None:
        """Statement that makes the value of the tensor; ``None`` where the tensor's value is it."""
        given: ast.expr = ast.Name(self.name, ast.Load())
        if self.kind in _TEXT:
            given = ast.Call(ast.Attribute(given, "decode", ast.Load()), [], [])
        if self.kind in _MADE_BY:
            given = ast.Call(ast.Name(_MADE_BY[self.kind], ast.Load()), [given], [])
        return None if isinstance(given, ast.Name) else ast.Assign([ast.Name(self.name, ast.Store())], given)


@dataclass(frozen=True)
class Items:
    """Tensors of a generator's items, and the function that makes the element of one item."""

    cut: Compiled
    leaves: tuple[Leaf, ...]  # in the order of the function's parameters
    function: Callable[..., Any]  # the body as a function of the leaves, which returns the element

    def handed_on(self, *arguments: Any) -> Iterator[tuple[Any, ...]]:
        """The items of an epoch, each as a tuple of arrays.

        Raises:
            RuntimeError: an item is not like those that were seen, or what they have in common is another now.
        """
        for number, held in enumerate(self.cut.items(*arguments)):
            try:
                if other := [name for name, one in self.cut.known.items() if held[name] is not one]:
                    raise NotAlikeError(f"finds another {other[0]!r} than when items were looked at")
                arrays = tuple(leaf.array(held[leaf.name]) for leaf in self.leaves)
            except NotAlikeError as error:
                raise RuntimeError(
                    f"Item {number} of {self.cut.function.__name__}() {error}. Its items are handed on as tensors "
                    "because all that were seen are alike; leave the fix 'native' out."
                ) from None
            yield arrays


def items_of(cut: Compiled, arguments: Sequence[Any]) -> Items:
    """Reads the items of one epoch, for at most a second, and describes them; arguments are ``from_generator``'s.

    Raises:
        NotAlikeError: the items are not alike, or cannot be read.
        CannotOpenError: the loop goes over, or reads, what is no plain data.
    """
    if (state := state_effects(cut.generator)) != ():
        raise NotAlikeError(f"cannot be looked at without a change of state: {state[0]}")
    if not is_users(cut.function):
        raise NotAlikeError("is a library's")
    of_python, of_numpy, leaves = random.getstate(), np.random.get_state(), dict[str, Leaf]()
    until = time.monotonic() + _SEEN_S
    try:
        for count, held in enumerate(cut.items(*arguments)):
            for name in [one for one in held if one not in cut.known]:
                leaves.setdefault(name, _leaf(name, held[name])).array(held[name])
            if count >= _MOST_SEEN or time.monotonic() > until:
                break
    except (NotAlikeError, CannotOpenError):
        raise
    except Exception as error:
        raise NotAlikeError(f"raises {type(error).__name__} while its items are looked at: {error}") from error
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
    if not leaves:
        raise NotAlikeError("gave no item, or hands nothing on from its loop")
    return Items(cut, tuple(leaves.values()), _function(cut, tuple(leaves.values())))


def _leaf(name: str, value: Any) -> Leaf:
    if not (isinstance(value, np.ndarray | np.generic) or type(value) in (*_TEXT, *_MADE_BY, bytes)):
        raise NotAlikeError(f"has {_words(type(value))} for {name}, which is no number, text or array")
    array = _array(value)
    return Leaf(name, type(value), array.dtype, array.ndim)


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, str | bytes | pathlib.PurePath):
        try:
            return np.array(value if isinstance(value, bytes) else str(value).encode(), object)
        except UnicodeEncodeError as error:
            raise NotAlikeError(f"has text that is no UTF-8 ({error.reason})") from error
    try:
        array = np.asarray(value, np.int64 if type(value) is int else None)
    except OverflowError as error:
        raise NotAlikeError("has a whole number of more than 64 bits") from error
    if array.dtype.kind not in "biufc" or array.dtype.char in "gG":
        raise NotAlikeError(f"has an array of {array.dtype}")
    return array


def _words(kind: type) -> str:
    return f"an {kind.__name__}" if kind.__name__[0] in "aeiou" else f"a {kind.__name__}"


def _function(cut: Compiled, leaves: Sequence[Leaf]) -> types.FunctionType:
    """The body as a function of the leaves: an item's own values, the statements, and the element returned."""
    node = copied(cut.split.body)
    node.args.args = [ast.arg(leaf.name) for leaf in leaves]
    node.body = [*(ast.copy_location(one, node) for leaf in leaves if (one := leaf.back())), *node.body]
    return with_code(cut.function, ast.fix_missing_locations(node), {**cut.known, _PATH: pathlib.Path})
