"""Sets of moments as arrays of intervals: what is covered, by what of several, and what is left.

Intervals are half open, ``[start, end)``, rows of an integer array of shape ``(n, 2)``. A *set* is what
:func:`union` returns: sorted, disjoint, not adjacent, none empty. Pure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[np.int64]


def intervals(starts: Any, ends: Any) -> Intervals:
    """Rows from two sequences of equal length."""
    return np.column_stack([np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)])


def nothing() -> Intervals:
    """The empty set."""
    return np.empty((0, 2), dtype=np.int64)


def union(*parts: Intervals) -> Intervals:
    """The set of all moments that at least one interval covers, whatever the order and the overlap of the rows."""
    rows = np.concatenate([nothing(), *parts])
    rows = rows[rows[:, 1] > rows[:, 0]]
    if not len(rows):
        return nothing()
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    reached = np.maximum.accumulate(rows[:, 1])
    begins = np.concatenate([[True], rows[1:, 0] > reached[:-1]])
    ends = np.concatenate([begins[1:], [True]])
    return np.column_stack([rows[begins, 0], reached[ends]])


def total(found: Intervals) -> int:
    """Length of a set."""
    return int((found[:, 1] - found[:, 0]).sum())


def complement(found: Intervals, start: int, end: int) -> Intervals:
    """The moments of ``[start, end)`` that a set does not cover."""
    inner = clip(found, start, end)
    edges = np.concatenate([[start], inner.ravel(), [end]]).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def clip(found: Intervals, start: int, end: int) -> Intervals:
    """The part of a set that is in ``[start, end)``."""
    inner = np.clip(found, start, end)
    return inner[inner[:, 1] > inner[:, 0]]


def both(one: Intervals, other: Intervals) -> Intervals:
    """The moments that are in both sets."""
    if not len(one) or not len(other):
        return nothing()
    start, end = int(min(one[0, 0], other[0, 0])), int(max(one[-1, 1], other[-1, 1]))
    return complement(union(complement(one, start, end), complement(other, start, end)), start, end)


def without(one: Intervals, other: Intervals) -> Intervals:
    """The moments of the first set that are not in the second."""
    if not len(one):
        return one
    return both(one, complement(other, int(one[0, 0]), int(one[-1, 1])))


def covered(found: Intervals, windows: Intervals) -> npt.NDArray[np.int64]:
    """How much of each window a set covers, shape ``(len(windows),)``; windows may overlap."""
    if not len(found):
        return np.zeros(len(windows), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(found[:, 1] - found[:, 0])])

    def up_to(moments: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        at = np.searchsorted(found[:, 0], moments, side="right")
        inside = np.where(at > 0, np.minimum(moments, found[at - 1, 1]) - found[at - 1, 0], 0)
        done: npt.NDArray[np.int64] = before[np.maximum(at - 1, 0)] + np.maximum(inside, 0)
        return done

    return up_to(windows[:, 1]) - up_to(windows[:, 0])
