"""All features of a cache as one memory-mapped array: a batch is a gather of rows, without a file to open per clip."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np

from xttsbench.xtts.data.npy_cache import CacheFileError, Floats, array_header, atomic_file, npy_header, unreadable

PACKED: Final = "packed.npy"


def write_packed(
    path: Path, arrays: Iterable[Floats], rows: int, n_mels: int, *, before_renaming: Callable[[], None] = lambda: None
) -> None:
    """Write arrays ``[frames, n_mels]`` one below the other as one ``.npy`` file, whole or not at all.

    Args:
        path: the file.
        arrays: the arrays, read one at a time.
        rows: the sum of their frames, which the header says before they are written.
        n_mels: their columns.
        before_renaming: called when all is on the disk under another name.

    Raises:
        ValueError: the arrays have another number of rows.
        OSError: the file cannot be written; nothing of it is left.
    """
    with atomic_file(path) as file:
        file.write(npy_header(rows, n_mels))
        written = 0
        for array in arrays:
            file.write(np.ascontiguousarray(array, "<f4").data)
            written += len(array)
        if written != rows:
            raise ValueError(f"{written} rows came, and {rows} were announced")
        file.flush()
        os.fsync(file.fileno())
        before_renaming()


def check_packed(path: Path, rows: int, n_mels: int) -> int:
    """Return where the rows begin, in bytes, in a file that holds ``[rows, n_mels]`` as float32 in C order.

    Reads the header and the file's size, not the rows.

    Raises:
        CacheFileError: the file is missing, of another type, order or shape, or shorter or longer than it should be.
    """
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(4096)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise unreadable(path, error) from error
    found, offset = array_header(path, head, n_mels)
    if found != rows:
        raise CacheFileError(path, f"has {found} rows, and the index of its cache means {rows}")
    expected = offset + 4 * rows * n_mels
    if size != expected:
        what = "is truncated: it" if size < expected else "is too long: it"
        raise CacheFileError(path, f"{what} has {size} bytes, and {rows} x {n_mels} numbers need {expected}")
    return offset


def open_packed(path: Path, rows: int, n_mels: int) -> Floats:
    """Return the rows of a packed file, ``[rows, n_mels]``, mapped into memory and read-only.

    Raises:
        CacheFileError: as :func:`check_packed`.
    """
    offset = check_packed(path, rows, n_mels)
    mapped = np.memmap(path, "<f4", mode="r", offset=offset, shape=(rows, n_mels))
    return mapped.view(np.ndarray)  # a plain view: slices of np.memmap cost several times as much
