from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xttsbench.worker.xplane import Interval, covered_s, idle_s

PS = 1e-12


def at(*spans: tuple[int, int]) -> list[Interval]:
    return [Interval("kernel", start, end) for start, end in spans]


@pytest.mark.parametrize(
    ("spans", "covered", "idle"),
    [
        ([], 0, 0),
        ([(5, 15)], 10, 0),
        ([(0, 10), (20, 25)], 15, 10),
        ([(20, 25), (0, 10)], 15, 10),
        ([(0, 10), (5, 20)], 20, 0),
        ([(0, 100), (10, 20), (30, 40)], 100, 0),
        ([(0, 100), (10, 20), (120, 130)], 110, 20),
        ([(0, 10), (10, 20)], 20, 0),
        ([(0, 10), (0, 10), (0, 10)], 10, 0),
        ([(3, 3), (7, 7)], 0, 4),
        ([(10**12, 3 * 10**12)], 2 * 10**12, 0),
    ],
)
def test_overlaps_count_once_and_gaps_are_idle(spans: list[tuple[int, int]], covered: int, idle: int) -> None:
    assert covered_s(at(*spans)) == pytest.approx(covered * PS)
    assert idle_s(at(*spans)) == pytest.approx(idle * PS, abs=1e-18)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=12))
def test_they_are_the_picoseconds_in_and_between_the_intervals(raw: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in raw]
    busy = {tick for start, end in spans for tick in range(start, end)}
    whole = max(end for _, end in spans) - min(start for start, _ in spans)
    assert covered_s(at(*spans)) == pytest.approx(len(busy) * PS)
    assert idle_s(at(*spans)) == pytest.approx((whole - len(busy)) * PS, abs=1e-18)
