"""The feature cache of a data set: where it is, whether it is good, and what loaders read from it.

A directory holds ``npy/<id>.npy`` for each clip, ``packed.npy`` with all of them one below the other, ``index.npz``
(what is known of each clip) and ``manifest.json``. Checked on opening, without reading features: manifest, index (by
its hash), header and size of the packed file, size of every ``.npy`` file, headers of some of them, and that no WAV
file changed. Checked on reading (:func:`~xttsbench.xtts.data.cache_files.read_npy`): every header.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.inputs import open_regular, read_bytes
from xttsbench.xtts.data.cache_files import (
    HASH_BYTES,
    INDEX,
    MANIFEST,
    PACKED,
    UNFINISHED,
    CacheFileError,
    Index,
    check_packed,
    how_it_differs,
    npy_bytes,
    npy_rows,
    packed_in_order,
    read_index,
    read_manifest,
    settings_key,
)
from xttsbench.xtts.data.make import cache_directory
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.data.strays import NPY
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
    directory = cache_path(data, features, root)
    try:
        index = read_cache(directory, features)
    except CacheFileError as error:
        there = (directory / MANIFEST).exists()
        why = f"{error.path.name} {error.reason}" if there else why_no_cache(directory, features)
        raise _refusal(data, root, f"the feature cache {directory} cannot be used: {why}") from error
    survey = Survey(data, features, directory, index)
    if fault := next(survey.faults(headers=_HEADERS_READ), None):
        raise _refusal(data, root, f"the clip {data.id(fault.clip)!r} {fault.what} (feature cache {directory})")
    return opened(data, features, directory, index, survey.rows)


def opened(
    data: SpeechData, features: FeatureSettings, directory: Path, index: Index, rows: npt.NDArray[np.int64]
) -> FeatureCache:
    """Return a cache whose clips have been found in these rows of its index."""
    entries = index.entries[rows]
    total = int(index.entries["frames"].sum())
    return FeatureCache(directory, features, data, entries["frames"].copy(), entries["offset"].copy(), total)


def read_cache(directory: Path, features: FeatureSettings) -> Index:
    """Read the index of a complete cache; its packed file fits it, and its clips are not looked at.

    Raises:
        CacheFileError: manifest, index or packed file are missing, damaged, or do not belong together.
    """
    for _ in range(5):
        manifest = read_manifest(directory, features)
        try:
            index = read_index(directory / INDEX, features, manifest.index_blake2b)
            if (packed_in_order(index).entries["offset"] != index.entries["offset"]).any():
                raise CacheFileError(directory / INDEX, f"does not match {PACKED}")
            check_packed(directory / PACKED, int(index.entries["frames"].sum()), features.n_mels)
        except CacheFileError:
            # Another process may have renewed the cache between our reads; then the manifest is another one.
            if read_manifest(directory, features) == manifest:
                raise
        else:
            return index
    raise CacheFileError(directory / MANIFEST, "keeps changing while it is read")


class Survey:
    """Compares an index with the files that it is about: WAV files and ``.npy`` files.

    Attributes:
        rows: ``[n]`` row of each clip in the index, -1 where it is not there.
        touched: clips whose WAV file has another time of change and the same content; complete after ``faults``.
        wav_mtimes_ns: ``[n]`` time of change of each WAV file.
    """

    def __init__(self, data: SpeechData, features: FeatureSettings, directory: Path, index: Index) -> None:
        self._data, self._features, self._npy = data, features, directory / NPY
        self._entries = index.entries
        self.rows = index.rows_of(data)
        self.touched: list[int] = []
        n, wavs = len(data), os.path.join(data.directory, "wavs", "")  # strings: a million paths take seconds
        self._wav_bytes, self.wav_mtimes_ns = _stats((f"{wavs}{data.id(clip)}.wav" for clip in range(n)), n)

    def faults(self, headers: int | None) -> Iterator[Fault]:
        """Yield what is wrong, by clip.

        Headers are read of so many ``.npy`` files, evenly spaced; None reads all.
        """
        n, n_mels = len(self._data), self._features.n_mels
        known = self._entries[np.maximum(self.rows, 0)] if len(self._entries) else np.zeros(n, self._entries.dtype)
        npy = os.path.join(self._npy, "")
        npy_sizes, _ = _stats((f"{npy}{self._data.id(clip)}.npy" for clip in range(n)), n)
        suspects = (
            (self.rows < 0)
            | (self._wav_bytes != known["wav_bytes"])
            | (self.wav_mtimes_ns != known["wav_mtime_ns"])
            | (self._data.samples // self._features.hop_samples != known["frames"])
            | (npy_sizes != npy_bytes(known["frames"], n_mels))
        )
        if headers is None or headers >= n:
            suspects[:] = True
        else:
            suspects[np.linspace(0, n - 1, headers).astype(np.int64)] = True
        for clip in np.flatnonzero(suspects).tolist():
            if fault := self._fault(clip, known[clip]):
                yield fault

    def _fault(self, clip: int, known: np.void) -> Fault | None:
        if self.rows[clip] < 0:
            return Fault(clip, "stale-cache", "is not in the cache")
        wav_bytes, mtime_ns = int(self._wav_bytes[clip]), int(self.wav_mtimes_ns[clip])
        if wav_bytes < 0:
            return Fault(clip, "stale-cache", "has lost its WAV file")
        if known["wav_bytes"] == UNFINISHED:
            return Fault(clip, "stale-cache", "has unfinished features in the cache")
        if wav_bytes != known["wav_bytes"]:
            what = (
                f"has another WAV file than when its features were made ({wav_bytes} bytes, {known['wav_bytes']} then)"
            )
            return Fault(clip, "stale-cache", what)
        if mtime_ns != known["wav_mtime_ns"]:
            if wav_hash(self._data.wav(clip)) != known["wav_hash"].tobytes():
                return Fault(clip, "stale-cache", "has another WAV file than when its features were made (same size)")
            self.touched.append(clip)
        expected = self._features.frames(int(self._data.samples[clip]))
        if expected != known["frames"]:
            return Fault(clip, "stale-cache", f"has {expected} frames, and {known['frames']} in the cache")
        path = self._npy / f"{self._data.id(clip)}.npy"
        try:
            frames = npy_rows(path, self._features.n_mels)[0]
        except CacheFileError as error:
            return Fault(clip, "corrupt-cache", f"cannot be read from the cache: npy/{path.name} {error.reason}")
        if frames != expected:
            return Fault(
                clip, "corrupt-cache", f"has {frames} frames in npy/{path.name}, and {expected} in its WAV file"
            )
        return None


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


def why_no_cache(directory: Path, features: FeatureSettings) -> str:
    """Say that a directory holds no cache, and how the caches beside it differ, if there are any."""
    if directory.is_dir():
        return "it was not finished"
    for path in sorted(directory.parent.glob(f"*/{MANIFEST}")):
        try:
            difference = how_it_differs(json.loads(read_bytes(path)), features)
        except (OSError, ValueError, RecursionError):
            continue
        if difference:
            return f"it does not exist; the one beside it was made {difference}"
    return "it does not exist"
