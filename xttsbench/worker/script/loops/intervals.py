"""Waits and ends that were stamped inside graphs, cut into the steps that they belong to. Pure."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class GraphTimestamp(NamedTuple):
    """One execution of a stamped place in a graph.

    Attributes:
        began_ns: before the element was asked for; the end of a step where the place marks one.
        ended_ns: when it was there.
        batch_size: its first dimension; 0 where unknown, below 0 where there was no element any more.
        elements: its numbers in all; 0 where unknown.
    """

    began_ns: int
    ended_ns: int
    batch_size: int = 0
    elements: int = 0


class StepInterval(NamedTuple):
    """One step: from the end of the one before to its own, and the part of it in which it waited for data."""

    began_ns: int
    ended_ns: int
    wait_ns: int
    batch_size: int = 0
    elements: int = 0


def covered_ns(stamps: Sequence[GraphTimestamp], began_ns: int, ended_ns: int) -> int:
    """Length of the union of the stamps within a window: replicas wait at the same time, which counts once."""
    total, reached = 0, began_ns
    for stamp in sorted(stamps, key=lambda one: one.began_ns):
        begin, end = max(stamp.began_ns, reached), min(stamp.ended_ns, ended_ns)
        if end > begin:
            total += end - begin
            reached = end
    return total


def steps_of_call(
    began_ns: int, ended_ns: int, waits: Sequence[GraphTimestamp], ends: Sequence[GraphTimestamp]
) -> list[StepInterval]:
    """The steps of one call from Python, which may be a group of them.

    A graph may ask for the next element while the step before still computes. Only what remains after that step's end
    is a wait, which clipping to the step's own window gives.

    Args:
        began_ns: end of the call before.
        ended_ns: end of this call, work after it included.
        waits: stamps of the requests for data, of all replicas; those outside of the window are ignored.
        ends: stamps of the ends of steps; none, or one, means that the call is one step.
    """
    waits = sorted((one for one in waits if began_ns <= one.ended_ns <= ended_ns), key=lambda one: one.ended_ns)
    given = [one for one in waits if one.batch_size >= 0]
    # Requests that gave nothing (an epoch's end, a new iterator) belong to a step only where there is but one.
    others = [one for one in waits if one.batch_size < 0]
    inner = sorted(one.ended_ns for one in ends if began_ns < one.ended_ns <= ended_ns)
    bounds = [began_ns, *inner[:-1], ended_ns]
    count = len(bounds) - 1
    pieces = []
    for index, (begin, end) in enumerate(itertools.pairwise(bounds)):
        own = given[index * len(given) // count : (index + 1) * len(given) // count]
        pieces.append(
            StepInterval(
                begin,
                end,
                covered_ns([*own, *(others if count == 1 else ())], begin, end),
                sum(one.batch_size for one in own),
                sum(one.elements for one in own),
            )
        )
    return pieces


class Calls:
    """Calls from Python that have returned.

    Args:
        calls: begin and end of each, in order; none begins before the one before it has ended.
    """

    def __init__(self, calls: Sequence[tuple[int, int]]) -> None:
        self._begins, self._ends = [begin for begin, _ in calls], [end for _, end in calls]

    def end_of(self, at_ns: int) -> int | None:
        """When the call ended that ran at that time; ``None`` where none did, or it has not ended."""
        index = bisect_right(self._begins, at_ns) - 1
        return self._ends[index] if index >= 0 and at_ns <= self._ends[index] else None

    def any_ended(self, first_ns: int, last_ns: int) -> bool:
        """Whether one ended between these times."""
        index = bisect_left(self._ends, first_ns)
        return index < len(self._ends) and self._ends[index] <= last_ns


def steps_of_requests(requests: Sequence[GraphTimestamp], calls: Calls) -> list[StepInterval]:
    """The steps of a loop inside a graph: each from one request for data to the next one within the same call.

    Args:
        requests: stamps of the requests, in order.
        calls: the last step of a call ends with it.

    Returns:
        One piece for each request whose end is known: a later request came, or its call has returned.
    """
    pieces = []
    for index, one in enumerate(requests):
        if one.batch_size < 0:  # the end of the data, not a step
            continue
        end = calls.end_of(one.began_ns)
        if index + 1 < len(requests):
            following = requests[index + 1].began_ns
            end = following if end is None else min(end, following)
        if end is not None:
            end = max(end, one.ended_ns)
            pieces.append(StepInterval(one.began_ns, end, one.ended_ns - one.began_ns, one.batch_size, one.elements))
    return pieces


def merged(replicas: Sequence[Sequence[GraphTimestamp]]) -> list[GraphTimestamp]:
    """One stamp a step of replicas that ask for their parts of the same batch, from as many as all of them have."""
    return [
        GraphTimestamp(
            min(one.began_ns for one in parts),
            max(one.ended_ns for one in parts),
            sum(one.batch_size for one in parts),
            sum(one.elements for one in parts),
        )
        for parts in zip(*replicas, strict=False)
    ]
