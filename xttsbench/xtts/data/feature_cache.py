"""The feature cache of a data set: where it is, whether it is good, and what loaders read from it.

A directory holds ``npy/<id>.npy`` for each clip, ``packed.npy`` with all of them one below the other, and ``index.npz``
(what is known of each clip, and whether all are there). Checked on opening, without reading features: index, header and
size of the packed file, size of every ``.npy`` file, headers of some of them, and that no WAV file changed. Checked on
reading (:func:`~xttsbench.xtts.data.cache_files.read_npy`): every header.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.inputs import open_regular
from xttsbench.xtts.data.cache_files import (
    ENTRY,
    HASH_BYTES,
    INDEX,
    NPY,
    PACKED,
    CacheFileError,
    Index,
    check_packed,
    npy_bytes,
    npy_rows,
    read_index,
    settings_key,
)
from xttsbench.xtts.data.make import cache_directory
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings

_HEADERS_READ: Final = 256
"""Headers that opening a cache reads, evenly spaced: a cache that another program wrote shows in any of them."""

Rule = Literal["stale-cache", "corrupt-cache"]


@dataclass(frozen=True, eq=False)
class FeatureCache:
    """A cache that was checked, for the clips of one data set in its order."""

    directory: Path
    features: FeatureSettings
    data: SpeechData
    frames: npt.NDArray[np.int64]
    """``[n]`` frames of each clip."""
    offsets: npt.NDArray[np.int64]
    """``[n]`` first row of each clip in the packed file."""
    packed_rows: int
    """Rows of the packed file, which may hold further clips."""

    @property
    def packed(self) -> Path:
        """The file of all features: float32 ``[packed_rows, n_mels]``."""
        return self.directory / PACKED

    def npy(self, clip: int) -> Path:
        """Return the file of a clip's features: float32 ``[frames[clip], n_mels]``."""
        return self.directory / NPY / f"{self.data.id(clip)}.npy"


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a clip's features, for which they cannot be used; the next ``precompute`` makes them again."""

    clip: int
    rule: Rule
    what: str
    """To follow the clip's id."""


def cache_path(data: SpeechData | Path, features: FeatureSettings, root: Path | None = None) -> Path:
    """Return where the features of a data set are kept; nothing need be there yet.

    It is below ``root``, by default :func:`cache_directory`.
    """
    directory = (data if isinstance(data, Path) else data.directory).resolve()
    where = hashlib.blake2b(os.fsencode(directory), digest_size=4).hexdigest()
    name = f"{directory.name[:60] or 'root'}-{where}"  # the name is for people, the hash tells directories apart
    return (cache_directory() if root is None else root) / "features" / name / settings_key(features)


def open_cache(data: SpeechData, features: FeatureSettings, root: Path | None = None) -> FeatureCache:
    """Open the cache of a data set, after checking what the module's text says.

    A WAV file whose size and time of change are those of the index is taken as unchanged; of any other the content is
    hashed, so that a copied or merely touched one is no reason to refuse.

    Raises:
        InvalidInputError: there is no cache, or it lacks a clip, is damaged, or is of other settings, another version,
            or WAV files that changed since; the message names the clip or file, and the next step.
    """
    if data.sharded is not None:
        from xttsbench.xtts.data.shard_index import open_sharded  # which needs what is defined here

        return open_sharded(data, data.sharded, features)
    directory = cache_path(data, features, root)
    try:
        index = read_cache(directory, features)
    except CacheFileError as error:
        why = f"{error.path.name} {error.reason}" if directory.is_dir() else "it does not exist"
        raise _refusal(data, root, f"the feature cache {directory} cannot be used: {why}") from error
    if fault := next(faults(data, features, directory, index, headers=_HEADERS_READ), None):
        raise _refusal(data, root, f"the clip {data.id(fault.clip)!r} {fault.what} (feature cache {directory})")
    return opened(data, features, directory, index)


def opened(data: SpeechData, features: FeatureSettings, directory: Path, index: Index) -> FeatureCache:
    """Return a cache, all of whose clips are in its index."""
    rows = index.rows_of(data)
    return FeatureCache(
        directory, features, data, index.entries["frames"][rows], index.offsets[rows], index.packed_rows
    )


def read_cache(directory: Path, features: FeatureSettings) -> Index:
    """Read the index of a complete cache; its packed file fits it, and its clips are not looked at.

    Raises:
        CacheFileError: index or packed file are missing, damaged, or do not belong together.
    """

    def read() -> Index:
        index = read_index(directory / INDEX, features, complete=True)
        check_packed(directory / PACKED, index.packed_rows, features.n_mels)
        return index

    try:
        return read()
    except CacheFileError:
        return read()  # another process may have renewed the cache between our reads


def faults(
    data: SpeechData,
    features: FeatureSettings,
    directory: Path,
    index: Index,
    *,
    headers: int | None,
    wavs: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None,
) -> Iterator[Fault]:
    """Compare an index with the WAV files and ``.npy`` files that it is about, and yield what is wrong, by clip.

    Headers are read of so many ``.npy`` files, evenly spaced; None reads all. ``wavs`` are the :func:`wav_stats`, where
    they were read before.
    """
    n, rows = len(data), index.rows_of(data)
    npy = os.path.join(directory, NPY, "")  # paths are slow
    wav_bytes, mtimes_ns = wav_stats(data) if wavs is None else wavs
    npy_sizes, _ = _stats((f"{npy}{data.id(clip)}.npy" for clip in range(n)), n)
    known = index.entries[np.maximum(rows, 0)] if len(index) else np.zeros(n, ENTRY)
    suspects = (
        (rows < 0)
        | (wav_bytes != known["wav_bytes"])
        | (mtimes_ns != known["wav_mtime_ns"])
        | (data.samples // features.hop_samples != known["frames"])
        | (npy_sizes != npy_bytes(known["frames"], features.n_mels))
    )
    suspects[np.linspace(0, n - 1, n if headers is None else min(headers, n)).astype(np.int64)] = True
    for clip in np.flatnonzero(suspects).tolist():
        stale = _stale(data, features, clip, known[clip], int(wav_bytes[clip]), int(mtimes_ns[clip]))
        if rows[clip] < 0 or stale is not None:
            yield Fault(clip, "stale-cache", "is not in the cache" if rows[clip] < 0 else str(stale))
            continue
        path, expected = directory / NPY / f"{data.id(clip)}.npy", int(known["frames"][clip])
        try:
            frames = npy_rows(path, features.n_mels)[0]
        except CacheFileError as error:
            what = f"cannot be read from the cache: npy/{path.name} {error.reason}"
        else:
            what = f"has {frames} frames in npy/{path.name}, and {expected} in its WAV file"
            if frames == expected:
                continue
        yield Fault(clip, "corrupt-cache", what)


def _stale(
    data: SpeechData, features: FeatureSettings, clip: int, known: np.void, wav_bytes: int, mtime_ns: int
) -> str | None:
    """Say why a clip's features are not of its WAV file, if they are not."""
    if wav_bytes < 0:
        return "has lost its WAV file"
    other = "has another WAV file than when its features were made"
    if wav_bytes != known["wav_bytes"]:
        return f"{other} ({wav_bytes} bytes, {known['wav_bytes']} then)"
    if mtime_ns != known["wav_mtime_ns"] and wav_hash(data.wav(clip)) != known["wav_hash"].tobytes():
        return f"{other} (same size)"
    expected = features.frames(int(data.samples[clip]))
    return None if expected == known["frames"] else f"has {expected} frames, and {known['frames']} in the cache"


def wav_hash(path: Path) -> bytes:
    """Return the BLAKE2b hash of a WAV file, its header included.

    Raises:
        InvalidInputError: it cannot be read.
    """
    try:
        with open_regular(path, buffering=0) as file:
            return hashlib.blake2b(file.read(), digest_size=HASH_BYTES).digest()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read ({error.strerror or error}); make it readable") from error


def wav_stats(data: SpeechData) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the size and the time of change in nanoseconds of each WAV file, ``[n]``; -1 where it is missing."""
    wavs = os.path.join(data.directory, "wavs", "")
    return _stats((f"{wavs}{data.id(clip)}.wav" for clip in range(len(data))), len(data))


def _stats(paths: Iterable[str], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the size and the time of change in nanoseconds of each file, ``[n]``; -1 where there is none."""
    sizes, mtimes_ns = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    for number, path in enumerate(paths):
        try:
            found = os.stat(path)
        except OSError:
            continue
        sizes[number], mtimes_ns[number] = found.st_size, found.st_mtime_ns
    return sizes, mtimes_ns


def _refusal(data: SpeechData, root: Path | None, what: str) -> InvalidInputError:
    where = "" if root is None else f" --out {shlex.quote(str(root))}"
    command = f"xttsbench data precompute --data {shlex.quote(str(data.directory))}{where}"
    return InvalidInputError(f"{data.directory}: {what}; run '{command}'")
