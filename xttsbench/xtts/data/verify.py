"""Looks for all that is wrong with a data set and its feature cache, and makes again what can be made.

Sizes, times and headers of everything are looked at; for a seeded sample of clips, or for all, the WAV file is hashed
and the features are made again and compared. WAV files and metadata are never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from xttsbench.xtts.data.cache_files import (
    INDEX,
    MANIFEST,
    PACKED,
    CacheFileError,
    Floats,
    Index,
    open_packed,
    read_index,
    read_npy,
)
from xttsbench.xtts.data.feature_cache import NPY, Survey, cache_path, read_cache, wav_hash, why_no_cache
from xttsbench.xtts.data.pool import Progress, allowed_workers, in_chunks
from xttsbench.xtts.data.precompute import Made, make_cache
from xttsbench.xtts.data.speech_data import Problem, ProblemRule, SpeechData, usable
from xttsbench.xtts.features import FeatureSettings, log_mel
from xttsbench.xtts.wav import read_canonical_wav

TOLERANCE: Final = 1e-4
"""Largest difference between two log-mels that are called the same, as between loaders."""
SAMPLE_CLIPS: Final = 64
"""Clips whose features are made again where not all are."""

_CLIPS_A_JOB: Final = 16
_WORTH_PROCESSES: Final = 256


@dataclass(frozen=True, eq=False)
class Verification:
    """What was looked at, and what is wrong with it."""

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
    found = list(_cache_problems(cache, features, remedy))
    index = _index(cache, features)
    suspects: set[int] = set()
    compared = 0
    if index is not None:
        packed_rows = None if found else int(index.entries["frames"].sum())
        survey = Survey(data, features, cache, index)
        for fault in survey.faults(headers=None):
            suspects.add(fault.clip)
            found.append(Problem(rule=fault.rule, clip=data.id(fault.clip), what=fault.what, remedy=remedy))
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
                found.append(Problem(rule=rule, clip=data.id(clip), what=what, remedy=remedy))
    return Verification(directory, cache, data, clips, compared, (*problems, *found), tuple(sorted(suspects)))


def mend(
    verification: Verification,
    features: FeatureSettings,
    root: Path | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Made | None:
    """Make again what :func:`verify` found wrong in the cache; None where nothing there can be mended.

    Raises:
        XttsbenchError: as :func:`xttsbench.xtts.data.precompute.make_cache`.
    """
    if verification.data is None or not any(problem.in_cache for problem in verification.problems):
        return None
    again = verification.suspects
    return make_cache(verification.data, features, root, workers=workers, progress=progress, again=again)


def _cache_problems(cache: Path, features: FeatureSettings, remedy: str) -> Iterator[Problem]:
    """Yield what is wrong with a cache as a whole."""
    if not (cache / MANIFEST).exists() and not (cache / INDEX).exists():
        what = f"there is no feature cache: {cache}: {why_no_cache(cache, features)}"
        yield Problem(rule="stale-cache", clip=None, what=what, remedy=remedy)
        return
    try:
        read_cache(cache, features)
    except CacheFileError as error:
        yield Problem(rule="corrupt-cache", clip=None, what=f"{error.path} {error.reason}", remedy=remedy)


def _index(cache: Path, features: FeatureSettings) -> Index | None:
    """Return what is known of the clips, even where manifest or packed file are damaged."""
    try:
        return read_index(cache / INDEX, features)
    except CacheFileError:
        return None


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
