"""Verification of a data set and its feature cache: each thing that is wrong, with its file and what to do.

It looks at sizes, times and headers of everything, and for a seeded sample of clips, or for all, it hashes the WAV
file, makes the features again and compares them. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.files import DRAFT_PREFIX, LOCK
from xttsbench.xtts.data.cache_files import (
    INDEX,
    NPY,
    PACKED,
    UNFINISHED,
    CacheFileError,
    Floats,
    open_packed,
    read_index,
    read_npy,
)
from xttsbench.xtts.data.feature_cache import cache_path, faults, read_cache, wav_hash
from xttsbench.xtts.data.pool import Progress, in_chunks
from xttsbench.xtts.data.speech_data import Problem, ProblemRule, SpeechData, usable
from xttsbench.xtts.features import FeatureSettings, log_mel
from xttsbench.xtts.wav import read_canonical_wav

TOLERANCE: Final = 1e-4
"""Largest difference between two log-mels that are called the same, as between loaders."""
SAMPLE_CLIPS: Final = 64
"""Clips whose features are made again where not all are."""

_CLIPS_A_JOB: Final = 96


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
    unfinished: bool = False
    """Whether there is no cache, or one that was not finished and has nothing in it that is none of its own."""


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
        return Verification(directory, cache, None, clips, 0, tuple(problems))
    found: list[Problem] = []
    index, unfinished = None, False
    try:
        index = read_cache(cache, features)
    except CacheFileError as error:
        # Without a packed file something may be known of the clips; without an index there is no cache.
        with suppress(CacheFileError):
            index = read_index(cache / INDEX, features, complete=True)
        unfinished = not cache.exists() or error.reason == UNFINISHED
        rule: ProblemRule = "stale-cache" if unfinished or not (cache / INDEX).exists() else "corrupt-cache"
        what = f"{error.path} {error.reason}" if cache.exists() else f"there is no feature cache: {cache}"
        found.append(Problem(rule=rule, clip=None, what=what, remedy=remedy))
    ids = set(data.metadata.ids)  # of unusable clips, too
    for name in _names(directory / "wavs"):
        if name.endswith(".wav") and not name.startswith(".") and name[:-4] not in ids:
            what, add = f"wavs/{name} is in no line of the metadata", "add its line, or move the file out of wavs/"
            problems.append(Problem(rule="bad-metadata", clip=None, what=what, remedy=add))
    for path in _strays(cache, ids):
        unfinished = False  # to finish it would leave them
        what = f"{path} is of no clip of the metadata, and no file of a feature cache"
        found.append(Problem(rule="orphaned-file", clip=None, what=what, remedy=remedy))
    for clip_id in () if index is None else sorted(set(index.ids) - ids):
        what = f"{cache / INDEX} has an entry for {clip_id!r}, which is in no line of the metadata"
        found.append(Problem(rule="orphaned-file", clip=None, what=what, remedy=remedy))
    suspects: set[int] = set()
    compared = 0
    if index is not None:
        packed_rows = None if any(problem.rule != "orphaned-file" for problem in found) else index.packed_rows
        rows, offsets, entries = index.rows_of(data), index.offsets, index.entries
        for fault in faults(data, features, cache, index, headers=None):
            suspects.add(fault.clip)
            found.append(_problem(data, fault.clip, fault.rule, fault.what, remedy))
        chosen = _chosen(len(data), suspects, everything, seed)
        compared = len(chosen)
        compare = partial(_compare, cache, features, packed_rows)
        jobs = [
            (clip, data.id(clip), data.wav(clip), entries[rows[clip]], int(offsets[rows[clip]]))
            for clip in chosen.tolist()
        ]
        for differences in in_chunks(compare, jobs, _CLIPS_A_JOB, workers, "clips compared", progress):
            for clip, rule, what in differences:
                suspects.add(clip)
                found.append(_problem(data, clip, rule, what, remedy))
    return Verification(directory, cache, data, clips, compared, (*problems, *found), unfinished)


def _strays(directory: Path, ids: Container[str]) -> Iterator[Path]:
    """Yield the files of a cache's directory that are of none of these clips, and those that are none of a cache's.

    Drafts of a process that makes the cache are passed over: the next one removes them.
    """
    for name in _names(directory):
        if name not in (NPY, INDEX, PACKED, LOCK) and not name.startswith(DRAFT_PREFIX):
            yield directory / name
    for name in _names(directory / NPY):
        if not (name.endswith(".npy") and name[:-4] in ids) and not name.startswith(DRAFT_PREFIX):
            yield directory / NPY / name


def _names(directory: Path) -> list[str]:
    with suppress(OSError):  # missing or unreadable, which is named elsewhere
        return sorted(os.listdir(directory))
    return []


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
    clips: Sequence[tuple[int, str, Path, np.void, int]],
) -> list[tuple[int, ProblemRule, str]]:
    """Compare the cached features of some clips with freshly made ones; runs in a process of its own.

    The packed file is left out where ``packed_rows`` is None. A clip has its number, id, WAV file, entry of the index,
    and first row in the packed file.
    """
    packed = None if packed_rows is None else open_packed(directory / PACKED, packed_rows, features.n_mels)
    found: list[tuple[int, ProblemRule, str]] = []
    for clip, clip_id, wav, entry, first in clips:
        if wav_hash(wav) != entry["wav_hash"].tobytes():
            what = "has another WAV file than when its features were made (same size and time of change)"
            found.append((clip, "stale-cache", what))
            continue
        cached = read_npy(directory / NPY / f"{clip_id}.npy", features.n_mels)
        fresh = log_mel(read_canonical_wav(wav, features.sample_rate_hz), features)
        if difference := _difference(cached, fresh):
            found.append((clip, "feature-mismatch", difference))
        rows = slice(first, first + int(entry["frames"]))
        if packed is not None and not np.array_equal(packed[rows], cached, equal_nan=True):
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
