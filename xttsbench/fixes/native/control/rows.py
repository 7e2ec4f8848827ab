"""Loops over the letters, words or numbers of what is known only when it runs, computed for all items at once.

One object stands for each item of a list: what is computed with it is computed for all. A table that is asked for a
letter becomes an array of numbers, one for each letter's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Literal

import numpy as np
import tensorflow as tf
from numpy.lib.mixins import NDArrayOperatorsMixin
from tensorflow.python.framework.func_graph import FuncGraph

from xttsbench.fixes.native.arrays import Array, CannotTraceError, Spread, Symbolic, lifted, only, ufunc
from xttsbench.fixes.native.arrays.indexing import AT_ONCE, item
from xttsbench.fixes.native.text import Text, Texts
from xttsbench.fixes.native.written.origins import Origins

_MOST_CODES: Final = 70_000
_MOST_WORDS: Final = 2_000
_LARGEST: Final = 1_000_000
WANTED: Final[ContextVar[Any]] = ContextVar("WANTED", default=None)
"""For which items a value is asked for: of the others a table need not hold it."""


class Each(NDArrayOperatorsMixin, Symbolic):
    """Placeholder of each item of a list.

    Attributes:
        kind: letters are held as their codes, words as text, numbers as they are.
        values: all of them.
    """

    __slots__ = ("kind", "number", "values")
    what = "each item of a list"

    def __init__(self, kind: Literal["letter", "word", "number"], values: Any, number: type | None = None) -> None:
        self.kind, self.values, self.number = kind, values, number

    @classmethod
    def of(cls, value: Any) -> Each:
        """The same for each item."""
        if isinstance(value, str):
            return cls("word", tf.constant(value))
        array = lifted(value)
        only(not array.ndim, "makes an array for each item of a list")
        return cls("number", array.tensor, array.number)

    @property
    def array(self) -> Array:
        """Numbers, as an array."""
        only(self.kind == "number", f"computes with each {self.kind} of a text")
        return Array(self.values, self.number)

    def __array_ufunc__(self, function: Any, _method: str, *inputs: Any, **_: Any) -> Each:
        known = all(isinstance(one, Each | int | float) or (isinstance(one, Array) and not one.ndim) for one in inputs)
        only(known, f"computes with {self.what} and an array")
        found = ufunc(function, *(one.array if isinstance(one, Each) else one for one in inputs))
        return Each("number", found.tensor, found.number)

    def __eq__(self, other: Any) -> Any:
        if self.kind == "number":
            return np.equal(self, other)
        only(isinstance(other, str | bytes), f"compares each {self.kind} of a text with something else")
        if self.kind == "word":
            return Each("number", tf.equal(self.values, other))
        only(isinstance(other, str), "compares letters with bytes")
        return Each("number", tf.equal(self.values, ord(other) if len(other) == 1 else -1))

    def __ne__(self, other: Any) -> Any:
        return Each("number", tf.logical_not((self == other).values))

    __hash__ = None  # type: ignore[assignment]


class Row(Symbolic):
    """A list of Python's, of numbers or of arrays that are alike, whose length is known only when it runs."""

    __slots__ = ("items",)
    what = "a list"

    def __init__(self, items: Array) -> None:
        self.items = items

    def lifted(self) -> Array:
        """Array that ``numpy.array`` makes of the row."""
        return Array(self.items.tensor)

    def length(self) -> Any:
        """Number of items."""
        return self.items.length(0)

    def append(self, value: Any) -> None:
        """One more, at the end."""
        self.extend([value])

    def extend(self, values: Any) -> None:
        """More, at the end."""
        self.items = (self + values).items

    def __add__(self, other: Any) -> Row:
        return as_row([*spread(self), *spread(other)])

    def __radd__(self, other: Any) -> Row:
        return as_row([*spread(other), *spread(self)])

    def __iadd__(self, other: Any) -> Row:
        self.extend(other)
        return self

    def __getitem__(self, key: Any) -> Any:
        found = item(self.items, key)
        return Row(Array(found.tensor, self.items.number)) if isinstance(key, slice) else found


def spread(values: Any) -> list[Any]:
    """Items for ``list.extend``, from a list."""
    only(isinstance(values, Row | list | tuple), "joins a list with something else")
    return [Spread(values.items)] if isinstance(values, Row) else list(values)


def as_row(given: Sequence[Any]) -> Row:
    """A list of Python's, of which a part may be known only when it runs."""
    numbers = {lifted(one).number for one in given}
    return Row(Array(lifted(list(given)).tensor, numbers.pop() if len(numbers) == 1 else None))


def is_open(value: Any) -> bool:
    """Whether a list of Python's holds items whose number is known only when it runs."""
    return isinstance(value, list) and any(isinstance(one, Spread) for one in value)


def repeated(given: list[Any], times: Array) -> Row:
    """``given * times``."""
    items = as_row(given).items
    count = tf.maximum(tf.cast(times.tensor, tf.int32), 0)
    return Row(Array(tf.tile(items.tensor, tf.concat([[count], tf.ones([items.ndim - 1], tf.int32)], 0)), items.number))


class TracedRange(Symbolic):
    """``range`` of whole numbers that are known only when it runs."""

    __slots__ = ("first", "numbers", "step")
    what = "a range"

    def __init__(self, *given: Any) -> None:
        first, last, step = (0, *given, 1) if len(given) == 1 else (*given, 1)[:3]
        self.first, self.step = first, step
        self.numbers = tf.range(*(tf.cast(lifted(one).tensor, tf.int64) for one in (first, last, step)))

    def lifted(self) -> Array:
        """The numbers."""
        return Array(self.numbers)

    def at(self, place: Array) -> Any:
        """The number at a place."""
        far = place if isinstance(self.step, int) and self.step == 1 else place * self.step
        return far if isinstance(self.first, int) and not self.first else far + self.first

    def listed(self, element: Callable[[Any], Any], test: Callable[[Any], Any] | None = None) -> Row:
        """Results of a function for each number that a test lets through: at once where TensorFlow knows how."""
        numbers = self.numbers
        if test is not None:
            kept = _for_each(numbers, lambda number: Array(tf.cast(lifted(test(number)).tensor, tf.bool)))
            numbers = tf.boolean_mask(numbers, kept.tensor)
        return Row(_for_each(numbers, element))


def _for_each(numbers: Any, element: Callable[[Any], Any]) -> Array:
    """Results of a function for each number, one behind the other in an array."""
    kinds: list[Array] = []

    def one(number: Any) -> Any:
        kinds.append(lifted(element(Array(number, int))))
        return kinds[-1].tensor

    token = AT_ONCE.set(True)
    try:
        found = tf.vectorized_map(one, numbers, fallback_to_while_loop=False)
    except (ValueError, NotImplementedError, CannotTraceError):
        AT_ONCE.set(False)
        with FuncGraph("apart").as_default():
            kind = one(tf.compat.v1.placeholder(tf.int64, [])).dtype
        found = tf.map_fn(one, numbers, fn_output_signature=kind)
    finally:
        AT_ONCE.reset(token)
    return Array(found, kinds[-1].number)


def listed(items: Any, element: Callable[[Any], Any], test: Callable[[Any], Any] | None = None) -> Any:
    """``[element(one) for one in items if test(one)]``."""
    if isinstance(items, TracedRange):
        return items.listed(element, test)
    if is_open(items):
        items = as_row(items)
    each = _each(items)
    if each is None:
        return [element(one) for one in items if test is None or test(one)]
    if test is not None:
        kept = test(each)
        only(isinstance(kept, Each) and kept.kind == "number", "leaves out items by what is not theirs")
        each = Each(each.kind, tf.gather(each.values, tf.where(tf.cast(kept.values, tf.bool))[:, 0]), each.number)
    found = element(each)
    if isinstance(found, Each):
        if found.kind != "number":
            return Texts(as_words(found), None, str)
        return Row(Array(found.values, found.number))
    one = Each.of(found)
    return Row(Array(tf.fill([tf.shape(each.values)[0]], one.array.tensor), one.number))


def _each(items: Any) -> Each | None:
    """Placeholder of each item of a traced value; ``None`` for a loop of Python's own."""
    if isinstance(items, Text):
        if items.kind is bytes:
            return Each("number", tf.cast(tf.io.decode_raw(items.tensor, tf.uint8), tf.int64), int)
        return Each("letter", _codes(items.tensor))
    if isinstance(items, Texts):
        return Each("word", items.tensor)
    if isinstance(items, Row):
        return Each("number", items.items.tensor, items.items.number) if items.items.ndim == 1 else None
    if isinstance(items, Array) and items.ndim == 1 and isinstance(items.length(0), Array):
        return Each("number", items.tensor)
    return None


def _codes(text: Any) -> Any:
    """The codes of a text's letters; where all are ASCII's they are its bytes, which is read faster."""
    raw = tf.io.decode_raw(text, tf.uint8)
    plain, other = (lambda: tf.cast(raw, tf.int32)), (lambda: tf.strings.unicode_decode(text, "UTF-8", "strict"))
    return tf.cond(tf.reduce_all(raw < 128), plain, other)


def as_words(value: Each) -> Any:
    """Text for each item: a letter becomes a text of its own."""
    if value.kind == "word":
        return value.values
    return tf.strings.unicode_encode(tf.expand_dims(value.values, -1), "UTF-8")


def code_of(value: Any) -> Any:
    """``ord``."""
    only(isinstance(value, Each) and value.kind == "letter", "takes the code of what is no letter of a text")
    return Each("number", tf.cast(value.values, tf.int64), int)


def converted(kind: type) -> Callable[[Each], Each]:
    """``int`` or ``float`` of each item."""

    def of(value: Each) -> Each:
        if value.kind == "word":
            return Each("number", tf.strings.to_number(value.values, tf.int64 if kind is int else tf.float64), kind)
        return Each("number", tf.cast(value.array.tensor, tf.int64 if kind is int else tf.float64), kind)

    return of


_MISSING: Final = object()  # no value for what a table does not hold: an error, as it is to Python


def looked_up(origins: Origins, table: Any, key: Any, default: Any = _MISSING) -> Any:
    """Values of a dictionary for a text, or for each letter or word of one.

    Raises:
        CannotTraceError: it holds something else than numbers, or too many.
    """
    only(isinstance(table, Mapping), f"looks up text in a {type(table).__name__}")
    name = origins.text(table)
    fallback = None if default is _MISSING or isinstance(default, Symbolic) else repr(default)
    text = f"{name}.get({{}}, {fallback or -1})"
    return _found(origins, dict(table), key, default, text if name is not None else None, name)


def place_in(origins: Origins, table: Any, key: Any, *, strict: bool) -> Any:
    """``table.index(letter)``, or ``find``, of a string or a list."""
    only(isinstance(table, str | list | tuple), f"looks up text in a {type(table).__name__}")
    known: dict[Any, int] = {}
    for number, one in enumerate(table):
        known.setdefault(one, number)
    name = origins.text(table)
    whole = f"{{{{one: number for number, one in reversed(list(enumerate({name})))}}}}"
    text = f"{whole}.get({{}}, -1)" if name is not None else None
    return _found(origins, known, key, _MISSING if strict else -1, text, None)


def is_in(origins: Origins, key: Any, table: Any) -> Any:
    """``key in table``."""
    if isinstance(table, Text):
        only(not isinstance(key, Text), "looks for text in text")
        only(isinstance(key, str | bytes), "looks for something else in text")
        return table._matches(key, lambda pattern: f".*{pattern}.*")
    only(isinstance(table, Mapping | list | tuple | set | frozenset | str), "looks for text in an object")
    only(not isinstance(table, str) or (isinstance(key, Each) and key.kind == "letter"), "looks for text in text")
    name = origins.text(table)
    return _found(origins, dict.fromkeys(table, True), key, False, f"{{}} in {name}" if name else None, None)


def _found(origins: Origins, table: dict[Any, Any], key: Any, default: Any, text: str | None, name: str | None) -> Any:
    if isinstance(key, Each) and key.kind != "number" and any(isinstance(one, str) for one in table.values()):
        return _as_text(table, key, default)
    if isinstance(key, Each) and key.kind == "letter":
        return _of_letters(origins, table, key, default, text)
    if isinstance(key, Each):
        only(key.kind == "word", "looks up each number of a list")
        return Each("number", *_of_words(origins, table, key.values, str, default, name))
    if isinstance(key, Text):
        tensor, number = _of_words(origins, table, key.tensor, key.kind, default, name)
        found = Array(tensor, number, scalar=True)
        if key.seen is not None and default is _MISSING:
            found.seen = tuple(table[one] for one in key.seen)
        return found
    raise CannotTraceError("looks up the value of an array in a table of Python's")


def _as_text(table: dict[Any, Any], key: Each, default: Any) -> Each:
    """The text that a table holds for each letter or word; the default may be the letter or word itself."""
    only(all(isinstance(one, str) for one in (*table, *table.values())), "looks up what is not text alone")
    only(0 < len(table) <= _MOST_WORDS and default is not _MISSING, "looks up text that a table may not hold")
    words = as_words(key)
    fallback = as_words(default) if isinstance(default, Each) else tf.constant(default)
    same = tf.equal(words[..., None], tf.constant([one.encode() for one in table]))
    found = tf.gather(tf.constant([one.encode() for one in table.values()]), tf.argmax(tf.cast(same, tf.int32), -1))
    return Each("word", tf.where(tf.reduce_any(same, -1), found, fallback))


def _of_letters(origins: Origins, table: dict[Any, Any], key: Each, default: Any, text: str | None) -> Each:
    known = {ord(one): value for one, value in table.items() if isinstance(one, str) and len(one) == 1}
    size = max(known, default=0) + 1
    only(size <= _MOST_CODES, "looks up letters with too large codes")
    strict = default is _MISSING
    numbers, number = _numbers([*known.values(), -1 if strict else default], strict=strict)
    # One place more, which letters behind the table are given; a strict table fails for them.
    row = np.full(size + (not strict), numbers[-1], numbers.dtype)
    row[list(known)] = numbers[:-1]
    if text is not None:
        origins.note(row, f"[{text.format('chr(code)')} for code in range({len(row)})]")
    codes = key.values if strict else tf.minimum(key.values, size)
    if strict and WANTED.get() is not None:
        codes = tf.where(WANTED.get(), codes, next(iter(known)))
    found = tf.gather(tf.constant(row), codes)
    return Each("number", _held(found, row) if strict else found, number)


def _of_words(
    origins: Origins, table: dict[Any, Any], words: Any, kind: type, default: Any, name: str | None
) -> tuple[Any, type | None]:
    known: list[Any] = [one for one in table if isinstance(one, kind)]
    only(0 < len(known) <= _MOST_WORDS, "looks up words in a table without them, or with too many")
    strict = default is _MISSING
    numbers, number = _numbers([*(table[one] for one in known), -1 if strict else default], strict=strict)
    names = np.array([one if kind is bytes else one.encode() for one in known], object)
    if name is not None and len(known) == len(table):
        origins.note(names, f"list({name})")
        origins.note(numbers, f"[*{name}.values(), {numbers[-1].item()!r}]")
    same = tf.equal(words[..., None], tf.constant(names))
    place = tf.where(tf.reduce_any(same, -1), tf.argmax(tf.cast(same, tf.int32), -1), len(known))
    found = tf.gather(tf.constant(numbers), place)
    return (_held(found, numbers) if strict else found), number


def _numbers(values: list[Any], *, strict: bool) -> tuple[np.ndarray[Any, Any], type | None]:
    kinds = {type(one) for one in values}
    only(kinds <= {int, float, bool, np.int32, np.int64}, "looks up what is no number")
    only(len(kinds) == 1 or kinds == {int, float}, "looks up numbers of several types")
    whole = kinds <= {int, np.int32, np.int64}
    only(not strict or (whole and all(-1 <= one <= _LARGEST for one in values)), "looks up what is no small number")
    dtype = np.bool_ if kinds == {bool} else np.int64 if whole else np.float64
    return np.array(values, dtype), int if whole else float if kinds != {bool} else None


def _held(found: Any, row: np.ndarray[Any, Any]) -> Any:
    """Numbers of a table; -1, for what it does not hold, is an error."""
    if WANTED.get() is not None:
        found = tf.where(WANTED.get(), found, tf.zeros([], found.dtype))
    return tf.gather(tf.range(int(row.max()) + 1, dtype=tf.int64), found)
