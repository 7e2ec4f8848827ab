"""All elements of two versions of a dataset, by digests, and the first place where the two differ.

Digests are of every element that there was time for, where fingerprints of rows (:mod:`xttsbench.samedata.judge`) are
of some thousand rows at most. Whatever is the same in all runs of the old version must be the same in the new one: each
element at its place, where the order is promised; in any case sizes and samples of a whole pass.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from xttsbench.records.pipeline import Element, Elements, Place, Whole
from xttsbench.samedata.runs import Difference, Run, in_order, rounded_anywhere, rounded_in_place, runs_of
from xttsbench.samedata.varying import all_bags

_MODULO: Final = 2**64


class Found(NamedTuple):
    """A difference in words, and its places in the old and the new version, where they are known."""

    sentence: str
    old: Place | None = None
    new: Place | None = None


def digest(element: Element) -> tuple[int, int, int]:
    """Rows of an element, a digest of it, and the sum of those of its rows, which no order changes."""
    rows = [_number(*row.hashes) for row in element.rows]
    return len(rows), _number(*element.shapes, *map(str, rows)), sum(rows) % _MODULO


def _number(*texts: str) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(texts).encode(), digest_size=8).digest(), "big")


def totals(one: Whole) -> tuple[int, Counter[int], int]:
    """Rows of a pass, elements by their size, and the samples whatever their order."""
    return sum(one.rows), Counter(one.rows), sum(one.sums) % _MODULO


_TOTALS: Final = ("another number of rows", "batches of other sizes", "other samples")


def whole_difference(originals: Sequence[Elements], new: Elements, *, ordered: bool) -> Found | None:
    """The first difference that digests show; ``None`` for none."""
    for number, (*before, after) in enumerate(zip(*(run.whole for run in (*originals, new)), strict=False)):
        count = min(len(one.elements) for one in (*before, after))
        first, *others, theirs = (np.array(one.elements[:count], dtype=np.uint64) for one in (*before, after))
        unlike = np.logical_and.reduce([theirs != first, *(one == first for one in others)])
        if ordered and unlike.any():
            place = Place(epoch=number, element=int(np.argmax(unlike)))
            return Found(f"the data differ: first at epoch {number + 1}, batch {place.element + 1}", place, place)
        if all(one.ended for one in (*before, after)):
            for what, *ours, its in zip(_TOTALS, *map(totals, (*before, after)), strict=True):
                if its != ours[0] and all(one == ours[0] for one in ours):
                    return Found(f"epoch {number + 1} of NEW has {what} than that of OLD")
    return None


def first_difference(originals: Sequence[Elements], new: Elements, *, ordered: bool) -> Found | None:
    """The first row of the new version that the old one has not, where that can be told; both places are given.

    Only what is the same in all runs of the old version is compared: at its place where an order is promised, else by
    the samples of each epoch; there the sample is taken for the old one that is most like it among those missing.
    """
    try:
        *runs, run = runs_of((*originals, new))
    except ValueError:
        return None
    old, columns = runs[0], range(run.codes.shape[1])
    placed = [c for c in columns if ordered and not any(in_order(old, one, [c]).difference for one in runs[1:])]
    if placed:
        found = in_order(old, rounded_in_place(old, run).run, placed).difference
        return _at(found, found, new) if found is not None and found.kind == "value" else None
    near = rounded_anywhere([old], run).run
    known = [c for c in columns if all_bags(runs, [c]).same]
    for number, (ours, theirs) in enumerate(zip(old.passes, near.passes, strict=False)):
        before, after = old.keys(known, ours), near.keys(known, theirs)
        had, has = set(before), set(after)
        lost = [one for one, key in enumerate(before) if key not in has]
        row = next((one for one, key in enumerate(after) if key not in had), None)
        if lost and row is not None:
            like = max(lost, key=lambda one: sum(a == b for a, b in zip(before[one], after[row], strict=True)))
            column = next(c for c, a, b in zip(known, before[like], after[row], strict=True) if a != b)
            return _at(_place(number, old, like, column), _place(number, near, row, column), new)
    return None


def _place(epoch: int, run: Run, row: int, column: int) -> Difference:
    return Difference("value", epoch, *run.passes[epoch].place(row), column)


def _at(old: Difference, new: Difference, run: Elements) -> Found:
    name = run.components[new.column or 0] if run.components else ""
    places = (Place(epoch=one.epoch, element=one.element, row=one.row, component=name) for one in (old, new))
    return Found("", *places)
