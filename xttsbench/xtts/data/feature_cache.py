"""The feature cache of a data set: where it is, whether it is good, and what loaders read from it.

A directory holds ``npy/<id>.npy`` for each clip, ``packed.npy`` with all of them one below the other, ``index.npz``
(what is known of each clip) and ``manifest.json``. Checked on opening, without reading features: manifest, index (by
its hash), header and size of the packed file, size of every ``.npy`` file, headers of some of them, and that no WAV
file changed. Checked on reading (:func:`~xttsbench.xtts.data.cache_files.read_npy`): every header. :func:`verify` looks
at sizes, times and headers of everything, and for a seeded sample of clips, or for all, it hashes the WAV file, makes
the features again and compares them. WAV files and metadata are never written.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
    Floats,
    Index,
    check_packed,
    how_it_differs,
    npy_bytes,
    npy_rows,
    open_packed,
    packed_in_order,
    read_index,
    read_manifest,
    read_npy,
    settings_key,
)
from xttsbench.xtts.data.make import cache_directory
from xttsbench.xtts.data.pool import Progress, allowed_workers, in_chunks
from xttsbench.xtts.data.speech_data import Problem, ProblemRule, SpeechData, usable
from xttsbench.xtts.data.strays import NPY, metadata_ids, strays, unlisted_wavs
from xttsbench.xtts.features import FeatureSettings, log_mel
from xttsbench.xtts.wav import read_canonical_wav

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


TOLERANCE: Final = 1e-4
"""Largest difference between two log-mels that are called the same, as between loaders."""
SAMPLE_CLIPS: Final = 64
"""Clips whose features are made again where not all are."""

_CLIPS_A_JOB: Final = 16
_WORTH_PROCESSES: Final = 256


@dataclass(frozen=True, eq=False)
class Verification:
    """Result of a verification: the range that was checked, and the faults."""

    directory: Path
    cache: Path
    data: SpeechData | None
    """The clips that can be used; None where there is none."""
    clips: int
    """Clips of the metadata, unusable ones included."""
    compared: int
    """Clips whose features were made again and compared."""
    problems: tuple[Problem, ...]
    suspects: tuple[int, ...]
    """Clips of ``data`` whose features in the cache are not to be trusted."""


def verify(
    directory: Path,
    features: FeatureSettings,
    root: Path | None = None,
    *,
    everything: bool = False,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
    remedy: str = "run 'xttsbench data verify --fix'",
) -> Verification:
    """Look for what is wrong with a data set and its cache.

    Compared are :data:`SAMPLE_CLIPS` clips, which the seed decides, or ``everything``; ``remedy`` is what to do about
    the cache.

    Raises:
        InvalidInputError: the directory is no data set, or its metadata cannot be read at all.
    """
    data, clips, problems = usable(directory, features)
    cache = cache_path(directory, features, root)
    if data is None:
        return Verification(directory, cache, None, clips, 0, tuple(problems), ())
    found: list[Problem] = []
    if not (cache / MANIFEST).exists() and not (cache / INDEX).exists():
        what = f"there is no feature cache: {cache}: {why_no_cache(cache, features)}"
        found.append(Problem(rule="stale-cache", clip=None, what=what, remedy=remedy))
    else:
        try:
            read_cache(cache, features)
        except CacheFileError as error:
            what = f"{error.path} {error.reason}"
            found.append(Problem(rule="corrupt-cache", clip=None, what=what, remedy=remedy))
    index = None
    try:  # of the clips something may be known even where manifest or packed file are damaged
        index = read_index(cache / INDEX, features)
    except CacheFileError as error:
        if not found:
            what = f"{error.path} {error.reason}"
            found.append(Problem(rule="corrupt-cache", clip=None, what=what, remedy=remedy))
    ids = metadata_ids(data)
    for name in unlisted_wavs(data, ids):
        what, add = f"wavs/{name} is in no line of the metadata", "add its line, or move the file out of wavs/"
        problems.append(Problem(rule="bad-metadata", clip=None, what=what, remedy=add))
    for path in strays(cache, ids):
        what = f"{path} is of no clip of the metadata, and no file of a feature cache"
        found.append(Problem(rule="orphaned-file", clip=None, what=what, remedy=remedy))
    for clip_id in () if index is None else sorted(set(index.ids) - ids):
        what = f"{cache / INDEX} has an entry for {clip_id!r}, which is in no line of the metadata"
        found.append(Problem(rule="orphaned-file", clip=None, what=what, remedy=remedy))
    suspects: set[int] = set()
    compared = 0
    if index is not None:
        packed_rows = (
            None if any(problem.rule != "orphaned-file" for problem in found) else int(index.entries["frames"].sum())
        )
        survey = Survey(data, features, cache, index)
        for fault in survey.faults(headers=None):
            suspects.add(fault.clip)
            found.append(_problem(data, fault.clip, fault.rule, fault.what, remedy))
        chosen = _chosen(len(data), suspects, everything, seed)
        compared = len(chosen)
        if workers is None:
            workers = allowed_workers() if compared > _WORTH_PROCESSES else 1
        compare = partial(_compare, cache, features, packed_rows)
        for _, differences in in_chunks(
            compare,
            chosen.tolist(),
            _CLIPS_A_JOB,
            workers,
            "clips compared",
            progress,
            as_job=lambda clip: (clip, data.id(clip), data.wav(clip), index.entries[survey.rows[clip]]),
        ):
            for clip, rule, what in differences:
                suspects.add(clip)
                found.append(_problem(data, clip, rule, what, remedy))
    return Verification(directory, cache, data, clips, compared, (*problems, *found), tuple(sorted(suspects)))


def _problem(data: SpeechData, clip: int, rule: ProblemRule, what: str, remedy: str) -> Problem:
    """Return a problem of a clip's features, which names the file."""
    clip_id = data.id(clip)
    file = f"wavs/{clip_id}.wav" if rule == "stale-cache" else f"npy/{clip_id}.npy"
    return Problem(rule=rule, clip=clip_id, what=what if file in what else f"{what} ({file})", remedy=remedy)


def _chosen(clips: int, suspects: set[int], everything: bool, seed: int) -> npt.NDArray[np.int64]:
    """Return the clips to compare, rising; those that are known to be wrong need no comparing."""
    sound = np.setdiff1d(np.arange(clips), np.fromiter(suspects, np.int64, len(suspects)))
    if everything or len(sound) <= SAMPLE_CLIPS:
        return sound
    return np.sort(np.random.default_rng(seed).choice(sound, SAMPLE_CLIPS, replace=False))


def _compare(
    directory: Path,
    features: FeatureSettings,
    packed_rows: int | None,
    clips: Sequence[tuple[int, str, Path, np.void]],
) -> list[tuple[int, ProblemRule, str]]:
    """Compare the cached features of some clips with freshly made ones; runs in a process of its own.

    The packed file is left out where ``packed_rows`` is None. A clip has its number, id, WAV file and index entry.
    """
    packed = None if packed_rows is None else open_packed(directory / PACKED, packed_rows, features.n_mels)
    found: list[tuple[int, ProblemRule, str]] = []
    for clip, clip_id, wav, entry in clips:
        if wav_hash(wav) != entry["wav_hash"].tobytes():
            what = "has another WAV file than when its features were made (same size and time of change)"
            found.append((clip, "stale-cache", what))
            continue
        cached = read_npy(directory / NPY / f"{clip_id}.npy", features.n_mels)
        fresh = log_mel(read_canonical_wav(wav, features.sample_rate_hz), features)
        if difference := _difference(cached, fresh):
            found.append((clip, "feature-mismatch", difference))
        first, frames = int(entry["offset"]), int(entry["frames"])
        if packed is not None and not np.array_equal(packed[first : first + frames], cached, equal_nan=True):
            found.append((clip, "corrupt-cache", f"has other rows in {PACKED} than in npy/{clip_id}.npy"))
    return found


def _difference(cached: Floats, fresh: Floats) -> str | None:
    if cached.shape != fresh.shape:
        return f"has features of the shape {cached.shape} in the cache, and {fresh.shape} when made again"
    difference = np.where(np.isfinite(cached), np.abs(cached.astype(np.float64) - fresh), np.inf)
    largest = float(difference.max())
    if largest <= TOLERANCE:
        return None
    frame, mel = divmod(int(difference.argmax()), difference.shape[1])
    how = "are not finite" if np.isinf(largest) else f"differ by up to {largest:.3g} from those made again"
    return f"has features in the cache that {how} (frame {frame}, mel {mel}; tolerance {TOLERANCE:g})"
