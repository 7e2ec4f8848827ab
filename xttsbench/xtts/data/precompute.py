"""Makes the feature cache of a data set: what is missing or stale, in several processes, and keeps the rest.

One process at a time makes a cache. Every file appears whole or not at all, and the manifest, without which nothing
counts, is written last. What is known of finished clips is noted in the index every few seconds, so that a run that
was interrupted resumes where it was.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.files import DRAFT_PREFIX, free_bytes, locked, megabytes, sync
from xttsbench.xtts.data.cache_files import (
    EMPTY,
    ENTRY,
    INDEX,
    MANIFEST,
    PACKED,
    UNFINISHED,
    CacheFileError,
    Floats,
    Index,
    merged,
    npy_rows,
    packed_in_order,
    read_index,
    read_npy,
    write_index,
    write_manifest,
    write_npy,
    write_packed,
)
from xttsbench.xtts.data.feature_cache import (
    FeatureCache,
    Survey,
    cache_path,
    opened,
    read_cache,
    wav_hash,
)
from xttsbench.xtts.data.metadata import why_not_an_id
from xttsbench.xtts.data.pool import Progress, Silent, allowed_workers, in_chunks
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.data.strays import NPY, Replaced, metadata_ids, strays
from xttsbench.xtts.data.verification import Verification
from xttsbench.xtts.features import FeatureSettings, log_mel
from xttsbench.xtts.wav import read_canonical_wav

_NOTE_EVERY_S: Final = 5.0
_WORTH_PROCESSES_S: Final = 1200.0
"""Sound, in seconds, whose features are made by the time that a new process has started."""
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
    """Folder of what was replaced or orphaned; None where nothing was, or it was not kept."""


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
    again: Collection[int] = (),
    replaced: Replaced | None = None,
) -> Made:
    """Make the features of clips that are missing, damaged, or of a WAV file that changed since, and keep the rest.

    The cache keeps clips of the same directory that ``data`` leaves out, such as those of another split, as long as
    their WAV files are there. The features do not depend on the number of processes. The clips of ``again`` are made
    again although they look right. The allowed cores work, and this process alone where the work is small, unless
    ``workers`` says how many. With ``replaced`` nothing is deleted or written over: it goes there, orphans too, and the
    packed file is in the order of ``data``.

    Raises:
        InvalidInputError: a WAV file cannot be used or is too short, or the disk is full.
        UsageError: the cache's directory cannot be written or locked.
        XttsbenchError: a process died.
    """
    _check_clips(data, features)
    progress = progress or Silent()
    directory = cache_path(data, features, root)
    found, touched = (None, False) if again or replaced else _complete(data, features, directory)
    if found and not touched:
        return Made(found, 0, len(data))
    try:
        with locked(directory, lambda: progress.update("waiting for another process that makes this cache", 0, 0)):
            return _Maker(data, features, directory, progress, replaced).make(workers, again)
    except OSError as error:
        if found:
            return Made(found, 0, len(data))  # only the times of change in it are old, and it cannot be written
        raise _not_written(error, directory) from error


def mend(
    verification: Verification,
    features: FeatureSettings,
    root: Path | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Made | None:
    """Make again what a verification found wrong in a cache; None where nothing there can be mended.

    All that is replaced is kept in a folder beside the cache. It may be broken off at any moment: what is not mended
    then is found, and mended, the next time.

    Raises:
        XttsbenchError: as :func:`make_cache`.
    """
    if verification.data is None or not any(problem.in_cache for problem in verification.problems):
        return None
    replaced = Replaced(verification.cache)
    again = verification.suspects
    made = make_cache(
        verification.data, features, root, workers=workers, progress=progress, again=again, replaced=replaced
    )
    return replace(made, replaced=replaced.directory if replaced.directory.exists() else None)


class _Maker:
    """Makes one cache, whose lock is held."""

    def __init__(
        self,
        data: SpeechData,
        features: FeatureSettings,
        directory: Path,
        progress: Progress,
        replaced: Replaced | None = None,
    ) -> None:
        self.data, self.features, self.directory, self.progress = data, features, directory, progress
        self.replaced, self.listed = replaced, metadata_ids(data) if replaced else frozenset[str]()

    def make(self, workers: int | None, again: Collection[int]) -> Made:
        if self.replaced:
            if not (self.directory / NPY).is_dir():
                self.replaced.move(self.directory / NPY)
            for path in list(strays(self.directory, self.listed)):
                self.replaced.move(path)
        (self.directory / NPY).mkdir(exist_ok=True)
        for left in self.directory.rglob(f"{DRAFT_PREFIX}*"):  # by a process that died: nobody else has the lock
            left.unlink(missing_ok=True)
        known = EMPTY
        with suppress(CacheFileError):  # nothing is known then, and everything made again
            known = read_index(self.directory / INDEX, self.features)
        survey = Survey(self.data, self.features, self.directory, known)
        clips = np.array(sorted({fault.clip for fault in survey.faults(headers=None)} | set(again)), np.int64)
        if survey.touched:
            known.entries["wav_mtime_ns"][survey.rows[survey.touched]] = survey.wav_mtimes_ns[survey.touched]
        gone = self._gone(known, survey.rows)
        known = known if not gone.any() else known.take(np.flatnonzero(~gone))
        places = known.rows_of(self.data)[clips]
        places = places[places >= 0]
        complete = not gone.any() and not places.size
        if complete:
            try:
                read_cache(self.directory, self.features)
            except CacheFileError:
                complete = False
        if not (clips.size or survey.touched) and complete:  # another process made it while we waited
            return Made(opened(self.data, self.features, self.directory, known, survey.rows), 0, len(self.data))
        if clips.size or not complete:
            self._require_room(clips, known)
            self._keep(clips)
        if gone.any() or places.size:
            # Forget a clip before its file is replaced: broken off after that, the old entry would vouch for the new
            # file. Without it this process, or the next, makes the clip again. It keeps its place in the packed file.
            known.entries["wav_bytes"][places] = UNFINISHED
            self._note(known)
        known = self._make_features(known, clips, workers)
        rows = known.rows_of(self.data)
        self._check_lengths(known, rows)
        if clips.size or not complete:
            if self.replaced:  # in the order that a cache made from scratch has
                known = known.take(np.concatenate([rows, np.setdiff1d(np.arange(len(known)), rows)]))
                rows = np.arange(len(rows))
            known = packed_in_order(known)
            self._pack(known)
        self._publish(known)
        cache = opened(self.data, self.features, self.directory, known, rows)
        return Made(cache, len(clips), len(self.data) - len(clips))

    def _keep(self, clips: npt.NDArray[np.int64]) -> None:
        """Move away what will be written anew, the manifest first; without it and its file no clip counts as good."""
        if self.replaced:
            self.replaced.move(self.directory / MANIFEST)
            self.replaced.copy(self.directory / INDEX)  # a copy: what it knows of the other clips is still needed
            self.replaced.move(self.directory / PACKED)
            for clip in clips.tolist():
                self.replaced.move(self.directory / NPY / f"{self.data.id(clip)}.npy")

    def _make_features(self, known: Index, clips: npt.NDArray[np.int64], workers: int | None) -> Index:
        """Make the features of clips, and return the index with them."""
        seconds = self.data.samples[clips].sum() / self.data.sample_rate_hz
        if workers is None:
            workers = allowed_workers() if seconds > _WORTH_PROCESSES_S else 1
        size = max(1, min(_CLIPS_A_JOB, -(-len(clips) // (4 * workers))))
        make = partial(_make_clips, self.directory / NPY, self.features)
        made, noted, noted_s = [known], 1, time.monotonic()
        try:
            for _, index in in_chunks(
                make,
                clips.tolist(),
                size,
                workers,
                "features made",
                self.progress,
                as_job=lambda clip: (self.data.id(clip), self.data.wav(clip)),
            ):
                made.append(index)
                if time.monotonic() - noted_s >= _NOTE_EVERY_S:
                    self._note(merged(made))
                    noted, noted_s = len(made), time.monotonic()
        finally:  # packing may fail, too
            if len(made) > noted:
                with suppress(OSError):  # what stopped us may be that the disk is full
                    self._note(merged(made))
        return merged(made)

    def _check_lengths(self, known: Index, rows: npt.NDArray[np.int64]) -> None:
        """Raise where a WAV file has changed since the data set was read: batches are planned by its length then."""
        other = np.flatnonzero(known.entries["frames"][rows] != self.data.samples // self.features.hop_samples)
        if other.size:
            wav = self.data.wav(int(other[0]))
            raise InvalidInputError(f"{wav} changed while the features were made; run again when nothing writes to it")

    def _note(self, index: Index) -> None:
        """Keep what is known of clips for the next process; without its manifest the index is that of no cache."""
        (self.directory / MANIFEST).unlink(missing_ok=True)
        write_index(self.directory / INDEX, index, self.features)

    def _pack(self, index: Index) -> None:
        """Write the packed file; there is no manifest from its renaming on."""
        total = len(index)

        def arrays() -> Iterator[Floats]:
            self.progress.update("clips packed", 0, total)
            for row in range(total):
                yield read_npy(self.directory / NPY / f"{index.ids[row]}.npy", self.features.n_mels)
                if row % 64 == 63 or row == total - 1:
                    self.progress.update("clips packed", row + 1, total)

        write_packed(
            self.directory / PACKED,
            arrays(),
            int(index.entries["frames"].sum()),
            self.features.n_mels,
            before_renaming=lambda: (self.directory / MANIFEST).unlink(missing_ok=True),
        )

    def _publish(self, index: Index) -> None:
        """Write index and manifest; then, and not before, the cache is good."""
        sync(self.directory / NPY)
        (self.directory / MANIFEST).unlink(missing_ok=True)
        index_hash = write_index(self.directory / INDEX, index, self.features)
        sync(self.directory)
        write_manifest(self.directory, index, self.features, index_hash)
        sync(self.directory)

    def _gone(self, known: Index, ours: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which clips have left the data set, or are not ours and damaged, ``[n]``; remove their files."""
        gone, others = np.zeros(len(known), np.bool_), np.ones(len(known), np.bool_)
        others[ours[ours >= 0]] = False
        wavs = self.data.directory / "wavs"
        for row in np.flatnonzero(others).tolist():
            clip_id = known.ids[row]
            if why_not_an_id(clip_id):
                gone[row] = True
                continue
            path = self.directory / NPY / f"{clip_id}.npy"
            try:
                whole = npy_rows(path, self.features.n_mels)[0] == known.entries["frames"][row]
                whole = whole and known.entries["wav_bytes"][row] != UNFINISHED
            except CacheFileError:
                whole = False
            left = self.replaced is not None and clip_id not in self.listed
            if left or not whole or not (wavs / f"{clip_id}.wav").is_file():
                gone[row] = True
                if self.replaced:
                    self.replaced.move(path)
                else:
                    path.unlink(missing_ok=True)
        return gone

    def _require_room(self, clips: npt.NDArray[np.int64], known: Index) -> None:
        frames = int((self.data.samples[clips] // self.features.hop_samples).sum())
        # The new files, and a new packed file beside the old one.
        needed_bytes = 4 * self.features.n_mels * (2 * frames + int(known.entries["frames"].sum()))
        if needed_bytes > (free := free_bytes(self.directory)):
            raise InvalidInputError(
                f"{self.directory}: the disk is too full for the feature cache: about {megabytes(needed_bytes)} are "
                f"needed, {megabytes(free)} are free; {_ELSEWHERE}"
            )


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


def _complete(data: SpeechData, features: FeatureSettings, directory: Path) -> tuple[FeatureCache | None, bool]:
    """Return the cache if nothing is to be made, and whether times of change in it are old.

    Needs no lock and writes nothing, so that a read-only cache will do.
    """
    try:
        index = read_cache(directory, features)
    except CacheFileError:
        return None, False
    survey = Survey(data, features, directory, index)
    if next(survey.faults(headers=None), None):
        return None, False
    return opened(data, features, directory, index, survey.rows), bool(survey.touched)


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
