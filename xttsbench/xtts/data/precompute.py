"""Makes the feature cache of a data set: what is missing or stale, in several processes, and keeps the rest.

One process at a time makes a cache. Every file appears whole or not at all, and the index says last that all are there.
What is known of finished clips is noted in it every few seconds, so that a run that was interrupted resumes where it
was.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.files import DRAFT_PREFIX, free_bytes, locked, megabytes, require_space, sync
from xttsbench.xtts.data.cache_files import (
    EMPTY,
    ENTRY,
    INDEX,
    NPY,
    PACKED,
    CacheFileError,
    Floats,
    Index,
    read_index,
    read_npy,
    write_index,
    write_npy,
    write_packed,
)
from xttsbench.xtts.data.feature_cache import (
    FeatureCache,
    cache_path,
    faults,
    open_cache,
    opened,
    read_cache,
    wav_hash,
    wav_stats,
)
from xttsbench.xtts.data.pool import Progress, Silent, in_chunks
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.data.verification import Verification
from xttsbench.xtts.features import FeatureSettings, log_mel
from xttsbench.xtts.wav import read_canonical_wav

_NOTE_EVERY_S: Final = 5.0
_CLIPS_A_JOB: Final = 64
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ELSEWHERE: Final = "make room, or name another place (--out ROOT, or XTTSBENCH_CACHE), and run again"


@dataclass(frozen=True, eq=False)
class Made:
    """A cache that was made or found, and how much of it was made now."""

    cache: FeatureCache
    made: int
    """Clips whose features were made."""
    kept: int
    """Clips whose features were there."""
    replaced: Path | None = None
    """Folder of the cache that stood there before; None where there was none, or what was good of it was kept."""


def precompute(
    data: SpeechData, features: FeatureSettings, root: Path | None = None, progress: Progress | None = None
) -> FeatureCache:
    """Make what the cache of a data set lacks, and return it; :func:`make_cache` says more."""
    return make_cache(data, features, root, progress=progress).cache


def make_cache(
    data: SpeechData,
    features: FeatureSettings,
    root: Path | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Made:
    """Make the features of clips that are missing, damaged, or of a WAV file that changed since, and keep the rest.

    The data are all clips of their directory: the cache has these and no others, in this order, so that its files do
    not depend on what was there nor on the number of processes. The allowed cores work, and this process alone where
    the work is small, unless ``workers`` says how many.

    Raises:
        InvalidInputError: a WAV file cannot be used or is too short, or the disk is full.
        UsageError: the cache's directory cannot be written or locked.
        XttsbenchError: a process died.
    """
    if data.sharded is not None:  # features are all that it has
        return Made(open_cache(data, features), 0, len(data))
    _check_clips(data, features)
    progress = progress or Silent()
    directory = cache_path(data, features, root)
    found = _complete(data, features, directory)
    if found is not None:
        return Made(found, 0, len(data))
    try:
        with locked(directory, lambda: progress.update("waiting for another process that makes this cache", 0, 0)):
            return _make(data, features, directory, workers, progress)
    except OSError as error:
        raise _not_written(error, directory) from error


def mend(
    verification: Verification,
    features: FeatureSettings,
    root: Path | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Made | None:
    """Make a cache anew in which a verification found something wrong; None where nothing there can be mended.

    The old one is kept, whole, in a folder beside it; one that is missing or was not finished is finished. It may be
    broken off at any moment: the next one goes on from there.

    Raises:
        XttsbenchError: as :func:`make_cache`.
    """
    data, cache, wrong = verification.data, verification.cache, [one for one in verification.problems if one.in_cache]
    if data is None or not wrong:
        return None
    kept = None
    if not verification.unfinished:
        _check_clips(data, features)
        _require_room(data, features, cache, np.arange(len(data)))
        # Two levels, so that an index in it is never taken for that of a cache beside ours.
        kept = cache.with_name(f"{cache.name}.replaced") / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        try:
            with locked(cache, lambda: None):
                kept.parent.mkdir(exist_ok=True)
                cache.rename(kept)
        except OSError as error:
            raise _not_written(error, cache) from error
    return replace(make_cache(data, features, root, workers=workers, progress=progress), replaced=kept)


def _make(
    data: SpeechData, features: FeatureSettings, directory: Path, workers: int | None, progress: Progress
) -> Made:
    """Make a cache whose lock is held."""
    known = EMPTY
    with suppress(CacheFileError):  # nothing is known then, and everything made again
        known = read_index(directory / INDEX, features)
    clips = np.array([fault.clip for fault in faults(data, features, directory, known, headers=None)], np.int64)
    if not clips.size:
        with suppress(CacheFileError):  # another process made it while we waited
            return Made(opened(data, features, directory, read_cache(directory, features)), 0, len(data))
    _require_room(data, features, directory, clips)
    npy, ours = directory / NPY, {data.id(clip) for clip in range(len(data))}
    npy.mkdir(exist_ok=True)
    gone = {f"{clip_id}.npy" for clip_id in set(known.ids) - ours}
    for path in (*directory.iterdir(), *npy.iterdir()):  # drafts are of a process that died: nobody else has the lock
        if path.name.startswith(DRAFT_PREFIX) or (path.parent == npy and path.name in gone):
            path.unlink()
    good = known.take(np.delete(known.rows_of(data), clips))
    if len(good) < len(known):
        # Forget a clip before its file is replaced: broken off after that, the old entry would vouch for the new file.
        write_index(directory / INDEX, good, features, complete=False)
    index = _make_features(data, features, directory, good, clips, workers, progress)
    write_index(directory / INDEX, index, features, complete=False)
    other = np.flatnonzero(index.entries["frames"] != data.samples // features.hop_samples)
    if other.size:  # batches are planned by the length that the data set was read with
        wav = data.wav(int(other[0]))
        raise InvalidInputError(f"{wav} changed while the features were made; run again when nothing writes to it")
    _pack(directory, index, features, progress)
    for folder in (npy, directory):
        sync(folder)
    write_index(directory / INDEX, index, features, complete=True)
    sync(directory)
    return Made(opened(data, features, directory, index), len(clips), len(data) - len(clips))


def _make_features(
    data: SpeechData,
    features: FeatureSettings,
    directory: Path,
    good: Index,
    clips: npt.NDArray[np.int64],
    workers: int | None,
    progress: Progress,
) -> Index:
    """Make the features of clips, and return the index with them, in the order of the data."""
    parts, noted_s = [good], time.monotonic()

    def joined() -> Index:
        ids = [clip_id for part in parts for clip_id in part.ids]
        return Index(ids, np.concatenate([part.entries for part in parts]))

    try:
        jobs = [(data.id(clip), data.wav(clip)) for clip in clips.tolist()]
        make = partial(_make_clips, directory / NPY, features)
        for part in in_chunks(make, jobs, _CLIPS_A_JOB, workers, "features made", progress):
            parts.append(part)
            if time.monotonic() - noted_s >= _NOTE_EVERY_S:
                write_index(directory / INDEX, joined(), features, complete=False)
                noted_s = time.monotonic()
    except BaseException:
        if len(parts) > 1:
            with suppress(OSError):  # what stopped us may be that the disk is full
                write_index(directory / INDEX, joined(), features, complete=False)
        raise
    index = joined()
    return index.take(index.rows_of(data))


def _pack(directory: Path, index: Index, features: FeatureSettings, progress: Progress) -> None:
    def arrays() -> Iterator[Floats]:
        progress.update("clips packed", 0, len(index))
        for number, clip_id in enumerate(index.ids, start=1):
            yield read_npy(directory / NPY / f"{clip_id}.npy", features.n_mels)
            if number % 64 == 0 or number == len(index):
                progress.update("clips packed", number, len(index))

    write_packed(directory / PACKED, arrays(), index.packed_rows, features.n_mels)


def _require_room(data: SpeechData, features: FeatureSettings, directory: Path, clips: npt.NDArray[np.int64]) -> None:
    """Raise where the disk has no room for the files of some clips, and for a packed file beside the old one."""
    frames = data.samples // features.hop_samples
    require_space(directory, 4 * features.n_mels * int(frames.sum() + frames[clips].sum()))


def _make_clips(npy: Path, features: FeatureSettings, clips: Sequence[tuple[str, Path]]) -> Index:
    """Write the features of some clips, and return their index; runs in a process of its own."""
    entries = np.zeros(len(clips), ENTRY)
    for entry, (clip_id, wav) in zip(entries, clips, strict=True):
        before = _identity(wav)
        mel = log_mel(read_canonical_wav(wav, features.sample_rate_hz), features)
        digest = wav_hash(wav)
        if before is None or _identity(wav) != before:
            raise InvalidInputError(f"{wav} changed while its features were made; run again when nothing writes to it")
        write_npy(npy / f"{clip_id}.npy", mel)
        entry["wav_bytes"], entry["wav_mtime_ns"] = before
        entry["wav_hash"] = np.frombuffer(digest, np.uint8)
        entry["frames"] = len(mel)
    return Index([clip_id for clip_id, _ in clips], entries)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None  # whoever reads the file says what is wrong with it
    return found.st_size, found.st_mtime_ns


def _complete(data: SpeechData, features: FeatureSettings, directory: Path) -> FeatureCache | None:
    """Return the cache if nothing is to be made; a read-only one will do."""
    try:
        index = read_cache(directory, features)
    except CacheFileError:
        return None
    wavs = wav_stats(data)  # before files are hashed: one that changes meanwhile is looked at again
    if next(faults(data, features, directory, index, headers=None, wavs=wavs), None):
        return None
    if (index.entries["wav_mtime_ns"][index.rows_of(data)] != wavs[1]).any():
        _note_times(data, features, directory, wavs[1])
    return opened(data, features, directory, index)


def _note_times(data: SpeechData, features: FeatureSettings, directory: Path, mtimes_ns: npt.NDArray[np.int64]) -> None:
    """Note when WAV files were touched or copied that are the same else: each opening would hash them again."""
    with suppress(OSError, CacheFileError), locked(directory, lambda: None):  # a read-only cache keeps the old times
        index = read_index(directory / INDEX, features, complete=True)
        entries = index.entries.copy()
        entries["wav_mtime_ns"][index.rows_of(data)] = mtimes_ns
        write_index(directory / INDEX, Index(index.ids, entries), features, complete=True)


def _check_clips(data: SpeechData, features: FeatureSettings) -> None:
    if data.sample_rate_hz != features.sample_rate_hz:
        raise InvalidInputError(
            f"{data.directory}: its clips were read at {data.sample_rate_hz} Hz, and the features are of "
            f"{features.sample_rate_hz} Hz; read the data set at the recipe's rate"
        )
    fewest = features.fewest_samples
    short = np.flatnonzero(data.samples < fewest)
    if short.size:
        clip = int(short[0])
        raise InvalidInputError(
            f"{data.directory}: the clip {data.id(clip)!r} has {data.samples[clip]} samples, and features need "
            f"{fewest} ({short.size} of {len(data)} clips are too short); take them out of the metadata"
        )


def _not_written(error: OSError, directory: Path) -> InvalidInputError | UsageError:
    if error.errno in _FULL:
        free = megabytes(free_bytes(directory))
        return InvalidInputError(
            f"{directory}: the disk or a limit is full ({error.strerror}, {free} are free); what was made is kept; "
            f"{_ELSEWHERE}"
        )
    return UsageError(
        f"the feature cache {directory} cannot be written: {error.filename or directory}: {error.strerror or error}; "
        "make it writable, or name another place (--out ROOT, or XTTSBENCH_CACHE)"
    )
