"""The loops of a script, and which of them trains: rows of that one are sent, those of the others are kept back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from xttsbench.records.step_row import StepRow

_WARM_UP: Final = 2
_WARM_UP_MOST: Final = 10
_KEPT: Final = 5000


@dataclass
class Loop:
    """One loop of the script, over all its epochs.

    Attributes:
        key: what tells it from the others.
        how: how it takes its batches, as ``ScriptRun.iterations`` says it.
        trains: whether gradients are taken in it.
        epochs: how often its data were begun.
        dataset: what it iterated last.
        inner: keys of the loops that are known to run within it, its validation for one.
        rows: (segment, row) that were not sent yet.
    """

    key: Hashable
    how: str
    trains: bool = False
    steps: int = 0
    time_ns: int = 0
    measured: int = 0
    measured_ns: int = 0
    epochs: int = 0
    warming: bool = True
    dataset: Any = None
    inner: set[Hashable] = field(default_factory=set)
    rows: list[tuple[str, StepRow]] = field(default_factory=list)

    def add(self, row: StepRow, *, traced: bool) -> str:
        """Keep one step's row; returns its segment.

        Its first steps are the warm-up: two at least, and on until one traces nothing, ten at most.
        """
        self.steps += 1
        self.time_ns += row.wall_ns
        segment = "warm_up" if self.warming else "as_is"
        if self.warming:
            settled = self.steps >= _WARM_UP and not traced
            self.warming = not (settled or self.steps >= _WARM_UP_MOST)
        else:
            self.measured += 1
            self.measured_ns += row.wall_ns
        if len(self.rows) < _KEPT:
            self.rows.append((segment, row))
        return segment


class Loops:
    """All loops of a script.

    The main loop is the first one that takes gradients. Where none does so far, it is the one with most time, once that
    is at least ``patience_ns``, or when the script is over.
    """

    def __init__(self, patience_ns: int) -> None:
        self.main: Loop | None = None
        self._patience_ns = patience_ns
        self._known: dict[Hashable, Loop] = {}

    def get(self, key: Hashable, how: str) -> Loop:
        """The loop of that key, made where it is new."""
        loop = self._known.get(key)
        if loop is None:
            loop = self._known[key] = Loop(key, how)
        return loop

    def all(self) -> Iterable[Loop]:
        """Every loop that was seen."""
        return self._known.values()

    def choose(self, *, over: bool = False) -> Loop | None:
        """The main loop, if it is known by now. What is chosen stays chosen."""
        if self.main is None:
            loops = [loop for loop in self._known.values() if loop.steps]
            training = [loop for loop in loops if loop.trains]
            longest = max(training or loops, key=lambda loop: (loop.time_ns, loop.steps), default=None)
            if longest is not None and (training or over or longest.time_ns >= self._patience_ns):
                self.main = longest
        return self.main

    def counts(self, loop: Loop) -> bool:
        """Whether a loop is, or may still become, the main one."""
        return self.main is None or self.main is loop


def send_rows(loop: Loop, send: Callable[[str, StepRow], None]) -> None:
    """Hand the rows on, in order."""
    rows, loop.rows = loop.rows, []
    for segment, row in rows:
        send(segment, row)
