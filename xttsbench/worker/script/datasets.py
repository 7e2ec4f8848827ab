"""The datasets of a script, told apart by how and where they were made, at the moment they are used.

Datasets of the same ops made at the same lines are of one kind: a data set built anew for each epoch is, and so may be
those of training and validation. What runs again takes the same kinds in the same order, whatever its random numbers,
and though its lines have moved. So the dataset that feeds the training loop is known again by its kind's number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import tensorflow as tf

from xttsbench.pipeline.places import place_of
from xttsbench.records.script import ScriptData

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
        self._ours = False

    def used(self, dataset: Any) -> Any:
        """The dataset to use in place of one that the script begins to use: itself, but for a stand-in."""
        if self._ours or not isinstance(dataset, tf.data.Dataset) or id(dataset) in self._standing_in:
            return dataset
        mark = self.mark(dataset)
        if self.stand_in is None or self.wanted is None or mark.kind != self.wanted.kind:
            return dataset
        if id(dataset) not in self._made:
            with self.by_us():
                used = self.stand_in(dataset, mark)
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

    @contextlib.contextmanager
    def by_us(self) -> Iterator[None]:
        """Within, datasets are not the script's."""
        before, self._ours = self._ours, True
        try:
            yield
        finally:
            self._ours = before

    def mark(self, dataset: Any) -> ScriptData:
        """What a dataset is known by; it is numbered where it is new."""
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
    """What a dataset was found to be; ``None`` where it was never used, or is none."""
    found: ScriptData | None = getattr(dataset, _MARK, None)
    return found


def _kind(dataset: Any) -> tuple[Any, ...]:
    found, waiting = [], [dataset]
    while waiting:
        one = waiting.pop()
        found.append((type(one).__name__, place_of(one)))
        waiting.extend(one._inputs())
    return tuple(found)
