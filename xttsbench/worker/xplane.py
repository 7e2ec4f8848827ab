"""Arithmetic on intervals of a trace: time covered, and gaps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """An event of a trace, in picoseconds."""

    name: str
    start_ps: int
    end_ps: int


def covered_s(intervals: Sequence[Interval]) -> float:
    """Seconds covered by at least one of the intervals; overlaps count once."""
    covered, reached = 0, None
    for _, start, end in sorted(intervals, key=lambda interval: interval.start_ps):
        begin = start if reached is None else max(start, reached)
        covered += max(end - begin, 0)
        reached = end if reached is None else max(reached, end)
    return covered / 1e12


def idle_s(intervals: Sequence[Interval]) -> float:
    """Seconds between the first start and the last end that no interval covers."""
    if not intervals:
        return 0.0
    first = min(interval.start_ps for interval in intervals)
    last = max(interval.end_ps for interval in intervals)
    return (last - first) / 1e12 - covered_s(intervals)
