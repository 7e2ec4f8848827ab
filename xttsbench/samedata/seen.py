"""Fingerprints as arrays: runs that are to be compared, with one number for each hash, so that equal bits are equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.records.elements import Elements, Epoch

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
    """Of each element: dtype and shape of each component."""
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
class Seen:
    """One run: ``codes`` has a row for each sample and a column for each component."""

    codes: Codes
    sketches: tuple[Floats | None, ...]
    """Of each component: rows x numbers; ``None`` where there are none."""
    dtypes: tuple[str | None, ...]
    """Of each component, where it is dense and floating-point: the sketch of a ragged one does not tell its layout."""
    elements: Codes
    """The element that each row is in, counted over all epochs."""
    passes: tuple[Pass, ...]

    def keys(self, columns: Sequence[int], part: Pass) -> list[tuple[int, ...]]:
        """The rows of a pass as something that can be counted."""
        return [tuple(row) for row in self.codes[part.start : part.stop][:, list(columns)].tolist()]


def seen(runs: Sequence[Elements]) -> tuple[Seen, ...]:
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
    return tuple(_seen(run, width, numbers) for run in runs)


def aligned(*runs: Seen) -> tuple[Codes, ...]:
    """The rows of each run that are at a place of an epoch that all runs have, however epochs are cut into elements."""
    rows = [min(part.rows for part in parts) for parts in zip(*(run.passes for run in runs), strict=False)]
    found = []
    for run in runs:
        places = [part.start + np.arange(count) for part, count in zip(run.passes, rows, strict=False)]
        found.append(np.concatenate([np.zeros(0), *places]).astype(np.int64))
    return tuple(found)


def sorted_by(run: Seen, columns: Sequence[int]) -> Seen:
    """The run with the rows of each epoch in the order of some components, so that equal samples have equal places."""
    places = [
        part.start + np.lexsort(run.codes[part.start : part.stop][:, list(columns)].T[::-1]) for part in run.passes
    ]
    order = np.concatenate([np.zeros(0), *places]).astype(np.int64)
    return replace(
        run,
        codes=run.codes[order],
        sketches=tuple(None if table is None else table[order] for table in run.sketches),
        elements=run.elements[order],
    )


def first_pass(run: Seen) -> Seen:
    """The first epoch of a run by itself."""
    stop = run.passes[0].stop if run.passes else 0
    return replace(
        run,
        codes=run.codes[:stop],
        sketches=tuple(None if table is None else table[:stop] for table in run.sketches),
        elements=run.elements[:stop],
        passes=run.passes[:1],
    )


def _seen(run: Elements, width: int, numbers: dict[str, int]) -> Seen:
    rows = [row for epoch in run.epochs for element in epoch.elements for row in element.rows]
    codes = np.array(
        [[numbers.setdefault(digits, len(numbers)) for digits in row.hashes] for row in rows], dtype=np.int64
    ).reshape(len(rows), width)
    given = [[row.sketches[column] if column < len(row.sketches) else () for row in rows] for column in range(width)]
    ends = np.cumsum([0, *(sum(len(element.rows) for element in epoch.elements) for epoch in run.epochs)]).tolist()
    sizes = [len(element.rows) for epoch in run.epochs for element in epoch.elements]
    return Seen(
        codes=codes,
        sketches=tuple(_array(column) for column in given),
        dtypes=tuple(_dtype(run, column) for column in range(width)),
        elements=np.repeat(np.arange(len(sizes)), sizes).astype(np.int64),
        passes=tuple(_pass(epoch, *limits) for epoch, limits in zip(run.epochs, pairwise(ends), strict=True)),
    )


def _pass(epoch: Epoch, start: int, stop: int) -> Pass:
    return Pass(
        start,
        stop,
        tuple(len(element.rows) for element in epoch.elements),
        tuple(element.shapes for element in epoch.elements),
        epoch.ended,
    )


def _array(sketches: list[tuple[float, ...]]) -> Floats | None:
    lengths = {len(sketch) for sketch in sketches}
    return np.array(sketches, dtype=np.float64) if len(lengths) == 1 and lengths != {0} else None


def _dtype(run: Elements, column: int) -> str | None:
    for epoch in run.epochs:
        for element in epoch.elements:
            found = _FLOATING.match(element.shapes[column]) if column < len(element.shapes) else None
            return found[0] if found else None
    return None
