"""Brings other data sets into canonical form: LJSpeech's layout, mono, 16-bit PCM, one rate.

Any listing that :mod:`xttsbench.xtts.data.listing` reads, and any sound that :mod:`xttsbench.xtts.wav` reads.
Sound is looked for in the source's directory only, whatever its listing says.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from sys import intern
from typing import Final

import numpy as np

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.files import Draft, draft, first_entry, not_written, require_space, sync, write_lines
from xttsbench.records.base import Record
from xttsbench.xtts.data.listing import Entry, SoundFolder, find_listings, read_listing
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
from xttsbench.xtts.data.pool import Progress, Silent, allowed_workers, in_chunks
from xttsbench.xtts.data.speech_data import MIN_CLIP_S
from xttsbench.xtts.wav import (
    MAX_RATE_HZ,
    MIN_RATE_HZ,
    SoundHeader,
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
    """What was imported."""

    source: str
    clips: int
    """Those held out included."""
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

    where: str
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

    Args:
        source: directory of the data set; sound files outside of it are refused.
        out: the directory that will hold ``metadata.csv``, ``metadata_eval.csv`` where the source holds clips out,
            ``speakers.csv``, ``wavs/`` and ``import.json``.
        metadata: the source's listing; by default what :func:`find_listings` finds.
        eval_metadata: the source's listing of held-out clips.
        sample_rate_hz: the rate wanted.
        skip_unreadable: leave out what cannot be used, and list it in the result.
        workers: processes; by default the allowed cores.
        progress: reports what is done.

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
    try:
        with draft(out) as made:
            record = _fill(made, source, clips, sample_rate_hz, workers, skip_unreadable, unusable, progress)
            if not made.publish():
                raise UsageError(f"{out} was made by another process meanwhile; name another directory")
    except OSError as error:
        raise not_written(error, out, needed_bytes) from error
    return record


def _check(unusable: Problems, source: Path, skip: bool, usable: int) -> None:
    """Raise unless what cannot be used may be skipped and something is left."""
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
    first_of: dict[str, int] = {}
    clips: list[_Clip] = []
    seconds = 0.0
    for listing in listings:
        if listing is None:
            continue
        for entry in read_listing(listing, unusable):
            if (reason := _text_problem(entry)) is not None:
                unusable.add("without text", entry.where, reason)
                continue
            found = folder.find(entry.audio, listing.parent)
            if isinstance(found, str):
                unusable.add("without a WAV file", entry.where, found)
                continue
            clip_id, path = found
            if (reason := why_not_an_id(clip_id)) is not None:
                unusable.add("with a bad id", entry.where, reason)
                continue
            if clip_id in first_of:
                first = clips[first_of[clip_id]].where
                unusable.add("listed twice", entry.where, f"the clip {clip_id!r} is listed at {first} too")
                continue
            try:
                header = read_sound_header(path)
                reason = _header_problem(header)
            except WavError as error:
                reason = error.reason
            if reason is not None:
                unusable.add("unreadable", _relative(path, source), reason)
                continue
            first_of[clip_id] = len(clips)
            speaker, form = intern(entry.speaker or ONE_SPEAKER), intern(header.form)
            held_out = listing is listings[1]
            clips.append(_Clip(entry.where, clip_id, path, entry.raw_text, entry.text, speaker, form, held_out))
            seconds += header.frames / header.sample_rate_hz
            if len(clips) % 1000 == 0:
                progress.update("headers read", len(clips), 0)
    return clips, seconds


def _relative(path: str, source: Path) -> str:
    return os.path.relpath(path, os.path.abspath(source))


def _text_problem(entry: Entry) -> str | None:
    if not entry.text:
        return "the text is empty"
    return None if encoded_length(entry.text) else f"no character of {entry.text[:40]!r} is among {SYMBOLS!r}"


def _header_problem(header: SoundHeader) -> str | None:
    if not MIN_RATE_HZ <= header.sample_rate_hz <= MAX_RATE_HZ:
        return f"says {header.sample_rate_hz} Hz, which no speech has"
    if header.frames < MIN_CLIP_S * header.sample_rate_hz:
        return f"lasts {header.frames} samples, and {MIN_CLIP_S:g} s is the least"
    return None


def _fill(
    made: Draft,
    source: Path,
    clips: Sequence[_Clip],
    sample_rate_hz: int,
    workers: int | None,
    skip_unreadable: bool,
    unusable: Problems,
    progress: Progress,
) -> ImportedData:
    wavs = made.directory / "wavs"
    wavs.mkdir()
    if workers is None:
        workers = allowed_workers() if len(clips) > 2 * _CLIPS_A_JOB else 1
    good: list[_Clip] = []
    lengths, peaks = [], []
    convert = partial(_convert, str(wavs), sample_rate_hz)
    for chunk, converted in in_chunks(
        convert, clips, _CLIPS_A_JOB, workers, "clips imported", progress, as_job=attrgetter("path", "id")
    ):
        for clip, result in zip(chunk, converted, strict=True):
            if isinstance(result, str):
                unusable.add("unreadable", _relative(clip.path, source), result)
            else:
                good.append(clip)
                lengths.append(result[0])
                peaks.append(result[1])
    _check(unusable, source, skip_unreadable, len(good))
    train = [clip for clip in good if not clip.held_out]
    held_out = [clip for clip in good if clip.held_out]
    if not train:
        raise InvalidInputError(f"{source}: all {len(held_out)} usable clips are held out; none is left to train on")
    write_lines(made.directory / METADATA, _metadata(train))
    if held_out:
        write_lines(made.directory / EVAL_METADATA, _metadata(held_out))
    write_lines(made.directory / SPEAKERS, (f"{clip.id}|{clip.speaker}\n" for clip in good))
    record = ImportedData(
        source=str(source),
        clips=len(good),
        eval_clips=len(held_out) or None,
        seconds=round(sum(lengths) / sample_rate_hz, 3),
        speakers=len({clip.speaker for clip in good}),
        bytes=sum(map(wav_bytes, lengths)),
        sample_rate_hz=sample_rate_hz,
        forms=dict(Counter(clip.form for clip in good).most_common()),
        clipped=sum(peak > 1 for peak in peaks),
        peak=round(max(peaks), 6),
        skipped=tuple(Skipped(where=issue.where, reason=issue.what) for issue in unusable.issues),
    )
    write_lines(made.directory / IMPORT, [record.model_dump_json(indent=2), "\n"])
    return record


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


def _metadata(clips: Iterable[_Clip]) -> Iterator[str]:
    return (f"{clip.id}|{clip.raw_text}|{clip.text}\n" for clip in clips)
