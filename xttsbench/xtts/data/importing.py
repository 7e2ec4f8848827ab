"""Brings other data sets into canonical form: LJSpeech's layout, mono, 16-bit PCM, one rate.

Any sound is taken that :mod:`xttsbench.xtts.wav` reads, from the source's directory only, whatever its listing says.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from sys import intern
from typing import Final

import numpy as np

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.files import draft, first_entry, not_written, require_space, sync, write_lines
from xttsbench.records.base import Record
from xttsbench.xtts.data.listings import SoundFolder, find_listings, read_listing
from xttsbench.xtts.data.metadata import (
    EVAL_METADATA,
    METADATA,
    ONE_SPEAKER,
    SPEAKERS,
    SYMBOLS,
    Problems,
    encoded_length,
    why_not_an_id,
)
from xttsbench.xtts.data.pool import Progress, Silent, in_chunks
from xttsbench.xtts.data.speech_data import MIN_CLIP_S
from xttsbench.xtts.wav import (
    MAX_RATE_HZ,
    MIN_RATE_HZ,
    WavError,
    read_sound,
    read_sound_header,
    resample,
    wav_bytes,
    write_wav,
)

IMPORT: Final = "import.json"
_CLIPS_A_JOB: Final = 16


class Skipped(Record):
    """A clip that was left out."""

    where: str
    reason: str


class ImportedData(Record):
    """Summary of an import."""

    source: str
    clips: int
    """Clips, held-out ones included."""
    eval_clips: int | None
    """None where the source does not say which clips are held out."""
    seconds: float
    speakers: int
    bytes: int
    """Size of the WAV files written."""
    sample_rate_hz: int
    forms: dict[str, int]
    """Clips of each form that the source has."""
    clipped: int
    """Clips with samples outside of -1..1, which were cut to it."""
    peak: float
    """Largest magnitude before that."""
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class _Clip:
    """A clip that can be imported, as far as its header shows; small, for there may be a million."""

    id: str
    path: str
    raw_text: str
    text: str
    speaker: str
    form: str
    held_out: bool


def import_data(
    source: Path,
    out: Path,
    *,
    metadata: Path | None = None,
    eval_metadata: Path | None = None,
    sample_rate_hz: int = 22_050,
    skip_unreadable: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> ImportedData:
    """Import a data set into a directory that is empty or does not exist; whole or not at all.

    The directory gets ``metadata.csv``, ``metadata_eval.csv`` where the source holds clips out, ``speakers.csv``,
    ``wavs/`` and ``import.json``. The listings are by default those that :func:`find_listings` finds. With
    ``skip_unreadable`` what cannot be used is left out, and listed in the result. The allowed cores work, and one where
    the work is small, unless ``workers`` says how many.

    Raises:
        UsageError: ``out`` holds something or cannot be made, or the rate is out of range.
        InvalidInputError: the source is not a data set, clips cannot be used, or the disk is full.
    """
    if not MIN_RATE_HZ <= sample_rate_hz <= MAX_RATE_HZ:
        raise UsageError(f"--rate: {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz are possible, got {sample_rate_hz}")
    if not source.is_dir():
        what = "is a file" if source.exists() else "there is no such directory"
        raise InvalidInputError(f"{source}: {what}; name the directory of a data set")
    out = out.resolve()
    if (taken := first_entry(out)) is not None:
        raise UsageError(f"{out} holds {taken!r} already; name a directory that is empty or does not exist")
    progress = progress or Silent()
    unusable = Problems()
    clips, seconds = _clips(source, find_listings(source, metadata, eval_metadata), unusable, progress)
    _check(unusable, source, skip_unreadable, len(clips))
    needed_bytes = round(2 * seconds * sample_rate_hz) + len(clips) * (4096 // 2)
    require_space(out, needed_bytes)
    good: list[_Clip] = []
    lengths, peaks = [], []
    try:
        with draft(out) as made:
            wavs = made.directory / "wavs"
            wavs.mkdir()
            jobs = [(clip.path, clip.id) for clip in clips]
            convert = partial(_convert, str(wavs), sample_rate_hz)
            results = in_chunks(convert, jobs, _CLIPS_A_JOB, workers, "clips imported", progress)
            for clip, result in zip(clips, chain.from_iterable(results), strict=True):
                if isinstance(result, str):
                    unusable.add("unreadable", os.path.relpath(clip.path, source), result)
                else:
                    good.append(clip)
                    lengths.append(result[0])
                    peaks.append(result[1])
            _check(unusable, source, skip_unreadable, len(good))
            record = ImportedData(
                source=str(source),
                clips=len(good),
                eval_clips=sum(clip.held_out for clip in good) or None,
                seconds=round(sum(lengths) / sample_rate_hz, 3),
                speakers=len({clip.speaker for clip in good}),
                bytes=sum(map(wav_bytes, lengths)),
                sample_rate_hz=sample_rate_hz,
                forms=dict(Counter(clip.form for clip in good).most_common()),
                clipped=sum(peak > 1 for peak in peaks),
                peak=round(max(peaks), 6),
                skipped=tuple(Skipped(where=issue.where, reason=issue.what) for issue in unusable.issues),
            )
            _write_texts(made.directory, source, good, record)
            if not made.publish():
                raise UsageError(f"{out} was made by another process meanwhile; name another directory")
    except OSError as error:
        raise not_written(error, out, needed_bytes) from error
    return record


def _write_texts(directory: Path, source: Path, clips: Sequence[_Clip], record: ImportedData) -> None:
    for name, held_out in ((METADATA, False), (EVAL_METADATA, True)):
        lines = [f"{clip.id}|{clip.raw_text}|{clip.text}\n" for clip in clips if clip.held_out is held_out]
        if not lines and not held_out:
            raise InvalidInputError(f"{source}: all {len(clips)} usable clips are held out; none is left to train on")
        if lines:
            write_lines(directory / name, lines)
    write_lines(directory / SPEAKERS, (f"{clip.id}|{clip.speaker}\n" for clip in clips))
    write_lines(directory / IMPORT, [record.model_dump_json(indent=2), "\n"])


def _check(unusable: Problems, source: Path, skip: bool, usable: int) -> None:
    if unusable and not (skip and usable):
        remedy = "No clip is left" if skip else "Mend them, or leave them out with --skip-unreadable"
        raise unusable.error(str(source), usable + len(unusable), remedy)
    if not usable:
        raise InvalidInputError(f"{source}: its listing names no clip; name another with --metadata")


def _clips(
    source: Path, listings: tuple[Path, Path | None], unusable: Problems, progress: Progress
) -> tuple[list[_Clip], float]:
    """Return the clips that can be used and how long they last in seconds; what is wrong with the others is noted."""
    folder = SoundFolder(source)
    first_of: dict[str, str] = {}
    clips: list[_Clip] = []
    seconds = 0.0
    for listing in filter(None, listings):
        for entry in read_listing(listing, unusable):
            if not encoded_length(entry.text):
                what = (
                    f"no character of {entry.text[:40]!r} is among {SYMBOLS!r}" if entry.text else "the text is empty"
                )
                unusable.add("without text", entry.where, what)
                continue
            found = folder.find(entry.audio, listing.parent)
            if isinstance(found, str):
                unusable.add("without a WAV file", entry.where, found)
                continue
            clip_id, path = found
            if reason := why_not_an_id(clip_id):
                unusable.add("with a bad id", entry.where, reason)
                continue
            if clip_id in first_of:
                what = f"the clip {clip_id!r} is listed at {first_of[clip_id]} too"
                unusable.add("listed twice", entry.where, what)
                continue
            try:
                header = read_sound_header(path)
                if not MIN_RATE_HZ <= header.sample_rate_hz <= MAX_RATE_HZ:
                    reason = f"says {header.sample_rate_hz} Hz, which no speech has"
                elif header.frames < MIN_CLIP_S * header.sample_rate_hz:
                    reason = f"lasts {header.frames} samples, and {MIN_CLIP_S:g} s is the least"
            except WavError as error:
                reason = error.reason
            if reason:
                unusable.add("unreadable", os.path.relpath(path, source), reason)
                continue
            first_of[clip_id] = entry.where
            speaker, form = intern(entry.speaker or ONE_SPEAKER), intern(header.form)
            held_out = listing is listings[1]
            clips.append(_Clip(clip_id, path, entry.raw_text, entry.text, speaker, form, held_out))
            seconds += header.frames / header.sample_rate_hz
            if len(clips) % 1000 == 0:
                progress.update("headers read", len(clips), 0)
    return clips, seconds


def _convert(wavs: str, sample_rate_hz: int, clips: Sequence[tuple[str, str]]) -> list[tuple[int, float] | str]:
    """Convert some clips; of each return its samples and peak, or why it cannot be read. Runs in its own process."""
    converted: list[tuple[int, float] | str] = []
    for path, clip_id in clips:
        try:
            samples, rate_hz = read_sound(path)
        except WavError as error:
            converted.append(error.reason)
            continue
        samples = resample(samples, rate_hz, sample_rate_hz)
        target = os.path.join(wavs, f"{clip_id}.wav")
        write_wav(target, samples, sample_rate_hz)
        sync(Path(target))
        converted.append((len(samples), float(np.max(np.abs(samples)))))
    return converted
