"""The index of a sharded data set: what is known of all clips, in columns that are mapped into memory and not parsed.

A directory holds ``manifest.json``, written last; ``index/NAME.npy``, a column each; and ``shard-NNNNN.npy`` with the
features of consecutive clips one below the other, each beside ``shard-NNNNN.json``, which has the frames and the CRC-32
of each clip. Where the shards are elsewhere ``remote.json`` says where. Ten million clips are opened in a second or two
(``benchmarks/large_index.py``), with no object of Python's for any of them.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.lib.format as npy_format
import numpy.typing as npt
from pydantic import Field, ValidationError

from xttsbench.errors import InvalidInputError, first_line
from xttsbench.files import atomic_file
from xttsbench.inputs import RECORD_BYTES, read_bytes
from xttsbench.records.base import Record
from xttsbench.xtts.data.cache_files import HEADER_BYTES
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.metadata import METADATA, Metadata, held_out, key
from xttsbench.xtts.data.shard_files import Files, sha256_of
from xttsbench.xtts.data.speech_data import SpeechData, Split
from xttsbench.xtts.features import FeatureSettings

MANIFEST: Final = "manifest.json"
REMOTE: Final = "remote.json"
INDEX: Final = "index"
COLUMNS: Final = {
    "samples": "<i8",
    "speakers": "<i4",
    "text_lengths": "<i4",
    "held_out": "|b1",
    "offsets": "<i8",  # first row of each clip in all shards, one below the other
    "crc32": "<u4",  # of each clip's features
    "id_ends": "<i8",
    "text_ends": "<i8",
    "ids": "|u1",  # in UTF-8, one after the other
    "texts": "|u1",
    "text_ids": "|u1",  # as the model reads them, one after the other, and a 0 at the end
}
"""Columns of the index; those of the last three have a byte a row, the others a clip."""
R = TypeVar("R", bound=Record)


class File(Record):
    """File of a sharded data set."""

    bytes: int
    sha256: str


class ShardIndex(Record):
    """Index of one shard."""

    shard: int
    source: str
    """Hash of what it was made from: feature settings, ids, and the WAV files' hashes."""
    sha256: str
    frames: tuple[int, ...]
    crc32: tuple[int, ...]


class Manifest(Record):
    """Declaration that all files of a sharded data set are there, and which they are."""

    schema_version: Literal[1] = 1
    features: FeatureSettings
    clips: int
    speaker_names: tuple[str, ...]
    seed: int | None
    """Seed that decided which clips are held out; ``None`` where the data set said it itself."""
    frames: tuple[int, ...]
    """Frames of each shard."""
    files: dict[str, File]


class Remote(Record):
    """Place of the shards of a directory that has the index alone."""

    url: str
    in_flight: int = Field(32, ge=1, le=1024)
    """Requests at once, at most."""


class Strings(Sequence[str]):
    """Texts in one buffer, each decoded when it is asked for."""

    def __init__(self, content: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        self._content, self._ends = content, ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: Any) -> Any:
        begin = int(self._ends[number - 1]) if number else 0
        return self._content[begin : int(self._ends[number])].tobytes().decode()


def joined(texts: Iterable[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the buffer of :class:`Strings`, and where each text ends."""
    content = [text.encode() for text in texts]
    return np.frombuffer(b"".join(content), np.uint8), np.cumsum([len(part) for part in content], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Sharded:
    """Sharded data set that was opened."""

    directory: Path
    manifest: Manifest

    def column(self, name: str, *, whole: bool = False) -> npt.NDArray[Any]:
        """Return a column, mapped and read-only; ``whole`` reads it all, so that its memory is free after use.

        Raises:
            InvalidInputError: its file is missing, or another than the manifest says.
        """
        path = self.directory / column_name(name)
        try:
            self.check_size(column_name(name))
            found = np.load(path, mmap_mode=None if whole else "r", allow_pickle=False).view(np.ndarray)
            if found.dtype != COLUMNS[name] or found.ndim != 1:
                raise ValueError(f"it holds {found.dtype.str} {found.shape}, and {COLUMNS[name]} [n] is expected")
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise InvalidInputError(f"{path} cannot be used: {first_line(error)}") from error
        return found

    def check_size(self, name: str) -> None:
        """Raise ``ValueError`` where a file has another size than the manifest says."""
        size, due = (self.directory / name).stat().st_size, self.manifest.files[name].bytes
        if size != due:
            raise ValueError(f"it has {size} bytes, and {due} by the manifest")

    def sha256(self, rows: npt.NDArray[np.integer]) -> str:
        """Return the hash of what decides the batches of some of its clips."""
        sha = hashlib.sha256(rows.astype(np.int64).tobytes())
        for name in ("ids", "texts", "samples", "speakers"):
            sha.update(self.manifest.files[column_name(name)].sha256.encode())
        return sha.hexdigest()

    @cached_property
    def remote(self) -> Remote | None:
        """Place of the shards; ``None`` where they are in the directory."""
        return read_record(self.directory / REMOTE, Remote) if (self.directory / REMOTE).exists() else None

    def files(self) -> Files:
        """Return what reads the shards and their indexes."""
        return Files(self.directory if self.remote is None else self.remote.url)


@dataclass(frozen=True, eq=False)
class ShardedCache(FeatureCache):
    """Features of a sharded data set; its offsets are those of the shards one below the other."""

    sharded: Sharded
    firsts: list[int]
    """First row of each shard."""

    def place(self, clip: int) -> tuple[int, int]:
        """Return the shard of a clip's features, and the byte where they begin in its file."""
        row = int(self.offsets[clip])
        shard = bisect_right(self.firsts, row) - 1
        return shard, HEADER_BYTES + 4 * self.features.n_mels * (row - self.firsts[shard])


def shard_name(shard: int, ending: str = "npy") -> str:
    """Return the name of the file of a shard, or of its index (``json``)."""
    return f"shard-{shard:05d}.{ending}"


def column_name(column: str) -> str:
    """Return the name of a column's file."""
    return f"{INDEX}/{column}.npy"


def is_sharded(directory: Path) -> bool:
    """Whether a directory holds a sharded data set, or its index; others may have a manifest of their own."""
    return (directory / MANIFEST).is_file() and not (directory / METADATA).exists()


def read_record(path: Path, kind: type[R]) -> R:
    """Read a record in JSON.

    Raises:
        InvalidInputError: it is missing or damaged.
    """
    try:
        return kind.model_validate_json(read_bytes(path, RECORD_BYTES))
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        raise InvalidInputError(f"{path} is damaged: {where + ': ' if where else ''}{found['msg']}") from error


def write_columns(directory: Path, columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, File]:
    """Write the columns of an index, each whole or not at all, and return what the manifest says of them."""
    (directory / INDEX).mkdir(exist_ok=True)
    for name, column in columns.items():
        with atomic_file(directory / column_name(name)) as file:
            npy_format.write_array(file, np.ascontiguousarray(column, COLUMNS[name]), allow_pickle=False)
    return {column_name(name): file_of(directory / column_name(name)) for name in columns}


def file_of(path: Path) -> File:
    """Return what the manifest says of a file."""
    size = path.stat().st_size
    return File(bytes=size, sha256=sha256_of(Files(path.parent), path.name, size))


def read_sharded(directory: Path, sample_rate_hz: int, split: Split, seed: int) -> SpeechData:
    """Read a sharded data set, as :func:`xttsbench.xtts.data.speech_data.read_speech_data` does any other.

    Raises:
        InvalidInputError: it is damaged, of another sample rate, or has no clip for the split.
    """
    manifest = read_record(directory / MANIFEST, Manifest)
    sharded = Sharded(directory, manifest)
    if sample_rate_hz != (rate := manifest.features.sample_rate_hz):
        raise InvalidInputError(f"{directory}: its features are of {rate} Hz, and the recipe's of {sample_rate_hz} Hz")
    ids = Strings(sharded.column("ids"), sharded.column("id_ends"))
    if split == "all":
        rows = np.arange(manifest.clips, dtype=np.int32)
    else:
        out = sharded.column("held_out", whole=True)
        if manifest.seed not in (None, seed):
            out = held_out(np.fromiter((key(seed, clip_id) for clip_id in ids), np.uint64, len(ids)))
        rows = np.flatnonzero(out if split == "eval" else ~out).astype(np.int32)
    if not len(rows):
        raise InvalidInputError(f"{directory}: no clip of {manifest.clips} is for the split {split!r}; add clips")
    samples, speakers, lengths = (
        sharded.column(name, whole=True)[rows] for name in ("samples", "speakers", "text_lengths")
    )
    texts = Strings(sharded.column("texts"), sharded.column("text_ends"))
    lines = range(1, manifest.clips + 1)
    metadata = Metadata(ids, texts, sharded.column("text_lengths"), np.zeros(0, np.uint64), lines, None)
    return SpeechData(
        directory, sample_rate_hz, samples, speakers, manifest.speaker_names, lengths, metadata, rows, sharded
    )


def open_sharded(data: SpeechData, sharded: Sharded, features: FeatureSettings) -> ShardedCache:
    """Open the features of a sharded data set; of shards in the directory the sizes are looked at.

    Raises:
        InvalidInputError: they are of other settings, or a file is missing or of another size.
    """
    manifest = sharded.manifest
    if manifest.features != features:
        raise InvalidInputError(f"{data.directory}: its features were made with other settings than the recipe's")
    for shard in range(len(manifest.frames) if sharded.remote is None else 0):
        try:
            sharded.check_size(shard_name(shard))
        except (OSError, ValueError) as error:
            where = data.directory / shard_name(shard)
            raise InvalidInputError(f"{where} cannot be used: {error}; run 'xttsbench data shard' again") from error
    frames = np.array(manifest.frames, np.int64)
    offsets = sharded.column("offsets", whole=True)[data.rows]
    ours = data.samples // features.hop_samples
    firsts = (np.cumsum(frames) - frames).tolist()
    return ShardedCache(data.directory, features, data, ours, offsets, int(frames.sum()), sharded, firsts)
