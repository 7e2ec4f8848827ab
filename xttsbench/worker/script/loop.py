"""The loops of a script, which of them trains, and the datasets that feed them.

The rows of the loop that trains are shown, those of the others stay hidden. Datasets are told apart by how and where
they were made, at the moment they are used: those of the same ops made at the same lines are of one kind, as a dataset
built anew for each epoch is, and so may be those of training and validation. What runs again takes the same kinds in
the same order, whatever its random numbers, and though its lines have moved. So the dataset that feeds the training
loop is known again by its kind's number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from xttsbench.pipeline.places import place_of
from xttsbench.records.code import ScriptData
from xttsbench.records.rows import RowMemory, SegmentRows, StepRow

if TYPE_CHECKING:
    from xttsbench.worker.script.own_batches import Source

_MARK: Final = "_xttsbench_data"
_ORIGINAL: Final = "_xttsbench_original"


class Datasets:
    """Numbers datasets as they are first iterated, given to ``fit``, distributed, or handed to a tf.function.

    Attributes:
        stand_in: what makes of the dataset that feeds the training loop the one that is used in its place.
        wanted: which one that is.
    """

    def __init__(self) -> None:
        self.stand_in: Callable[[Any, ScriptData], Any] | None = None
        self.wanted: ScriptData | None = None
        self._kinds: dict[tuple[Any, ...], list[int]] = {}
        self._made: dict[int, tuple[Any, Any]] = {}
        self._standing_in: set[int] = set()
        self._derived: list[Any] = []
        self._ours = False  # datasets that are used meanwhile are not the script's

    def used(self, dataset: Any) -> Any:
        """The dataset to use in place of one that the script begins to use: itself, but for a stand-in."""
        if self._ours or not isinstance(dataset, tf.data.Dataset) or id(dataset) in self._standing_in:
            return dataset
        mark = self.mark(dataset)
        if self.stand_in is None or self.wanted is None or mark.kind != self.wanted.kind:
            return dataset
        if id(dataset) not in self._made:
            self._ours = True
            try:
                used = self.stand_in(dataset, mark)
            finally:
                self._ours = False
            vars(used)[_MARK] = mark
            self._standing_in.add(id(used))
            self._made[id(dataset)] = dataset, used  # both are kept: ids are used again
        return self._made[id(dataset)][1]

    def distributed(self, distributed: Any) -> None:
        """Have the datasets that a distributed one is made of known as its own."""
        mark = mark_of(distributed._original_dataset)
        for one in getattr(distributed, "_cloned_datasets", ()) if mark is not None else ():
            vars(one).update({_MARK: mark, _ORIGINAL: distributed._original_dataset})
            self._standing_in.add(id(one))
            self._derived.append(one)

    def mark(self, dataset: Any) -> ScriptData:
        """Mark of a dataset; a new one is numbered."""
        found: ScriptData | None = vars(dataset).get(_MARK)
        if found is None:
            known = self._kinds.setdefault(_kind(dataset), [len(self._kinds), 0])
            known[1] += 1
            found = vars(dataset)[_MARK] = ScriptData(kind=known[0], begun=known[1])
        return found


def original(dataset: Any) -> Any:
    """The dataset that a distributed one, or a replica's part of it, was made from; any other as it is."""
    return getattr(dataset, "_original_dataset", getattr(dataset, _ORIGINAL, dataset))


def mark_of(dataset: Any) -> ScriptData | None:
    """Mark of a dataset; ``None`` where it was never used, or is none."""
    found: ScriptData | None = getattr(dataset, _MARK, None)
    return found


def _kind(dataset: Any) -> tuple[Any, ...]:
    found, waiting = [], [dataset]
    while waiting:
        one = waiting.pop()
        found.append((type(one).__name__, place_of(one)))
        waiting.extend(one._inputs())
    return tuple(found)


_WARM_UP: Final = 2
_WARM_UP_MOST: Final = 10
_RECORDED: Final = 8
"""Loops whose rows are written before it is known which one trains: the memory has room for so many segments."""


@dataclass
class Loop:
    """One loop of the script, over all its epochs.

    Attributes:
        key: what tells it from the others.
        how: how it takes its batches, as ``ScriptRun.iterations`` says it.
        trains: whether gradients are taken in it.
        epochs: how often its data were begun.
        taken: batches of this epoch that a trial has looked at.
        dataset: what it iterated last.
        own: what gives its batches where they come from no dataset; ``found`` is what is known of them.
        inner: keys of the loops that are known to run within it, its validation for one.
        segments: where its rows are, by their names; a loop that is not recorded has none.
    """

    key: Hashable
    how: str
    trains: bool = False
    steps: int = 0
    time_ns: int = 0
    measured: int = 0
    measured_ns: int = 0
    epochs: int = 0
    taken: int = 0
    warming: bool = True
    dataset: Any = None
    own: Source | None = None
    inner: set[Hashable] = field(default_factory=set)
    segments: dict[str, SegmentRows] = field(default_factory=dict)
    _data: ScriptData | None = None
    _first: Any = None

    def takes(self, dataset: Any) -> None:
        """A dataset is iterated, or a distributed one."""
        self.dataset = dataset
        if self._data is None and self._first is None:
            self._first = dataset

    @property
    def data(self) -> ScriptData | None:
        """Mark of the first dataset that the loop iterated."""
        if self._data is None:
            self._data = mark_of(getattr(self._first, "_original_dataset", self._first))
            self._first = None if self._data is not None else self._first
        return self._data

    def count(self, row: StepRow, *, traced: bool) -> str:
        """Count one step; returns the segment that it belongs to.

        Its first steps are the warm-up: two at least, and on until one traces nothing, ten at most.
        """
        if not self.warming:
            self.count_measured(1, row.wall_ns)
            return "as_is"
        self.steps += 1
        self.time_ns += row.wall_ns
        self.warming = self.steps < _WARM_UP or (traced and self.steps < _WARM_UP_MOST)
        return "warm_up"

    def count_measured(self, steps: int, wall_ns: int) -> None:
        """Count measured steps, and the time that they took together."""
        self.steps, self.measured = self.steps + steps, self.measured + steps
        self.time_ns, self.measured_ns = self.time_ns + wall_ns, self.measured_ns + wall_ns


class Loops:
    """All loops of a script.

    The main loop is the first one that takes gradients. Where none does so far, it is the one with most time, once that
    is at least ``patience_ns``, or when the script is over.
    """

    def __init__(self, patience_ns: int, memory: RowMemory) -> None:
        self.main: Loop | None = None
        self._memory = memory
        self._patience_ns = patience_ns
        self._known: dict[Hashable, Loop] = {}

    def get(self, key: Hashable, how: str) -> Loop:
        """The loop of that key, made where it is new."""
        if key not in self._known:
            self._known[key] = Loop(key, how)
        return self._known[key]

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
                for segment in longest.segments.values():
                    segment.show()
        return self.main

    def counts(self, loop: Loop) -> bool:
        """Whether a loop is, or may still become, the main one."""
        return self.main is None or self.main is loop

    def add(self, loop: Loop, row: StepRow, *, traced: bool) -> tuple[SegmentRows, int] | None:
        """Write one step's row and return its place; ``None`` where the loop is not recorded."""
        name = loop.count(row, traced=traced)
        segment = loop.segments.get(name)
        if segment is None and self._recorded(loop):
            segment = self._memory.segment(name, hidden=loop is not self.main)
            segment.warmup(int(name == "as_is"))
            loop.segments[name] = segment
        return None if segment is None or not self.counts(loop) else (segment, segment.append(row))

    def _recorded(self, loop: Loop) -> bool:
        others = sum(bool(one.segments) for one in self._known.values())
        return loop is self.main or (self.main is None and (bool(loop.segments) or others < _RECORDED))
