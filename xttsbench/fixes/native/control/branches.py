"""Branches that the values of arrays decide, as conditions of TensorFlow; ``not``, ``and`` and ``or`` as ops.

Both ways of a branch are traced, first apart, to see what they give: a variable must be of the same dtype and rank
either way, as NumPy's arrays need not be. A way that only raises becomes a check.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from xttsbench.fixes.native.arrays import Array, CannotTraceError, Symbolic, lifted, only, ufunc
from xttsbench.fixes.native.control.rows import WANTED, Each, Row, as_words
from xttsbench.fixes.native.text import Text, Texts

Reads = Sequence[Callable[[], Any]]
Sets = Callable[[tuple[Any, ...]], None]


def sets_nothing(_values: tuple[Any, ...]) -> None:
    """No-op setter, of a branch or the body of a loop that assigns no variable."""


class _Undefined(Symbolic):
    """The value of a variable that has none."""

    __slots__ = ()
    what = "a variable that only one way of a branch, or a loop that may not run, sets"

    def __getattr__(self, name: str) -> Any:
        raise CannotTraceError(f"uses {self.what}")


UNDEFINED: Final = _Undefined()


def truth(value: Any) -> Any:
    """The truth of what is traced, as a tensor; ``None`` where it is known."""
    if isinstance(value, Each):
        return tf.cast(value.array.tensor, tf.bool)
    if isinstance(value, Text | Texts | Row):  # whether there is anything in it
        value = ufunc(np.greater, value.length(), 0)
    if isinstance(value, tf.Tensor) and not hasattr(value, "numpy"):
        value = Array(value)
    if not isinstance(value, Array):
        return None
    only(not value.ndim, "decides by an array of more than one value")
    return tf.cast(value.tensor, tf.bool)


def negated(value: Any) -> Any:
    """``not value``."""
    known = truth(value)
    return not value if known is None else _alike(value, tf.logical_not(known))


def both(*later: Callable[[], Any]) -> Any:
    """``a and b``."""
    return _joined(later, tf.logical_and, True)


def either(*later: Callable[[], Any]) -> Any:
    """``a or b``."""
    return _joined(later, tf.logical_or, False)


def _joined(later: Sequence[Callable[[], Any]], operation: Any, goes_on: bool) -> Any:
    found: Any = None
    value: Any = goes_on
    for one in later:
        if found is not None and _may_fail(one):
            value = branch(Array(found), *((one, _known(False)) if goes_on else (_known(True), one)))
            found = truth(value)
            result = value
            continue
        value = one()
        known = truth(value)
        if known is not None:
            found = known if found is None else operation(found, known)
            result = _alike(value, found)
        elif bool(value) != goes_on:
            return value
    return value if found is None else result


def _known(value: bool) -> Callable[[], Any]:
    return lambda: Array(tf.constant(value), scalar=True)


def _may_fail(function: Callable[[], Any]) -> bool:
    """Whether a value cannot be had for nothing: it is at a place in an array, or read."""
    graph = FuncGraph("apart")
    with graph.as_default():
        value = function()
    taking = ("StridedSlice", "GatherV2", "ReadFile", "Substr", "StringToNumber", "EnsureShape")
    return isinstance(value, Array) and any(
        op.type in taking and (op.type != "StridedSlice" or op.get_attr("shrink_axis_mask"))
        for op in graph.get_operations()
    )


def _alike(value: Any, tensor: Any) -> Any:
    return Each("number", tensor) if isinstance(value, Each) else Array(tensor, scalar=True)


def branch(test: Any, then: Any, otherwise: Any, reads: Reads = (), sets: Sets = sets_nothing) -> Any:
    """One of two functions, by a value that may be that of an array; what it returns.

    Raises:
        CannotTraceError: what they return or set is not alike.
    """
    known = truth(test)
    if known is None:
        return then() if test else otherwise()
    if isinstance(test, Each):
        return _of_each(test, then, otherwise, reads)
    before = current(reads)
    for one in before:
        changes = isinstance(one, list | dict) or getattr(one, "what", None) == Row.what
        only(not changes, "changes a list or a dictionary by the value of an array")
    ways = [_Way(one, before, reads, sets) for one in (then, otherwise)]
    first, second = (way.raised for way in ways)
    if first is not None and second is not None:
        raise first
    if (raised := second if first is None else first) is not None:
        tf.debugging.Assert(known if first is None else tf.logical_not(known), [f"{type(raised).__name__}: {raised}"])
        return then() if first is None else otherwise()
    same = _shape(ways[0].structure) == _shape(ways[1].structure)
    only(same, "gives results of another number in each way of a branch")
    merged = [Merged.of(*pair) for pair in zip(ways[0].leaves, ways[1].leaves, strict=True)]
    changing = [number for number, one in enumerate(merged) if one.dtype is not None]

    def run(function: Any) -> Callable[[], list[Any]]:
        def inner() -> list[Any]:
            leaves = leaves_of(function, before, reads, sets)[0]
            return [tf.cast(lifted(leaves[number]).tensor, merged[number].dtype) for number in changing]

        return inner

    given = tf.cond(known, run(then), run(otherwise)) if changing else []
    tensors = dict(zip(changing, given if isinstance(given, list | tuple) else [given], strict=True))
    for number in ways[0].placed ^ ways[1].placed:  # the other way leaves the array as it is, or replaces it
        other = ways[1 if number in ways[0].placed else 0]
        only(other.structure[1][number] is before[number], "changes in place what it may also replace")
    return _settled(merged, tensors, ways[0].structure, before, sets, ways[0].placed | ways[1].placed)


def _of_each(test: Each, then: Any, otherwise: Any, reads: Reads) -> Each:
    """One of two values for each item of a list."""
    only(not reads, "assigns by each item of a list")
    known = tf.cast(test.array.tensor, tf.bool)
    made = []
    for way, function in ((known, then), (tf.logical_not(known), otherwise)):
        token = WANTED.set(way if WANTED.get() is None else tf.logical_and(WANTED.get(), way))
        try:
            found = function()
        finally:
            WANTED.reset(token)
        one = found if isinstance(found, Each) else Each.of(found)
        made.append(Each(one.kind, tf.broadcast_to(one.values, tf.shape(known)), one.number))
    first, second = made
    only((first.kind == "number") == (second.kind == "number"), "gives numbers or text by each item of a list")
    if first.kind != "number":
        return Each("word", tf.where(known, as_words(first), as_words(second)))
    merged = Merged.of(first.array, second.array)
    values = [tf.cast(one.values, merged.dtype) for one in made]
    return Each("number", tf.where(known, *values), merged.number)


class _Way:
    """Branch traced apart: its result and the variables that it sets, as leaves of one structure."""

    def __init__(self, function: Any, before: tuple[Any, ...], reads: Reads, sets: Sets) -> None:
        self.raised: Exception | None = None
        self.leaves: list[Any] = []
        self.structure: Any = None
        self.placed: set[int] = set()
        with FuncGraph("apart").as_default():
            try:
                self.leaves, self.structure, self.placed = leaves_of(function, before, reads, sets)
            except Exception as error:
                if not _is_stated(error):
                    raise
                self.raised = error  # the user's own, which only this way raises
        sets(before)


def _is_stated(error: Exception) -> bool:
    """Whether the user's code says ``raise`` or ``assert`` where an error comes from."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return any((one.line or "").startswith(("raise", "assert")) for one in last)


def leaves_of(function: Any, before: tuple[Any, ...], reads: Reads, sets: Sets) -> tuple[list[Any], Any, set[int]]:
    """Leaves of a function's result and variables, their structure, and numbers of arrays changed in place."""
    held: dict[int, Any] = {}
    copies = tuple(_copy(one, held) for one in before)
    sets(copies)
    result = function()
    kept, placed = [], set()
    for number, (old, copy, new) in enumerate(zip(before, copies, current(reads), strict=True)):
        if new is copy and isinstance(new, Array) and new.tensor is not old.tensor:
            placed.add(number)
            kept.append(new)
        else:
            kept.append(old if new is copy else new)
    structure = (result, tuple(kept))
    return _flat(structure), structure, placed


def _copy(value: Any, held: dict[int, Any]) -> Any:
    """A copy of what may be changed in place; the same of the same."""
    if isinstance(value, Array) and not value.scalar:
        if id(value) not in held:
            held[id(value)] = Array(value.tensor)
            held[id(value)]._viewed = value._viewed
        return held[id(value)]
    return value


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for one in value for leaf in _flat(one)]
    return [value]


def _packed(structure: Any, leaves: list[Any]) -> Any:
    """The structure with other leaves, which are used up."""
    if isinstance(structure, list | tuple):
        parts = [_packed(one, leaves) for one in structure]
        return parts if isinstance(structure, list) else tuple(parts)
    return leaves.pop(0)


def _shape(value: Any) -> Any:
    return [_shape(one) for one in value] if isinstance(value, list | tuple) else 0


def is_same(one: Any, other: Any) -> bool:
    """Whether a variable holds the same either way, as far as that is known."""
    equal = type(one) is type(other) and isinstance(one, str | int | float | bool) and one == other
    return one is other or equal


@dataclass(frozen=True)
class Merged:
    """A leaf of both ways: a value that is the same in both, or of what kind an array is."""

    value: Any = None
    dtype: np.dtype[Any] | None = None
    number: type | None = None
    scalar: bool = False

    @classmethod
    def of(cls, one: Any, other: Any) -> Merged:
        """Merges a value of one way and of the other."""
        if is_same(one, other):
            return cls(one)
        if one is UNDEFINED or other is UNDEFINED:
            return cls(UNDEFINED)
        first, second = _as_array(one), _as_array(other)
        if first is None or second is None:
            raise CannotTraceError(f"is a {type(one).__name__} or a {type(other).__name__} by the value of an array")
        only(first.ndim == second.ndim, "has another number of axes by the value of an array")
        dtype = first.dtype if second.number is not None and first.number is None else second.dtype
        weak = first.number is not None or second.number is not None
        only(first.dtype == second.dtype or (weak and dtype.kind == "f"), "has another dtype by the value of an array")
        number = first.number if first.number is second.number else None
        return cls(None, dtype, number, first.scalar and second.scalar)


def _as_array(value: Any) -> Array | None:
    try:
        return lifted(value)
    except CannotTraceError:
        return None


def _settled(
    merged: Sequence[Merged], tensors: dict[int, Any], structure: Any, before: tuple[Any, ...], sets: Sets,
    placed: set[int],
) -> Any:  # fmt: skip
    """The result, with the variables set to what comes out of both ways."""
    leaves = [
        one.value if one.dtype is None else Array(tensors[number], one.number, scalar=one.scalar)
        for number, one in enumerate(merged)
    ]
    result, after = _packed(structure, leaves)
    values = []
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if number in placed and new is not old:
            only((old.dtype, old.ndim) == (new.dtype, new.ndim), "changes in place what it may also replace")
            old.tensor = new.tensor  # others may hold it too
        values.append(old if number in placed else new)
    sets(tuple(values))
    return result


def current(reads: Reads) -> tuple[Any, ...]:
    """Values of variables now; ``UNDEFINED`` for one without a value."""
    found = []
    for read in reads:
        try:
            found.append(read())
        except NameError:
            found.append(UNDEFINED)
    return tuple(found)
