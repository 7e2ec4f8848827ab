"""Files of features: float32 ``.npy`` with NumPy's header, one a clip or one of all, written whole, read strictly.

A reader that trusts the file trains on noise: a constant offset in place of the header, a file cut short by a full disk
and an array in Fortran order all load without an error somewhere. Here each is refused with the file's name. Pickled
arrays are never loaded. The *packed* file holds the features of all clips one below the other, to be memory-mapped: a
batch is a gather of rows, without a file to open per clip.
"""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.lib.format as npy_format
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.files import atomic_file

Floats = npt.NDArray[np.float32]

HEADER_BYTES: Final = 128
"""Size of the header that :func:`npy_header` returns for any shape that fits on a disk. Readers parse the header."""

_FIRST_READ_BYTES: Final = 4096
PACKED: Final = "packed.npy"


class CacheFileError(InvalidInputError):
    """A file of a feature cache is missing or not what it should be.

    Attributes:
        path: the file.
        reason: what is wrong with it, to follow the file's name.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)  # both, so that it survives pickling between processes
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path} {self.reason}; run 'xttsbench data precompute'"


def npy_header(rows: int, columns: int) -> bytes:
    """Return the header that NumPy writes for a float32 array ``[rows, columns]`` in C order."""
    header = io.BytesIO()
    npy_format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)})
    return header.getvalue()


def npy_bytes(rows: npt.NDArray[np.int64], columns: int) -> npt.NDArray[np.int64]:
    """Return the sizes of the files that :func:`write_npy` writes for float32 arrays ``[rows, columns]``."""
    return HEADER_BYTES + 4 * rows * columns


def write_npy(path: Path, array: Floats) -> None:
    """Write a float32 array ``[rows, columns]``; whoever reads meanwhile sees the old file or the new one, whole.

    Raises:
        OSError: the file cannot be written; nothing of it is left.
    """
    with atomic_file(path) as file:
        # Not np.save, which forgets why a disk took no more.
        file.write(npy_header(*array.shape))
        file.write(np.ascontiguousarray(array, "<f4").data)


def read_npy(path: Path, n_mels: int) -> Floats:
    """Return the array of a file, float32 ``[frames, n_mels]`` in C order, read-only.

    Raises:
        CacheFileError: the file is missing, no ``.npy`` file, of another type, order or shape, or shorter or longer
            than its header says.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            content = file.read()
    except OSError as error:
        raise unreadable(path, error) from error
    frames, offset = array_header(path, content, n_mels)
    _check_size(path, len(content), frames, offset, n_mels)
    # The file's own bytes, not a copy of them: a loader copies them once more, into the batch.
    return np.frombuffer(content, "<f4", offset=offset).reshape(frames, n_mels)


def npy_frames(path: Path, n_mels: int) -> int:
    """Return the number of rows of a file whose header and size :func:`read_npy` would accept, without the rows.

    Raises:
        CacheFileError: as :func:`read_npy`.
    """
    return _rows_and_offset(path, n_mels)[0]


def _rows_and_offset(path: Path, n_mels: int) -> tuple[int, int]:
    """Return the number of rows of a file and where they begin, in bytes, from its header and its size."""
    try:
        with open(path, "rb", buffering=0) as file:
            head = file.read(_FIRST_READ_BYTES)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise unreadable(path, error) from error
    frames, offset = array_header(path, head, n_mels)
    _check_size(path, size, frames, offset, n_mels)
    return frames, offset


def array_header(path: Path, head: bytes, n_mels: int) -> tuple[int, int]:
    """Return the number of rows, and where they begin in bytes, of a file that begins with ``head``.

    Headers are parsed as NumPy does: another version or spacing is fine, another array is refused.

    Raises:
        CacheFileError: these are not the first bytes of a float32 array ``[rows, n_mels]`` in C order.
    """
    file = io.BytesIO(head)
    try:
        version = npy_format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise CacheFileError(path, f"has a header of version {version[0]}.{version[1]} (1.0 and 2.0 are read)")
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except (ValueError, TypeError, SyntaxError, tokenize.TokenError, RecursionError, Warning) as error:
        # All that NumPy's parser raises on damaged headers (each one-byte change was tried); warnings where the user
        # has made them errors.
        what = f"begins with {head[:8]!r}" if head else "is empty"
        raise CacheFileError(path, f"has no readable .npy header (it {what})") from error
    if dtype != np.dtype("<f4"):
        raise CacheFileError(path, f"holds {dtype.str}, and little-endian float32 (<f4) is expected")
    if fortran:
        raise CacheFileError(path, "is in Fortran order, and C order is expected")
    if len(shape) != 2 or shape[1] != n_mels or shape[0] < 1:
        raise CacheFileError(path, f"has the shape {shape}, and [frames, {n_mels}] is expected")
    return int(shape[0]), file.tell()


def unreadable(path: Path, error: OSError) -> CacheFileError:
    """Return the error that says why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return CacheFileError(path, "is missing")
    return CacheFileError(path, f"cannot be read ({error.strerror or error})")


def _check_size(path: Path, size: int, frames: int, offset: int, n_mels: int) -> None:
    expected = offset + 4 * frames * n_mels
    if size != expected:
        what = "is truncated: it" if size < expected else "is too long: it"
        raise CacheFileError(path, f"{what} has {size} bytes, and its header ({frames} x {n_mels}) means {expected}")


def write_packed(
    path: Path, arrays: Iterable[Floats], rows: int, n_mels: int, *, before_renaming: Callable[[], None] = lambda: None
) -> None:
    """Write arrays ``[frames, n_mels]`` one below the other as one ``.npy`` file, whole or not at all.

    The header says the sum of their frames, ``rows``, before they are written. ``before_renaming`` is called when all
    is on the disk under another name.

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
    found, offset = _rows_and_offset(path, n_mels)
    if found != rows:
        raise CacheFileError(path, f"has {found} rows, and the index of its cache means {rows}")
    return offset


def open_packed(path: Path, rows: int, n_mels: int) -> Floats:
    """Return the rows of a packed file, ``[rows, n_mels]``, mapped into memory and read-only.

    Raises:
        CacheFileError: as :func:`check_packed`.
    """
    offset = check_packed(path, rows, n_mels)
    mapped = np.memmap(path, "<f4", mode="r", offset=offset, shape=(rows, n_mels))
    return mapped.view(np.ndarray)  # a plain view: slices of np.memmap cost several times as much
