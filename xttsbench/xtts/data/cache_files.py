"""The files of a feature cache: features as ``.npy``, and the index of its clips, which declares all good.

Features are float32 with NumPy's header, one file a clip or one of all, written whole and read strictly: a constant
offset in place of the header, a file cut short by a full disk and an array in Fortran order all load without an error
somewhere, and training on noise follows. The *packed* file holds all clips one below the other.

The index is called complete when all files are on the disk, and never before: until then, and from the first file that
is replaced on, what is there is material for the next ``precompute`` and no cache.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.lib.format as npy_format
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.files import atomic_file, atomic_write
from xttsbench.inputs import JOURNAL_BYTES, open_regular, read_arrays, read_bytes
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings

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
    content, frames, offset = _read_checked(path, n_mels, -1)
    # The file's own bytes, not a copy of them: a loader copies them once more, into the batch.
    return np.frombuffer(content, "<f4", offset=offset).reshape(frames, n_mels)


def npy_rows(path: Path, n_mels: int) -> tuple[int, int]:
    """Return the number of rows of a file, and where they begin in bytes, from its header and its size alone.

    Raises:
        CacheFileError: as :func:`read_npy`.
    """
    return _read_checked(path, n_mels, _FIRST_READ_BYTES)[1:]


def _read_checked(path: Path, n_mels: int, most_bytes: int) -> tuple[bytes, int, int]:
    """Return the first bytes of a file (-1: all), the number of its rows, and where they begin in bytes."""
    try:
        with open_regular(path, buffering=0) as file:
            head = file.read(most_bytes)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise unreadable(path, error) from error
    frames, offset = array_header(path, head, n_mels)
    expected = offset + 4 * frames * n_mels
    if size != expected:
        what = "is truncated: it" if size < expected else "is too long: it"
        raise CacheFileError(path, f"{what} has {size} bytes, and its header ({frames} x {n_mels}) means {expected}")
    return head, frames, offset


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


def write_packed(path: Path, arrays: Iterable[Floats], rows: int, n_mels: int) -> None:
    """Write arrays ``[frames, n_mels]`` one below the other as one ``.npy`` file, whole or not at all.

    The header says the sum of their frames, ``rows``, before they are written.

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


def check_packed(path: Path, rows: int, n_mels: int) -> int:
    """Return where the rows begin, in bytes, in a file that holds ``[rows, n_mels]`` as float32 in C order.

    Reads the header and the file's size, not the rows.

    Raises:
        CacheFileError: the file is missing, of another type, order or shape, or shorter or longer than it should be.
    """
    found, offset = npy_rows(path, n_mels)
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


CACHE_VERSION: Final = 2
"""Version of the features' definition and of the files. History: 1, the first, with a float64 transform; 2, one file
less, for the index says itself whether it is complete."""

NPY: Final = "npy"
"""Directory of the features of single clips."""
INDEX: Final = "index.npz"
UNFINISHED: Final = "is of a cache that was not finished"
"""Reason of an error where an index is good, and not complete."""

HASH_BYTES: Final = 16
ENTRY: Final = np.dtype(
    [
        ("wav_bytes", "<i8"),
        ("wav_mtime_ns", "<i8"),
        ("wav_hash", "u1", (HASH_BYTES,)),  # BLAKE2b of the whole WAV file
        ("frames", "<i8"),
    ]
)
"""Layout of a clip's entry in the index."""


@dataclass(frozen=True, eq=False)
class Index:
    """The clips of a cache, in the order of its packed file."""

    ids: list[str]
    entries: npt.NDArray[np.void]
    """``[n]`` of :data:`ENTRY`."""

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def packed_rows(self) -> int:
        """Rows of the packed file."""
        return int(self.entries["frames"].sum())

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """``[n]`` first row of each clip in the packed file."""
        offsets: npt.NDArray[np.int64] = np.cumsum(self.entries["frames"]) - self.entries["frames"]
        return offsets

    def rows_of(self, data: SpeechData) -> npt.NDArray[np.int64]:
        """Return the row of each clip of a data set, ``[n]``; -1 where it is not in the cache."""
        rows = {clip_id: row for row, clip_id in enumerate(self.ids)}
        return np.array([rows.get(data.id(clip), -1) for clip in range(len(data))], np.int64)

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> Index:
        """Return the index of some rows, in the order given."""
        return Index([self.ids[row] for row in rows.tolist()], self.entries[rows])


EMPTY: Final = Index([], np.zeros(0, ENTRY))


def settings_key(features: FeatureSettings) -> str:
    """Return the hash of feature settings and :data:`CACHE_VERSION`, 16 hexadecimal digits."""
    content = json.dumps({"version": CACHE_VERSION, "features": features.model_dump()}, sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def write_index(path: Path, index: Index, features: FeatureSettings, *, complete: bool) -> None:
    """Write an index, whole or not at all; a ``complete`` one declares that the files are on the disk.

    Raises:
        OSError: the file cannot be written.
    """
    content = io.BytesIO()
    np.savez(
        content,
        key=np.array(settings_key(features)),
        complete=np.array(complete),
        ids=np.array([clip_id.encode() for clip_id in index.ids], np.bytes_),  # text of NumPy's may be none of Python's
        entries=index.entries,
    )
    atomic_write(path, content.getbuffer())


def read_index(path: Path, features: FeatureSettings, *, complete: bool = False) -> Index:
    """Read an index, and check that it is whole and of these settings, and ``complete`` where it has to be.

    Raises:
        CacheFileError: it is missing, damaged, of other settings, or not complete.
    """
    try:
        columns = read_arrays(io.BytesIO(read_bytes(path, JOURNAL_BYTES)))
        key, whole, ids, entries = (columns[name] for name in ("key", "complete", "ids", "entries"))
        if (entries.dtype, entries.ndim, ids.dtype.kind, ids.shape) != (ENTRY, 1, "S", entries.shape):
            raise ValueError("these are no ids with an entry each")
        index = Index([clip_id.decode() for clip_id in ids.tolist()], entries)
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, KeyError) as error:
        raise CacheFileError(path, "is damaged") from error
    if str(key) != settings_key(features):
        raise CacheFileError(path, "was made with other feature settings or another version")
    if (entries["frames"] <= 0).any():
        raise CacheFileError(path, "contradicts itself")
    if len(set(index.ids)) != len(index):
        raise CacheFileError(path, "names a clip twice")
    if complete and whole.tolist() is not True:
        raise CacheFileError(path, UNFINISHED)
    return index
