"""The files of a feature cache: features as ``.npy``, the index of its clips, and the manifest that declares all good.

Features are float32 with NumPy's header, one file a clip or one of all, written whole and read strictly: a constant
offset in place of the header, a file cut short by a full disk and an array in Fortran order all load without an error
somewhere, and training on noise follows. The *packed* file holds all clips one below the other.

The manifest is written last and removed first, and it names the index by its hash: an index, a packed file and ``.npy``
files without it, or of another time, are material for the next ``precompute`` and never a cache.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tokenize
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.lib.format as npy_format
import numpy.typing as npt
from pydantic import ValidationError

from xttsbench.errors import InvalidInputError
from xttsbench.files import atomic_file, atomic_write
from xttsbench.inputs import JOURNAL_BYTES, open_regular, read_arrays, read_bytes
from xttsbench.records.base import Record
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


CACHE_VERSION: Final = 1
"""Version of the features' definition and of the files. History: 1, the first, with a float64 transform."""

MANIFEST: Final = "manifest.json"
INDEX: Final = "index.npz"

HASH_BYTES: Final = 16
ENTRY: Final = np.dtype(
    [
        ("wav_bytes", "<i8"),  # or UNFINISHED
        ("wav_mtime_ns", "<i8"),
        ("wav_hash", "u1", (HASH_BYTES,)),  # BLAKE2b of the whole WAV file
        ("frames", "<i8"),
        ("offset", "<i8"),  # first row in the packed file
    ]
)
"""Layout of a clip's entry in the index."""

UNFINISHED: Final = -1
"""In place of the size of the WAV file: the features may be of any; the entry merely keeps the clip's place."""


class Manifest(Record):
    """Declares that index, packed file and ``.npy`` files belong together and are whole."""

    cache_version: int
    features: FeatureSettings
    clips: int
    frames: int
    """Rows of the packed file."""
    index_blake2b: str
    """Hash of the index file."""


@dataclass(frozen=True, eq=False)
class Index:
    """The clips of a cache, in the order of its packed file."""

    ids: list[str]
    entries: npt.NDArray[np.void]
    """``[n]`` of :data:`ENTRY`."""

    def __len__(self) -> int:
        return len(self.entries)

    def rows_of(self, data: SpeechData) -> npt.NDArray[np.int64]:
        """Return the row of each clip of a data set, ``[n]``; -1 where it is not in the cache."""
        rows = {clip_id: row for row, clip_id in enumerate(self.ids)}
        return np.array([rows.get(data.id(clip), -1) for clip in range(len(data))], np.int64)

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> Index:
        """Return the index of some rows, in the order given."""
        return Index([self.ids[row] for row in rows.tolist()], self.entries[rows])


def merged(indices: Sequence[Index]) -> Index:
    """Return one index of several; of an id that comes twice the later entry holds, in the earlier place."""
    ids = [clip_id for index in indices for clip_id in index.ids]
    latest = {clip_id: number for number, clip_id in enumerate(ids)}  # in the first's order, with the last's number
    entries = np.concatenate([EMPTY.entries, *(index.entries for index in indices)])
    return Index(list(latest), entries[np.fromiter(latest.values(), np.int64, len(latest))])


EMPTY: Final = Index([], np.zeros(0, ENTRY))


def packed_in_order(index: Index) -> Index:
    """Return the index with the offsets that its clips have one below the other."""
    entries = index.entries.copy()
    entries["offset"] = np.cumsum(entries["frames"]) - entries["frames"]
    return Index(index.ids, entries)


def settings_key(features: FeatureSettings) -> str:
    """Return the hash of feature settings and :data:`CACHE_VERSION`, 16 hexadecimal digits."""
    content = json.dumps({"version": CACHE_VERSION, "features": features.model_dump()}, sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def write_index(path: Path, index: Index, features: FeatureSettings) -> str:
    """Write an index, whole or not at all, and return the hash of the file.

    Raises:
        OSError: the file cannot be written.
    """
    content, ids = io.BytesIO(), [clip_id.encode() for clip_id in index.ids]
    np.savez(
        content,
        key=np.array(settings_key(features)),
        ids=np.frombuffer(b"".join(ids), np.uint8),
        starts=np.cumsum([0, *map(len, ids)]),
        entries=index.entries,
    )
    atomic_write(path, content.getbuffer())
    return _hash(content.getbuffer())


def read_index(path: Path, features: FeatureSettings, expected_hash: str | None = None) -> Index:
    """Read an index, and check that it is whole and of these settings.

    Without ``expected_hash`` the file may have any.

    Raises:
        CacheFileError: it is missing, damaged, or of other settings.
    """
    try:
        content = read_bytes(path, JOURNAL_BYTES)
    except OSError as error:
        raise unreadable(path, error) from error
    if expected_hash is not None and _hash(content) != expected_hash:
        raise CacheFileError(path, "is not the index that the manifest beside it names")
    try:
        columns = read_arrays(io.BytesIO(content))
        key, ids, starts, entries = (columns[name] for name in ("key", "ids", "starts", "entries"))
    except (ValueError, KeyError) as error:
        raise CacheFileError(path, "is damaged") from error
    if str(key) != settings_key(features):
        raise CacheFileError(path, "was made with other feature settings or another version")
    if (
        entries.dtype != ENTRY
        or ids.dtype != np.uint8
        or starts.dtype != np.int64
        or (entries.ndim, ids.ndim, starts.shape) != (1, 1, (len(entries) + 1,))
        or (starts[0], starts[-1]) != (0, len(ids))
        or (np.diff(starts) <= 0).any()
        or (entries["frames"] <= 0).any()
    ):
        raise CacheFileError(path, "contradicts itself")
    try:
        index = Index([ids[first:end].tobytes().decode() for first, end in pairwise(starts.tolist())], entries)
    except UnicodeDecodeError as error:
        raise CacheFileError(path, "contradicts itself") from error
    if len(set(index.ids)) != len(index):
        raise CacheFileError(path, "names a clip twice")
    return index


def write_manifest(directory: Path, index: Index, features: FeatureSettings, index_hash: str) -> None:
    """Declare the files of a directory a cache; they have to be on the disk.

    Raises:
        OSError: the manifest cannot be written.
    """
    manifest = Manifest(
        cache_version=CACHE_VERSION,
        features=features,
        clips=len(index),
        frames=int(index.entries["frames"].sum()),
        index_blake2b=index_hash,
    )
    atomic_write(directory / MANIFEST, manifest.model_dump_json(indent=2).encode() + b"\n")


def read_manifest(directory: Path, features: FeatureSettings) -> Manifest:
    """Read the manifest of a cache, and check its version and settings.

    Raises:
        CacheFileError: it is missing, malformed, or of another version or other settings.
    """
    path = directory / MANIFEST
    try:
        content = json.loads(read_bytes(path))
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise CacheFileError(path, "is not JSON") from error
    if difference := how_it_differs(content, features):
        raise CacheFileError(path, f"is of a cache that was made {difference}")
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise CacheFileError(path, "is not the manifest of a feature cache") from error


def how_it_differs(manifest: object, features: FeatureSettings) -> str | None:
    """Return how the version or settings of a manifest's content differ from what is asked for, in words, or None."""
    if not isinstance(manifest, dict):
        return None
    if (version := manifest.get("cache_version")) != CACHE_VERSION:
        return f"as version {version!r}, and this is version {CACHE_VERSION}"
    found = manifest.get("features")
    if not isinstance(found, dict):
        return None
    other = [
        f"{name} {found.get(name)!r} in place of {value!r}"
        for name, value in features.model_dump().items()
        if found.get(name) != value
    ]
    return f"with {', '.join(other)}" if other else None


def _hash(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=HASH_BYTES).hexdigest()
