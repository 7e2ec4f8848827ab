"""Data sets of synthesised speech: seeded real WAV input without a download, written whole, made once.

``made.json`` beside the clips says what a set was made from, so that the same call finds it and another one is refused.
Sets are kept in one place per user, the default set among them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import platformdirs
from pydantic import ValidationError

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.files import Draft, draft, first_entry, not_written, require_space, sync, write_lines
from xttsbench.inputs import read_bytes
from xttsbench.records.base import Record
from xttsbench.xtts.data.metadata import METADATA, SPEAKERS
from xttsbench.xtts.data.pool import Progress, in_chunks
from xttsbench.xtts.data.speech_data import MADE
from xttsbench.xtts.data.synthesis import SAMPLE_RATE_HZ, VOICES, utterance
from xttsbench.xtts.wav import wav_bytes, write_wav

MAKER_VERSION: Final = 3
"""Version of the bytes that :mod:`xttsbench.xtts.data.make` writes; part of a set's name, so that old sets are left."""

DEFAULT_CLIPS: Final = 256
DEFAULT_MIN_S: Final = 1.0
DEFAULT_MAX_S: Final = 10.0
DEFAULT_SEED: Final = 0
DEFAULT_SPEAKERS: Final = 4
MAX_CLIPS: Final = 1_000_000
MIN_S: Final = 0.3
MAX_S: Final = 60.0
"""Bounds of what may be asked for."""
_CLIPS_A_JOB: Final = 8
_METADATA_BYTES_A_CLIP: Final = 300
_BLOCK_BYTES: Final = 4096  # what a file takes at least on most file systems
Wanted = tuple[int, int, int, float, float, int]


def cache_directory() -> Path:
    """Return where made data are kept, as an absolute path: ``XTTSBENCH_CACHE``, else the user's cache directory."""
    return Path(os.environ.get("XTTSBENCH_CACHE") or platformdirs.user_cache_dir("xttsbench")).absolute()


def made_data(clips: int, seed: int, min_s: float, max_s: float, speakers: int = DEFAULT_SPEAKERS) -> Path:
    """Return where the set that these arguments make is kept; it need not be there yet."""
    fewer = "" if speakers == DEFAULT_SPEAKERS else f"-{speakers}speakers"
    return cache_directory() / f"speech-v{MAKER_VERSION}-{clips}x{min_s:g}-{max_s:g}s-seed{seed}{fewer}"


def default_data() -> Path:
    """Return where the set that every command without ``--data`` uses is kept; it need not be there yet."""
    return made_data(DEFAULT_CLIPS, DEFAULT_SEED, DEFAULT_MIN_S, DEFAULT_MAX_S)


class MadeData(Record):
    """A made set: what it was made from, and what it holds."""

    maker_version: int
    clips: int
    seed: int
    min_s: float
    max_s: float
    sample_rate_hz: int
    seconds: float
    """Duration of all clips."""
    speakers: int
    bytes: int
    """Size of the WAV files."""

    def wanted(self) -> Wanted:
        """Settings that determine every byte of the set."""
        return self.maker_version, self.clips, self.seed, self.min_s, self.max_s, self.speakers


def ensure_default_data(progress: Progress | None = None) -> Path:
    """Return the directory of the set that every command without ``--data`` uses, made now if it was not there.

    Raises:
        XttsbenchError: as :func:`make_data`.
    """
    directory = default_data()
    make_data(directory, DEFAULT_CLIPS, DEFAULT_SEED, DEFAULT_MIN_S, DEFAULT_MAX_S, progress=progress)
    return directory


def make_data(
    directory: Path,
    count: int,
    seed: int,
    min_s: float,
    max_s: float,
    *,
    speakers: int = len(VOICES),
    workers: int | None = None,
    progress: Progress | None = None,
) -> MadeData:
    """Make a set unless it is there: ``metadata.csv``, ``speakers.csv``, ``wavs/`` and ``made.json``.

    The same arguments give the same bytes, whatever the number of workers. Two processes may make the same set at the
    same time; one of them gives it its name, and both succeed. The directory is empty, missing, or the same set. The
    allowed cores work, and one where the work is small, unless ``workers`` says how many.

    Raises:
        UsageError: a value is out of range, or the directory holds something else or cannot be made.
        InvalidInputError: the disk is full, or the set that is there was damaged.
    """
    if not (1 <= count <= MAX_CLIPS and 0 <= seed < 2**63 and MIN_S <= min_s <= max_s <= MAX_S):
        raise UsageError(
            f"1 <= utterances <= {MAX_CLIPS}, 0 <= seed < 2**63 and {MIN_S} <= min-s <= max-s <= {MAX_S:g} must hold; "
            f"got {count}, {seed}, {min_s:g} and {max_s:g}"
        )
    if not 1 <= speakers <= len(VOICES):
        raise UsageError(f"1 <= speakers <= {len(VOICES)} must hold; got {speakers}")
    directory = directory.resolve()
    wanted = (MAKER_VERSION, count, seed, float(min_s), float(max_s), min(count, speakers))
    if found := _existing(directory, wanted):
        return found
    seconds = count * (min_s + max_s) / 2
    needed_bytes = round(2 * seconds * SAMPLE_RATE_HZ) + count * (_BLOCK_BYTES // 2 + _METADATA_BYTES_A_CLIP)
    require_space(directory, needed_bytes)
    try:
        with draft(directory) as made:
            record = _fill(made, wanted, workers, progress)
            if made.publish():
                return record
    except OSError as error:
        raise not_written(error, directory, needed_bytes) from error
    # Another process was faster; what it made has our bytes, or is something else and refused.
    if found := _existing(directory, wanted):
        return found
    raise InvalidInputError(f"{directory} was made and removed by another process meanwhile; run again")


def _fill(made: Draft, wanted: Wanted, workers: int | None, progress: Progress | None) -> MadeData:
    version, count, seed, min_s, max_s, voices = wanted
    wavs = made.directory / "wavs"
    wavs.mkdir()
    make = partial(_make_clips, wavs, (seed, min_s, max_s, voices))
    clips = []
    for some in in_chunks(make, range(count), _CLIPS_A_JOB, workers, "clips made", progress):
        clips += some
    write_lines(made.directory / METADATA, (f"{clip_id}|{text}|{text}\n" for clip_id, text, _ in clips))
    write_lines(made.directory / SPEAKERS, (f"{clip_id}|{clip_id.partition('-')[0]}\n" for clip_id, _, _ in clips))
    record = MadeData(
        maker_version=version,
        clips=count,
        seed=seed,
        min_s=min_s,
        max_s=max_s,
        sample_rate_hz=SAMPLE_RATE_HZ,
        seconds=round(sum(samples for _, _, samples in clips) / SAMPLE_RATE_HZ, 3),
        speakers=voices,
        bytes=sum(wav_bytes(samples) for _, _, samples in clips),
    )
    write_lines(made.directory / MADE, [record.model_dump_json(indent=2), "\n"])
    return record


def _make_clips(
    wavs: Path, wanted: tuple[int, float, float, int], indices: Sequence[int]
) -> list[tuple[str, str, int]]:
    """Write some clips, and return the id, text and samples of each; runs in a process of its own."""
    made = []
    for index in indices:
        clip = utterance(index, *wanted)
        path = wavs / f"{clip.id}.wav"
        write_wav(path, clip.samples, SAMPLE_RATE_HZ)
        sync(path)
        made.append((clip.id, clip.text, len(clip.samples)))
    return made


def _existing(directory: Path, wanted: Wanted) -> MadeData | None:
    """Return the record of a set that is there, or None where there is nothing yet."""
    taken = first_entry(directory)
    if taken is None:
        return None
    try:
        record = MadeData.model_validate_json(read_bytes(directory / MADE))
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{directory} holds {taken!r} and is not a set that 'xttsbench data make' made; "
            "name a directory that is empty or does not exist"
        ) from error
    if record.wanted() != wanted:
        raise UsageError(
            f"{directory} holds another set: version {record.maker_version}, --utterances {record.clips} "
            f"--seed {record.seed} --min-s {record.min_s:g} --max-s {record.max_s:g} --speakers {record.speakers}; "
            "name another directory"
        )
    # Clips may have been lost or cut since; sizes are compared, not bytes.
    try:
        sizes = [entry.stat().st_size for entry in os.scandir(directory / "wavs") if entry.name.endswith(".wav")]
        files = all((directory / name).stat().st_size for name in (METADATA, SPEAKERS))
    except OSError:
        sizes, files = [], False
    if not files or (len(sizes), sum(sizes)) != (record.clips, record.bytes):
        raise InvalidInputError(
            f"{directory}: the set was changed since it was made: {len(sizes)} WAV files of {sum(sizes)} bytes where "
            f"{record.clips} of {record.bytes} were; delete the directory and run again"
        )
    return record
