"""Sketches: a few numbers that are close where many are close, and tell a larger change of any one of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

Array = npt.NDArray[Any]
Sketch = tuple[float, ...]

PROJECTIONS: Final = 6
"""Random +-1 projections in a sketch, after mean, standard deviation and the share of values that are not finite."""
_CHUNK: Final = 1 << 16
_LARGEST: Final = 1e150
"""Magnitude that values are clipped to in a sketch, so that their squares are numbers."""
_STAND_IN: Final = {"nan": 701.0, "inf": 1103.0, "-inf": -1301.0}
"""What stands for a value that is not finite in a projection, so that where it stands shows."""


def sketch_of(array: Array) -> Sketch:
    """The sketch of a whole array of numbers, such as a variable."""
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    return sketches([array])[0]


def sketches(arrays: Sequence[Array]) -> list[Sketch]:
    """Sketches of floats and complex numbers, empty ones of all else; rows of equal length in one product."""
    if not arrays or arrays[0].dtype.kind == "O" or not _inexact(arrays[0]):
        return [() for _ in arrays]
    found: list[Sketch] = [()] * len(arrays)
    sizes: dict[int, list[int]] = {}
    for number, array in enumerate(arrays):
        sizes.setdefault(array.size, []).append(number)
    for size, numbers in sizes.items():
        step = max(1, (1 << 22) // max(size, 1))
        for begin in range(0, len(numbers), step):
            some = numbers[begin : begin + step]
            block = np.stack([_flat(arrays[number]) for number in some])
            for number, row in zip(some, _block(block), strict=True):
                found[number] = row
    return found


def _inexact(array: Array) -> bool:
    """Whether an array holds floats, also such as NumPy itself does not know (bfloat16), or complex numbers."""
    dtype = tf.as_dtype(array.dtype)
    return bool(dtype.is_floating or dtype.is_complex)


def _flat(array: Array) -> Array:
    flat = array.ravel()
    if array.dtype.kind == "c":
        return np.concatenate([flat.real, flat.imag]).astype(np.float64)
    return flat.astype(np.float64)


def _block(values: Array) -> list[Sketch]:
    """Sketches of the rows of ``[rows, n]`` float64.

    A projection is ``sum(sign * value) / sqrt(n)``: of independent values it varies as one value does, and a change of
    one value by ``d`` moves it by ``d / sqrt(n)`` (the sign projections of Achlioptas, 2003).
    """
    count = values.shape[1]
    if count == 0:
        return [(0.0,) * (3 + PROJECTIONS)] * len(values)
    finite = np.isfinite(values)
    odd = 1.0 - finite.mean(axis=1)
    if finite.all():
        known = np.clip(values, -_LARGEST, _LARGEST)
        mean, std = known.mean(axis=1), known.std(axis=1)
    else:
        known = np.clip(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), -_LARGEST, _LARGEST)
        many = np.maximum(finite.sum(axis=1), 1)
        mean = known.sum(axis=1) / many
        std = np.sqrt((np.where(finite, known - mean[:, None], 0.0) ** 2).sum(axis=1) / many)
        known[np.isnan(values)] = _STAND_IN["nan"]
        known[np.isposinf(values)] = _STAND_IN["inf"]
        known[np.isneginf(values)] = _STAND_IN["-inf"]
    projected = np.zeros((len(values), PROJECTIONS))
    for begin in range(0, count, _CHUNK):
        part = known[:, begin : begin + _CHUNK]
        projected += part @ _signs(begin // _CHUNK)[: part.shape[1]]
    table = np.column_stack([mean, std, odd, projected / math.sqrt(count)])
    return [tuple(float(f"{number:.9g}") for number in row) for row in np.nan_to_num(table)]


@functools.lru_cache(maxsize=64)
def _signs(chunk: int) -> Array:
    """+-1 by index, ``[_CHUNK, PROJECTIONS]``: bits of SplitMix64 (Steele et al., 2014), the same in every process."""
    index = np.arange(chunk * _CHUNK, (chunk + 1) * _CHUNK, dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    bits = (mixed[:, None] >> np.arange(PROJECTIONS, dtype=np.uint64)) & np.uint64(1)
    return bits.astype(np.float64) * 2.0 - 1.0
