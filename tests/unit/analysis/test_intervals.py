"""Sets of moments beside the plain sets of the integers that they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.analysis.readings import (
    Intervals,
    both,
    clip,
    complement,
    covered,
    intervals,
    nothing,
    total,
    union,
    without,
)

rows = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=10)


def of(raw: list[tuple[int, int]]) -> Intervals:
    return intervals([start for start, _ in raw], [start + length for start, length in raw])


def moments(found: Intervals) -> set[int]:
    return {tick for start, end in found.tolist() for tick in range(start, end)}


@given(rows)
def test_a_union_is_sorted_disjoint_and_covers_the_same(raw: list[tuple[int, int]]) -> None:
    found = union(of(raw))
    assert moments(found) == moments(of(raw))
    assert total(found) == len(moments(found))
    assert (found[:, 1] > found[:, 0]).all()
    assert (found[1:, 0] > found[:-1, 1]).all()


@given(rows, rows)
def test_both_and_without_are_those_of_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = union(of(one)), union(of(other))
    assert moments(both(a, b)) == moments(a) & moments(b)
    assert moments(without(a, b)) == moments(a) - moments(b)
    assert total(both(a, b)) + total(without(a, b)) == total(a)
    assert moments(union(a, b)) == moments(a) | moments(b)


@given(rows, st.integers(0, 40), st.integers(0, 40))
def test_a_window_is_what_is_covered_and_what_is_not(raw: list[tuple[int, int]], start: int, length: int) -> None:
    found, end = union(of(raw)), start + length
    inside, outside = moments(clip(found, start, end)), moments(complement(found, start, end))
    assert inside == moments(found) & set(range(start, end))
    assert inside | outside == set(range(start, end))
    assert not inside & outside


@given(rows, rows)
def test_how_much_of_each_window_is_covered(raw: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    found = union(of(raw))
    expected = [len(moments(found) & set(range(start, start + length))) for start, length in windows]
    assert covered(found, of(windows)).tolist() == expected


@pytest.mark.parametrize(
    "found", [union(), union(nothing()), both(nothing(), of([(0, 5)])), without(nothing(), nothing())]
)
def test_nothing_stays_nothing(found: Intervals) -> None:
    assert found.shape == (0, 2)
    assert total(found) == 0


def test_times_of_a_long_profile_are_exact() -> None:
    start = 9 * 10**18
    found = union(intervals([start, start + 1], [start + 3, start + 10]))
    assert found.tolist() == [[start, start + 10]]
    assert np.issubdtype(found.dtype, np.int64)
