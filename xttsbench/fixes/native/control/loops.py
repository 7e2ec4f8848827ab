"""Loops whose length the values of arrays decide, as loops of TensorFlow that carry what their body changes.

The body is traced apart until it is known which variables change and of which dtype and shape they are; a variable that
is another array in each turn must be of one dtype and rank. A list that the body appends to becomes an array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from xttsbench.fixes.native.arrays import Array, CannotTraceError, Spread, Symbolic, lifted, only
from xttsbench.fixes.native.control.branches import (
    UNDEFINED,
    Merged,
    Reads,
    Sets,
    branch,
    current,
    is_same,
    leaves_of,
    negated,
    sets_nothing,
    truth,
)
from xttsbench.fixes.native.control.rows import Row, TracedRange, as_row, is_open
from xttsbench.fixes.native.text import Text, Texts

_MOST_PASSES: Final = 6
_MOST_TURNS: Final = 2_000  # of a loop that is written out, its test not known


@dataclass(frozen=True)
class _Kind:
    """Type, shape and scalar kind of a variable that a loop carries."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    number: type | None
    scalar: bool

    def made(self, tensor: Any, like: Any) -> Array:
        """The variable in the loop."""
        array = Array(tensor, self.number, scalar=self.scalar)
        if isinstance(like, Array):
            array._viewed = like._viewed
        return array

    def with_other(self, other: Array) -> _Kind:
        """The kind that holds another value too."""
        own = Array(tf.zeros([size or 0 for size in self.shape], self.dtype), self.number, scalar=self.scalar)
        only(own.ndim == other.ndim, "changes how many axes a variable has in a loop whose length values decide")
        both = Merged.of(own, other)
        shape = tuple(a if a == b else None for a, b in zip(self.shape, other.tensor.shape.as_list(), strict=True))
        return replace(self, dtype=both.dtype or self.dtype, shape=shape, number=both.number, scalar=both.scalar)


def _kind(array: Array) -> _Kind:
    return _Kind(array.dtype, tuple(array.tensor.shape.as_list()), array.number, array.scalar)


def _placeholder(kind: _Kind) -> Any:
    return tf.compat.v1.placeholder(kind.dtype, list(kind.shape))


class Grown(Symbolic):
    """A list inside a loop that appends to it."""

    __slots__ = ("count", "kind", "values")
    what = "a list"

    def __init__(self, values: Any, count: Any, kind: _Kind | None) -> None:
        """Take a ``TensorArray`` (``None`` while kinds are looked for), how many items it has, and of what kind."""
        self.values, self.count, self.kind = values, count, kind

    def append(self, value: Any) -> None:
        """One more, at the end."""
        array = lifted(value)
        if self.values is None:
            self.kind = _kind(array) if self.kind is None else self.kind.with_other(array)
        else:
            self.values = self.values.write(self.count, tf.cast(array.tensor, self.values.dtype))
        self.count = self.count + 1

    def length(self) -> Array:
        """Number of items."""
        return Array(tf.cast(self.count, tf.int64), int)

    def __getitem__(self, key: Any) -> Any:
        only(isinstance(key, int) and key < 0, "takes a part of a list that a loop makes")
        if self.kind is None:
            raise CannotTraceError("takes a part of a list that may be empty")
        if self.values is None:
            return self.kind.made(_placeholder(self.kind), None)
        return self.kind.made(tf.ensure_shape(self.values.read(self.count + key), self.kind.shape), None)

    def __iadd__(self, other: Any) -> Grown:
        if isinstance(other, Row):
            return self._with_all(other.items)
        only(isinstance(other, list | tuple), "joins a list in a loop with something else")
        for one in other:
            self.append(one)
        return self

    extend = __iadd__

    def _with_all(self, items: Array) -> Grown:
        count = tf.shape(items.tensor)[0]
        if self.values is None:
            self.append(_element(items))
            return self
        places = tf.range(self.count, self.count + count)
        self.values = self.values.scatter(places, tf.cast(items.tensor, self.values.dtype))
        self.count = self.count + count
        return self


@dataclass(frozen=True)
class _Items:
    """Items of a loop: their number, and the one at a place."""

    count: Any
    at: Callable[[Any], Any]


def looped(items: Any, body: Any, stop: Callable[[], Any] | None, reads: Reads = (), sets: Sets = sets_nothing) -> None:
    """``for``: through what Python knows as Python does it, through the rest as a loop of TensorFlow."""
    items = as_row(items) if is_open(items) else items
    known = _items(items)
    if known is None:
        for number, item in enumerate(items):
            left = stop() if stop is not None else False
            if truth(left) is None:
                if left:
                    return
                body(item)
            else:
                only(number < _MOST_TURNS, "leaves a long loop where the value of an array says")
                branch(negated(left), functools.partial(body, item), lambda: None, reads, sets)
        return
    place = [Array(tf.constant(0, tf.int64), int)]

    def within() -> Any:
        more = place[0].tensor < known.count
        return more if stop is None else tf.logical_and(more, tf.logical_not(_as_tensor(stop())))

    def once() -> None:
        body(known.at(place[0]))
        place[0] = Array(place[0].tensor + 1, int)

    def setting(values: tuple[Any, ...]) -> None:
        place[0] = values[-1]
        sets(values[:-1])

    _carried(within, once, [*reads, lambda: place[0]], setting)


def repeated(test: Callable[[], Any], body: Any, reads: Reads = (), sets: Sets = sets_nothing) -> None:
    """``while``: as Python does it as long as the test is known, then as a loop of TensorFlow."""
    while truth(value := test()) is None:
        if not value:
            return
        body()

    _carried(lambda: _as_tensor(test()), body, reads, sets)


def _as_tensor(value: Any) -> Any:
    known = truth(value)
    return tf.constant(bool(value)) if known is None else known


def _items(items: Any) -> _Items | None:
    """Items of a loop whose length is known only when it runs; ``None`` for a loop of Python's own."""
    if isinstance(items, _Together):
        return items.items
    if isinstance(items, TracedRange):
        return _Items(tf.shape(items.numbers, tf.int64)[0], items.at)
    if isinstance(items, Row):
        return _Items(tf.shape(items.items.tensor, tf.int64)[0], lambda place: items[place])
    if isinstance(items, Array) and items.ndim and isinstance(items.length(0), Array):
        return _Items(items.length(0).tensor, lambda place: items[place])
    if isinstance(items, Texts):
        return _Items(items.length().tensor, lambda place: Text(items.tensor[place.tensor], None, items.kind))
    return None


class _Together(Symbolic):
    """Result of ``enumerate`` and ``zip`` on items whose number is known only when it runs."""

    __slots__ = ("items",)
    what = "what goes together"

    def __init__(self, items: _Items) -> None:
        self.items = items


def enumerated(values: Any, start: Any = 0) -> Any:
    """``enumerate``."""
    known = _items(values)
    if known is None:
        return enumerate(values, start)
    return _Together(_Items(known.count, lambda place: (place + start, known.at(place))))


def zipped(*values: Any, strict: bool = False) -> Any:
    """``zip``: as many as there are of the shortest."""
    known = [_items(one) for one in values]
    if all(one is None for one in known):
        return zip(*values, strict=strict)
    only(not strict, "checks that what goes together is as long")
    made = [one if one is not None else _of_array(value) for one, value in zip(known, values, strict=True)]
    counts = [tf.cast(one.count, tf.int64) for one in made]
    count = counts[0] if len(counts) == 1 else tf.reduce_min(tf.stack(counts))
    return _Together(_Items(count, lambda place: tuple(one.at(place) for one in made)))


def _of_array(value: Any) -> _Items:
    array = lifted(value)
    only(array.ndim > 0, "goes through a number")
    return _Items(tf.shape(array.tensor, tf.int64)[0], lambda place: array[place])


def _carried(test: Callable[[], Any], body: Callable[[], Any], reads: Reads, sets: Sets) -> None:
    """Run a body as long as a test holds, both of them traced.

    Raises:
        CannotTraceError: a variable is of another kind in each turn, or no array.
    """
    before = current(reads)
    only(not any(isinstance(one, dict) for one in before), "changes a dictionary in a loop whose length values decide")
    inner = any(isinstance(one, Grown) for one in before)
    only(not inner, "appends to a list in a loop within another, and values decide how long both are")
    starts = {number: _first_items(one) for number, one in enumerate(before) if isinstance(one, list | Row)}
    kinds = {number: _kind(_element(one)) for number, one in starts.items() if one is not None}
    for _ in range(_MOST_PASSES):
        found, placed = _after_one(test, body, before, kinds, starts, reads, sets)
        if found == kinds:
            break
        kinds = found
    else:
        raise CannotTraceError("changes the kind of a variable in each turn of a loop")
    carried: dict[int, _Variable | _List] = {
        number: _List(kind, before[number], starts[number]) if number in starts else _Variable(kind, before[number])
        for number, kind in kinds.items()
    }
    last: list[Any] = []

    def put(states: Sequence[Sequence[Any]]) -> None:
        values = list(before)
        for (number, one), tensors in zip(carried.items(), states, strict=True):
            values[number] = one.within(*tensors)
        sets(tuple(values))

    def goes_on(*states: Any) -> Any:
        put(states)
        return test()

    def once(*states: Any) -> list[Any]:
        put(states)
        body()
        last[:] = current(reads)
        return [one.tensors(last[number]) for number, one in carried.items()]

    start, shapes = ([getattr(one, name)() for one in carried.values()] for name in ("start", "shapes"))
    ended, values = tf.while_loop(goes_on, once, start, shape_invariants=shapes), list(before)
    for (number, one), tensors in zip(carried.items(), ended, strict=True):
        values[number] = one.after(*tensors, last=last[number], placed=number in placed)
    sets(tuple(values))


@dataclass(frozen=True)
class _Variable:
    """A variable that a loop carries as a tensor, and what it was before."""

    kind: _Kind
    before: Any

    def start(self) -> tuple[Any]:
        return self.tensors(self.before)

    def shapes(self) -> tuple[Any]:
        return (tf.TensorShape(self.kind.shape),)

    def within(self, tensor: Any) -> Array:
        tensor.set_shape(self.kind.shape)
        return self.kind.made(tensor, self.before)

    def tensors(self, now: Any) -> tuple[Any]:
        return (tf.cast(lifted(now).tensor, self.kind.dtype),)

    def after(self, tensor: Any, *, last: Any, placed: bool) -> Any:
        made = self.kind.made(tensor, None)
        made._viewed[0] = isinstance(last, Array) and last._viewed[0]
        if not placed or not isinstance(self.before, Array):
            return made
        same = (self.before.dtype, self.before.ndim) == (made.dtype, made.ndim)
        only(same, "changes in place what it may also replace")
        self.before.tensor = made.tensor  # others may hold it too
        return self.before


@dataclass(frozen=True)
class _List:
    """A list that a loop appends to, carried as an array of items and their number; ``items`` are those before."""

    kind: _Kind
    before: list[Any] | Row
    items: Array | None

    def start(self) -> tuple[Any, Any]:
        count = tf.constant(0) if self.items is None else tf.shape(self.items.tensor)[0]
        shape = tf.TensorShape(self.kind.shape)
        made = tf.TensorArray(self.kind.dtype, count, dynamic_size=True, clear_after_read=False, element_shape=shape)
        return made if self.items is None else made.unstack(tf.cast(self.items.tensor, self.kind.dtype)), count

    def shapes(self) -> tuple[Any, Any]:
        return tf.TensorShape([]), tf.TensorShape([])

    def within(self, values: Any, count: Any) -> Grown:
        return Grown(values, count, self.kind)

    def tensors(self, now: Any) -> tuple[Any, Any]:
        return now.values, now.count

    def after(self, values: Any, count: Any, *, last: Any, placed: bool) -> Any:
        rows = Array(tf.ensure_shape(values.stack(), [None, *self.kind.shape]), self.kind.number)
        if isinstance(self.before, Row):
            self.before.items = rows
        else:
            self.before[:] = [Spread(rows)]  # others may hold it too
        return self.before


def _after_one(
    test: Callable[[], Any],
    body: Callable[[], Any],
    before: tuple[Any, ...],
    kinds: Mapping[int, _Kind],
    lists: Collection[int],
    reads: Reads,
    sets: Sets,
) -> tuple[dict[int, _Kind], set[int]]:
    """The kinds of what a loop carries after one more turn, and the variables whose arrays were changed in place."""
    found = dict(kinds)
    with FuncGraph("apart").as_default():
        values = list(before)
        for number in {*lists, *kinds}:
            kind = kinds.get(number)
            if number in lists:
                values[number] = Grown(None, tf.compat.v1.placeholder(tf.int32, []), kind)
            elif kind is not None:
                values[number] = kind.made(_placeholder(kind), before[number])
        sets(tuple(values))
        try:
            test()
            _, (_, after), placed = leaves_of(body, tuple(values), reads, sets)
        finally:
            sets(before)
        for number, (old, new) in enumerate(zip(values, after, strict=True)):
            if isinstance(old, Grown):
                only(new is old, "replaces a list in a loop whose length is known only when it runs")
                if old.kind is not None:
                    found[number] = old.kind
            elif old is not UNDEFINED and not is_same(old, new):
                held = kinds[number] if number in kinds else _kind(lifted(old))
                found[number] = held.with_other(lifted(new))
    return found, placed


def _first_items(given: list[Any] | Row) -> Array | None:
    """Items of a list before the loop, as an array; ``None`` where it is empty."""
    if isinstance(given, Row):
        return given.items
    return as_row(given).items if given else None


def _element(items: Array) -> Array:
    return Array(items.tensor[0], items.number, scalar=items.ndim == 1)
