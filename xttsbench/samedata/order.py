"""Two runs held against each other place by place, and the first place where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from xttsbench.samedata.seen import Pass, Seen

Kind = Literal["value", "size", "shape", "missing", "extra"]
"""Another value; an element with another number of rows; of another shape; the second run ends early, or goes on."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two runs differ; all places count from 0."""

    kind: Kind
    epoch: int
    element: int
    row: int = 0
    column: int | None = None


@dataclass(frozen=True, slots=True)
class InOrder:
    """How far two runs were compared, place by place."""

    elements: int
    epochs: int
    difference: Difference | None


def in_order(first: Seen, second: Seen, columns: Sequence[int]) -> InOrder:
    """Compare both as far as both were seen; a run that was cut off is compared up to there.

    Args:
        first: the run of reference.
        second: the other one.
        columns: the components that count.
    """
    elements = epochs = 0
    for number, (ours, theirs) in enumerate(zip(first.passes, second.passes, strict=False)):
        together = min(len(ours.sizes), len(theirs.sizes))
        found = _difference(first, second, ours, theirs, number, columns)
        if found is not None:
            return InOrder(elements + min(found.element, together), epochs + 1, found)
        elements += together
        epochs += 1 if together or (ours.ended and theirs.ended) else 0
    return InOrder(elements, epochs, None)


def _difference(
    first: Seen, second: Seen, ours: Pass, theirs: Pass, epoch: int, columns: Sequence[int]
) -> Difference | None:
    together = min(len(ours.sizes), len(theirs.sizes))
    odd = [
        (element, "size" if ours.sizes[element] != theirs.sizes[element] else "shape")
        for element in range(together)
        if ours.sizes[element] != theirs.sizes[element]
        or any(ours.shapes[element][column] != theirs.shapes[element][column] for column in columns)
    ]
    whole = odd[0][0] if odd else together
    rows = sum(ours.sizes[:whole])
    a = first.codes[ours.start : ours.start + rows][:, list(columns)]
    b = second.codes[theirs.start : theirs.start + rows][:, list(columns)]
    places = np.argwhere(a != b)
    if places.size:
        row, column = (int(number) for number in places[0])
        element, inside = ours.place(row)
        return Difference("value", epoch, element, inside, columns[column])
    if odd:
        return Difference("size" if odd[0][1] == "size" else "shape", epoch, whole)
    if theirs.ended and len(ours.sizes) > len(theirs.sizes):
        return Difference("missing", epoch, together)
    if ours.ended and len(theirs.sizes) > len(ours.sizes):
        return Difference("extra", epoch, together)
    return None
