"""A discrete-event simulation of a tf.data pipeline with a step: the known answer for the model of its pace.

It knows nothing of the model: threads that take, work and hand on element by element, calls that take a slot, a thread
of the pool and the interpreter lock, buffers that are full or empty, and a consumer that gathers a batch and steps.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

Process = Generator[tuple[str, Any], None, None]


@dataclass
class Resource:
    free: int
    waiting: deque[Process] = field(default_factory=deque)


class Simulation:
    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Process]] = []
        self._count = 0

    def start(self, process: Process, after: float = 0.0) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + after, self._count, process))

    def run(self, stop: Any) -> None:
        while self._events and not stop():
            self.now, _, process = heapq.heappop(self._events)
            self._advance(process)

    def _advance(self, process: Process) -> None:
        for kind, value in process:
            if kind == "wait":
                self.start(process, value)
                return
            if kind == "start":
                self.start(value)
            elif kind == "release":
                if value.waiting:
                    self.start(value.waiting.popleft())
                else:
                    value.free += 1
            elif value.free > 0:
                value.free -= 1
            else:
                value.waiting.append(process)
                return


@dataclass(frozen=True)
class Part:
    """A prefetch (``calls_s`` is ``None``) or a parallel op, with the sequential work before it; for one element."""

    spread_s: float
    buffer: int
    calls_s: float | None = None
    locked: bool = False


def simulate(
    parts: list[Part], *, elements: int, spread_s: float, at_once_s: float, pool: int, step_s: float, batches: int = 60
) -> float:
    """Seconds for a batch of ``elements`` in the long run; every work but the step's takes a thread of the pool."""
    simulation, threads, lock = Simulation(), Resource(pool), Resource(1)
    done: list[float] = []

    def work(seconds: float, *, locked: bool = False) -> Process:
        if seconds <= 0:
            return
        yield "take", threads
        if locked:
            yield "take", lock
        yield "wait", seconds
        if locked:
            yield "release", lock
        yield "release", threads

    def call(part: Part, slots: Resource, items: Resource) -> Process:
        yield from work(part.calls_s or 0.0, locked=part.locked)
        yield "release", slots
        yield "release", items

    def thread(part: Part, taken: tuple[Resource, Resource] | None, room: Resource, items: Resource) -> Process:
        slots = Resource(part.buffer)
        while True:
            yield "take", room
            if part.calls_s is not None:
                yield "take", slots
            if taken is not None:
                yield "take", taken[1]
                yield "release", taken[0]
            yield from work(part.spread_s)
            if part.calls_s is None:
                yield "release", items
            else:
                yield "start", call(part, slots, items)

    def consumer(taken: tuple[Resource, Resource] | None) -> Process:
        while True:
            for _ in range(elements):
                if taken is not None:
                    yield "take", taken[1]
                    yield "release", taken[0]
                yield from work(spread_s)
            yield from work(at_once_s)
            yield "wait", step_s
            done.append(simulation.now)

    before: tuple[Resource, Resource] | None = None
    for part in parts:
        room, items = Resource(part.buffer), Resource(0)
        simulation.start(thread(part, before, room, items))
        before = (room, items)
    simulation.start(consumer(before))
    simulation.run(lambda: len(done) >= batches)
    first = batches // 3
    return (done[-1] - done[first]) / (len(done) - 1 - first)
