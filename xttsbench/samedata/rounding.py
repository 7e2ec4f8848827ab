r"""Floats that differ by no more than the order of the arithmetic: what counts as rounding.

A sketch of a row is its mean, its standard deviation and random projections, scaled so that noise of relative size
:math:`\epsilon` in every value moves each by about :math:`\epsilon` times the root mean square of the row. A change of
one value among :math:`n` by :math:`\delta` moves each projection by :math:`\delta/\sqrt n`, so that it shows from
``TOLERANCE * sqrt(n)`` root mean squares on. Bits that are those of another row of the original are never rounding:
then the row has moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from xttsbench.samedata.seen import Floats, Seen, aligned

TOLERANCE: Final = {
    "float64": 1e-8,
    "complex128": 1e-8,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
}
"""Of each dtype: the largest difference of two sketches, in root mean squares of the row. For single precision that is
84 units in the last place, for the half ones two; for double what the nine printed digits of a sketch allow."""
_FLOOR: Final = 0.1
"""A row that is nearly zero is held against this share of the component's root mean square over all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """A run with the numbers of the reference wherever it is close to it."""

    seen: Seen
    touched: npt.NDArray[np.bool_]
    """Rows x components: where a number was replaced."""

    def any_in(self, columns: Sequence[int]) -> bool:
        """Whether a number of these components was replaced."""
        return bool(self.touched[:, list(columns)].any())


def rounded_in_place(reference: Seen, other: Seen) -> Rounded:
    """``other`` with the numbers of ``reference`` where the rows at the same place are equal but for rounding."""
    codes, touched = other.codes.copy(), np.zeros(other.codes.shape, dtype=bool)
    ours, theirs = aligned(reference, other)
    for column, tolerance in _columns(reference, other):
        before, after = reference.sketches[column], other.sketches[column]
        if before is None or after is None:
            continue
        differ = reference.codes[ours, column] != other.codes[theirs, column]
        new = differ & ~np.isin(other.codes[theirs, column], reference.codes[:, column])
        a, b = ours[new], theirs[new]
        near = _close(before[a], after[b], tolerance, _size(before))
        codes[b[near], column] = reference.codes[a[near], column]
        touched[b[near], column] = True
    return Rounded(replace(other, codes=codes), touched)


def rounded_anywhere(references: Sequence[Seen], other: Seen) -> Rounded:
    """``other`` with the number of the nearest row of any reference, where that is equal but for rounding."""
    codes, touched = other.codes.copy(), np.zeros(other.codes.shape, dtype=bool)
    for column, tolerance in _columns(references[0], other):
        known = np.concatenate([run.codes[:, column] for run in references])
        tables = [run.sketches[column] for run in references if run.codes.shape[0]]
        after, present = other.sketches[column], [table for table in tables if table is not None]
        new = np.flatnonzero(~np.isin(other.codes[:, column], known))
        if after is None or not new.size or len(present) != len(tables) or not present:
            continue
        before = np.concatenate(present)
        _, nearest = KDTree(before).query(after[new])
        near = _close(before[nearest], after[new], tolerance, _size(before))
        codes[new[near], column] = known[nearest[near]]
        touched[new[near], column] = True
    return Rounded(replace(other, codes=codes), touched)


def _columns(reference: Seen, other: Seen) -> list[tuple[int, float]]:
    """Components that may be rounded, with their tolerance: same floating dtype, sketches of one length."""
    found = []
    for column, dtype in enumerate(other.dtypes):
        before, after = reference.sketches[column], other.sketches[column]
        if dtype is None or reference.dtypes[column] != dtype or before is None or after is None:
            continue
        if before.shape[1] == after.shape[1]:
            found.append((column, TOLERANCE[dtype]))
    return found


def _close(before: Floats, after: Floats, tolerance: float, whole: float) -> npt.NDArray[np.bool_]:
    scale = np.maximum(np.maximum(_root_mean_squares(before), _root_mean_squares(after)), _FLOOR * whole)
    return np.asarray(np.all(np.abs(before - after) <= tolerance * scale[:, None], axis=1))


def _size(sketches: Floats) -> float:
    return float(np.sqrt(np.mean(_root_mean_squares(sketches) ** 2))) if sketches.size else 0.0


def _root_mean_squares(sketches: Floats) -> Floats:
    """From mean and standard deviation, the first two numbers."""
    return np.asarray(np.hypot(sketches[:, 0], sketches[:, min(1, sketches.shape[1] - 1)]))
