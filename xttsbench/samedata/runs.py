"""Runs of a dataset as arrays, and two of them compared place by place: bit for bit, or within the rounding of floats.

A code is a number for a hash, the same in all runs. Floats that two orders of summation make differ in their last bits:
rows that are equal but for that are given the code of the reference, so that all that follows takes them for the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from xttsbench.records.pipeline import Elements

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_FLOATING: Final = re.compile(r"(bfloat16|float16|float32|float64|complex64|complex128)")


@dataclass(frozen=True, slots=True)
class Pass:
    """One epoch of a run: ``stop - start`` rows of the run's arrays."""

    start: int
    stop: int
    sizes: tuple[int, ...]
    """Rows of each element."""
    shapes: tuple[tuple[str, ...], ...]
    """Dtype and shape of each component, by element."""
    ended: bool

    @property
    def rows(self) -> int:
        """Rows of all elements."""
        return self.stop - self.start

    def place(self, row: int) -> tuple[int, int]:
        """The element that a row of this pass is in, and its place there, both from 0."""
        ends = np.cumsum(self.sizes)
        element = int(np.searchsorted(ends, row, side="right"))
        return element, row - int(ends[element] - self.sizes[element])


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run: ``codes`` has a row for each sample and a column for each component."""

    codes: Codes
    sketches: tuple[Floats | None, ...]
    """Sketches of each component, rows x numbers; ``None`` for a component without."""
    dtypes: tuple[str | None, ...]
    """Dtype of each dense floating-point component, else ``None``: the sketch of a ragged one does not show its layout.
    """
    elements: Codes
    """The element that each row is in, counted over all epochs."""
    passes: tuple[Pass, ...]

    def keys(self, columns: Sequence[int], part: Pass) -> list[tuple[int, ...]]:
        """The rows of a pass as something that can be counted."""
        return [tuple(row) for row in self.codes[part.start : part.stop][:, list(columns)].tolist()]


def runs_of(runs: Sequence[Elements]) -> tuple[Run, ...]:
    """The runs as arrays; the same hash has the same number in all of them.

    Raises:
        ValueError: rows of a run differ in how many components they have, or the runs do.
    """
    widths = {
        len(row.hashes) for run in runs for epoch in run.epochs for element in epoch.elements for row in element.rows
    }
    if len(widths) > 1:
        raise ValueError(f"the elements have {' and '.join(map(str, sorted(widths)))} components")
    width = widths.pop() if widths else max((len(run.components) for run in runs), default=0)
    numbers: dict[str, int] = {}
    return tuple(_run(run, width, numbers) for run in runs)


def aligned(*runs: Run) -> tuple[Codes, ...]:
    """The rows of each run that are at a place of an epoch that all runs have, however epochs are cut into elements."""
    rows = [min(part.rows for part in parts) for parts in zip(*(run.passes for run in runs), strict=False)]
    found = []
    for run in runs:
        places = [part.start + np.arange(count) for part, count in zip(run.passes, rows, strict=False)]
        found.append(np.concatenate([np.zeros(0), *places]).astype(np.int64))
    return tuple(found)


def sorted_by(run: Run, columns: Sequence[int]) -> Run:
    """The run with the rows of each epoch in the order of some components, so that equal samples have equal places."""
    places = [
        part.start + np.lexsort(run.codes[part.start : part.stop][:, list(columns)].T[::-1]) for part in run.passes
    ]
    return _rows(run, np.concatenate([np.zeros(0), *places]).astype(np.int64))


def first_pass(run: Run) -> Run:
    """The first epoch of a run by itself."""
    stop = run.passes[0].stop if run.passes else 0
    return replace(_rows(run, slice(stop)), passes=run.passes[:1])


def _rows(run: Run, rows: slice | Codes) -> Run:
    sketches = tuple(None if table is None else table[rows] for table in run.sketches)
    return replace(run, codes=run.codes[rows], sketches=sketches, elements=run.elements[rows])


def _run(run: Elements, width: int, numbers: dict[str, int]) -> Run:
    rows = [row for epoch in run.epochs for element in epoch.elements for row in element.rows]
    codes = np.array(
        [[numbers.setdefault(digits, len(numbers)) for digits in row.hashes] for row in rows], dtype=np.int64
    ).reshape(len(rows), width)
    given = [[row.sketches[column] if column < len(row.sketches) else () for row in rows] for column in range(width)]
    ends = np.cumsum([0, *(sum(len(element.rows) for element in epoch.elements) for epoch in run.epochs)]).tolist()
    sizes = [len(element.rows) for epoch in run.epochs for element in epoch.elements]
    return Run(
        codes=codes,
        sketches=tuple(_array(column) for column in given),
        dtypes=tuple(_dtype(run, column) for column in range(width)),
        elements=np.repeat(np.arange(len(sizes)), sizes).astype(np.int64),
        passes=tuple(
            Pass(
                start,
                stop,
                tuple(len(element.rows) for element in epoch.elements),
                tuple(element.shapes for element in epoch.elements),
                epoch.ended,
            )
            for epoch, (start, stop) in zip(run.epochs, pairwise(ends), strict=True)
        ),
    )


def _array(sketches: list[tuple[float, ...]]) -> Floats | None:
    lengths = {len(sketch) for sketch in sketches}
    return np.array(sketches, dtype=np.float64) if len(lengths) == 1 and lengths != {0} else None


def _dtype(run: Elements, column: int) -> str | None:
    shapes = next((element.shapes for epoch in run.epochs for element in epoch.elements), ())
    found = _FLOATING.match(shapes[column]) if column < len(shapes) else None
    return found[0] if found else None


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
    """Extent of a comparison of two runs place by place, and its first difference."""

    elements: int
    epochs: int
    difference: Difference | None


def in_order(first: Run, second: Run, columns: Sequence[int]) -> InOrder:
    """Compare some components as far as both runs were seen; one that was cut off is compared up to there."""
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
    first: Run, second: Run, ours: Pass, theirs: Pass, epoch: int, columns: Sequence[int]
) -> Difference | None:
    together = min(len(ours.sizes), len(theirs.sizes))
    odd = (
        element
        for element in range(together)
        if ours.sizes[element] != theirs.sizes[element]
        or any(ours.shapes[element][column] != theirs.shapes[element][column] for column in columns)
    )
    whole = next(odd, together)
    rows = sum(ours.sizes[:whole])
    a = first.codes[ours.start : ours.start + rows][:, list(columns)]
    b = second.codes[theirs.start : theirs.start + rows][:, list(columns)]
    places = np.argwhere(a != b)
    if places.size:
        row, column = (int(number) for number in places[0])
        element, inside = ours.place(row)
        return Difference("value", epoch, element, inside, columns[column])
    if whole < together:
        return Difference("size" if ours.sizes[whole] != theirs.sizes[whole] else "shape", epoch, whole)
    if theirs.ended and len(ours.sizes) > len(theirs.sizes):
        return Difference("missing", epoch, together)
    if ours.ended and len(theirs.sizes) > len(ours.sizes):
        return Difference("extra", epoch, together)
    return None


TOLERANCE: Final = {
    "float64": 1e-8,
    "complex128": 1e-8,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
}
"""Largest difference of two sketches by dtype, in root mean squares of the row. For single precision that is 84 units
in the last place, for the half ones two; for double what the nine printed digits of a sketch allow.
"""
_FLOOR: Final = 0.1
"""A row that is nearly zero is held against this share of the component's root mean square over all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """A run with the numbers of the reference wherever it is close to it."""

    run: Run
    touched: npt.NDArray[np.bool_]
    """Rows x components: where a number was replaced."""

    def any_in(self, columns: Sequence[int]) -> bool:
        """Whether a number of these components was replaced."""
        return bool(self.touched[:, list(columns)].any())


def rounded_in_place(reference: Run, other: Run) -> Rounded:
    r"""``other`` with the codes of ``reference`` where the rows at the same place are equal but for rounding.

    A sketch of a row is its mean, its standard deviation and random projections, scaled so that noise of relative size
    :math:`\epsilon` in every value moves each by about :math:`\epsilon` times the root mean square of the row. A
    change of one value among :math:`n` by :math:`\delta` moves each projection by :math:`\delta/\sqrt n`, so that it
    shows from ``TOLERANCE * sqrt(n)`` root mean squares on. Bits that are those of another row of the original are
    never rounding: then the row has moved.
    """
    codes, touched = other.codes.copy(), np.zeros(other.codes.shape, dtype=bool)
    ours, theirs = aligned(reference, other)
    for column, tolerance, before, after in _columns(reference, other):
        differ = reference.codes[ours, column] != other.codes[theirs, column]
        new = differ & ~np.isin(other.codes[theirs, column], reference.codes[:, column])
        a, b = ours[new], theirs[new]
        near = _close(before[a], after[b], tolerance, before)
        codes[b[near], column] = reference.codes[a[near], column]
        touched[b[near], column] = True
    return Rounded(replace(other, codes=codes), touched)


def rounded_anywhere(references: Sequence[Run], other: Run) -> Rounded:
    """``other`` with the number of the nearest row of any reference, where that is equal but for rounding."""
    from scipy.spatial import KDTree

    codes, touched = other.codes.copy(), np.zeros(other.codes.shape, dtype=bool)
    for column, tolerance, _, after in _columns(references[0], other):
        known = np.concatenate([run.codes[:, column] for run in references])
        tables = [run.sketches[column] for run in references if run.codes.shape[0]]
        present = [table for table in tables if table is not None]
        new = np.flatnonzero(~np.isin(other.codes[:, column], known))
        if not new.size or len(present) != len(tables) or not present:
            continue
        before = np.concatenate(present)
        _, nearest = KDTree(before).query(after[new])
        near = _close(before[nearest], after[new], tolerance, before)
        codes[new[near], column] = known[nearest[near]]
        touched[new[near], column] = True
    return Rounded(replace(other, codes=codes), touched)


def _columns(reference: Run, other: Run) -> Iterator[tuple[int, float, Floats, Floats]]:
    """Components that may be rounded, with tolerance and sketches: same floating dtype, sketches of one length."""
    for column, dtype in enumerate(other.dtypes):
        before, after = reference.sketches[column], other.sketches[column]
        if dtype is None or reference.dtypes[column] != dtype or before is None or after is None:
            continue
        if before.shape[1] == after.shape[1]:
            yield column, TOLERANCE[dtype], before, after


def _close(before: Floats, after: Floats, tolerance: float, table: Floats) -> npt.NDArray[np.bool_]:
    """Mask of the rows that are equal but for rounding; ``table`` has all rows of the reference."""
    whole = float(np.sqrt(np.mean(_root_mean_squares(table) ** 2))) if table.size else 0.0
    scale = np.maximum(np.maximum(_root_mean_squares(before), _root_mean_squares(after)), _FLOOR * whole)
    return np.asarray(np.all(np.abs(before - after) <= tolerance * scale[:, None], axis=1))


def _root_mean_squares(sketches: Floats) -> Floats:
    """From mean and standard deviation, the first two numbers."""
    return np.asarray(np.hypot(sketches[:, 0], sketches[:, min(1, sketches.shape[1] - 1)]))
