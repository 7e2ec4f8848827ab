"""What a feature cache knows of each clip, in columns, and the manifest that declares all of it good.

The manifest is written last and removed first, and it names the index by its hash: an index, a packed file and ``.npy``
files without it, or of another time, are material for the next ``precompute`` and never a cache.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from xttsbench.files import atomic_write
from xttsbench.records.base import Record
from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.data.feature_files import CacheFileError, unreadable
from xttsbench.xtts.data.metadata import Strings, StringsBuilder
from xttsbench.xtts.data.speech_data import SpeechData

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
"""What is known of one clip."""

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

    ids: Strings
    entries: npt.NDArray[np.void]
    """``[n]`` of :data:`ENTRY`."""

    def __len__(self) -> int:
        return len(self.entries)

    def raw_ids(self) -> list[bytes]:
        """Return the ids in UTF-8; a list of Python objects, to be dropped soon."""
        starts, buffer = self.ids.starts.tolist(), bytes(self.ids.buffer)
        return [buffer[start:end] for start, end in pairwise(starts)]

    def rows_of(self, data: SpeechData) -> npt.NDArray[np.int64]:
        """Return the row of each clip of a data set, ``[n]``; -1 where it is not in the cache."""
        rows = np.full(len(data), -1, np.int64)
        starts, buffer, expected = self.ids.starts, bytes(self.ids.buffer), 0
        known: dict[bytes, int] | None = None
        for clip in range(len(data)):
            clip_id = data.id(clip).encode()
            row = -1
            # A cache is nearly always in the order of its data set: then no table of all ids is needed.
            if expected < len(self) and buffer[starts[expected] : starts[expected + 1]] == clip_id:
                row = expected
            else:
                if known is None:
                    known = {own: number for number, own in enumerate(self.raw_ids())}
                row = known.get(clip_id, -1)
            rows[clip] = row
            expected = row + 1 if row >= 0 else expected
        return rows

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> Index:
        """Return the index of some rows, in the order given."""
        ids = self.raw_ids()
        return index_of([ids[row] for row in rows], self.entries[rows])


def index_of(ids: Sequence[bytes], entries: npt.NDArray[np.void]) -> Index:
    """Return the index of clips with these ids (UTF-8) and entries."""
    builder = StringsBuilder()
    for clip_id in ids:
        builder.append(clip_id)
    return Index(builder.build(), entries)


def merged(indices: Sequence[Index]) -> Index:
    """Return one index of several; of an id that comes twice the later entry holds, in the earlier place."""
    indices = [index for index in indices if len(index)]
    if len(indices) < 2:
        return indices[0] if indices else EMPTY
    ids = [clip_id for index in indices for clip_id in index.raw_ids()]
    entries = np.concatenate([index.entries for index in indices])
    latest = {
        clip_id: number for number, clip_id in enumerate(ids)
    }  # in the order of the first, with the last's number
    return index_of(list(latest), entries[np.fromiter(latest.values(), np.int64, len(latest))])


EMPTY: Final = index_of([], np.zeros(0, ENTRY))


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
    content = io.BytesIO()
    np.savez(
        content,
        key=np.array(settings_key(features)),
        ids=np.frombuffer(bytes(index.ids.buffer), np.uint8),
        starts=index.ids.starts,
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
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if expected_hash is not None and _hash(content) != expected_hash:
        raise CacheFileError(path, "is not the index that the manifest beside it names")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as columns:
            key, ids, starts, entries = (columns[name] for name in ("key", "ids", "starts", "entries"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
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
    return Index(Strings(ids.tobytes(), starts), entries)


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
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
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
