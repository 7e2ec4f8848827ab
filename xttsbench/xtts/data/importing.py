"""Brings other data sets into canonical form: LJSpeech's layout, mono, 16-bit PCM, one rate.

Any sound is taken that :mod:`xttsbench.xtts.wav` reads, from the source's directory only, whatever its listing says.
Three forms of listing are read. LJSpeech's: ``id|text|normalised text``. Coqui's: ``audio_file|text|speaker_name``,
with that header, or without it where the first field ends as a sound file does. And tables with commas, semicolons or
tabs, whose header names the columns, quoted as CSV is.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from sys import intern
from typing import Final

import numpy as np

from xttsbench.errors import InvalidInputError, UsageError
from xttsbench.files import draft, first_entry, not_written, require_space, sync, write_lines
from xttsbench.records.base import Record
from xttsbench.xtts.data.metadata import (
    EVAL_METADATA,
    METADATA,
    ONE_SPEAKER,
    SPEAKERS,
    SYMBOLS,
    Problems,
    encoded_length,
    lines_of,
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

_COLUMNS: Final = {
    "audio": ("audio_file", "audio", "audio_path", "file", "file_name", "filename", "path", "wav", "wav_path", "id"),
    "text": ("text", "transcript", "transcription", "sentence"),
    "normalised": ("normalized_text", "normalised_text", "normalized", "normalised", "text_norm"),
    "speaker": ("speaker_name", "speaker", "speaker_id", "client_id"),
}  # names of columns, in lower case; of several that are there the first is taken
SOUND_SUFFIXES: Final = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")
_TRAIN: Final = (METADATA, "metadata_train.csv")
_FOLDERS: Final = ("wavs", "clips")
"""Folders of sound in data sets that do not name it in each line: LJSpeech and Common Voice."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a listing."""

    where: str
    """Name of the file and number of the line."""
    audio: str
    """An id, or a path."""
    raw_text: str
    text: str
    """The normalised text, or the raw one where there is none."""
    speaker: str | None


def find_listings(source: Path, metadata: Path | None, eval_metadata: Path | None) -> tuple[Path, Path | None]:
    """Return the listing of a data set, and that of its held-out clips where there is one.

    What the user names is relative to the working directory or to ``source``. Otherwise it is ``metadata.csv`` or
    ``metadata_train.csv``, and ``metadata_eval.csv`` beside it.

    Raises:
        InvalidInputError: there is none.
    """
    if metadata is None:
        there = [source / name for name in _TRAIN if (source / name).is_file()]
        if not there:
            others = sorted(path.name for path in source.iterdir() if path.suffix in (".csv", ".tsv", ".txt"))
            one = f"one of {', '.join(others[:8])}" if others else "one"
            raise InvalidInputError(
                f"{source}: looked for {' and '.join(_TRAIN)}, and found neither; name {one} with --metadata"
            )
        if eval_metadata is None and (source / EVAL_METADATA).is_file():
            return there[0], source / EVAL_METADATA
    found = there[0] if metadata is None else _named(source, metadata)
    return found, None if eval_metadata is None else _named(source, eval_metadata)


def read_listing(path: Path, problems: Problems) -> Iterator[Entry]:
    """Yield the lines of a listing, of whichever form; malformed ones are added to the problems.

    Raises:
        InvalidInputError: the file cannot be read, is not UTF-8, is empty, or its columns cannot be recognised.
    """
    lines = lines_of(path)
    first = next(lines, None)
    if first is None:
        raise InvalidInputError(f"{path}: is empty; name another listing with --metadata")
    delimiter = next((mark for mark in "|\t,;" if mark in first[1]), None)
    if delimiter is None:
        raise InvalidInputError(
            f"{path}:{first[0]}: expected fields separated by '|', a tab or commas, got {first[1][:60]!r}"
        )
    quoted = delimiter != "|"
    header = next(csv.reader([first[1]], delimiter=delimiter)) if quoted else first[1].split("|")
    columns = _columns_of(header)
    if columns is None and quoted:
        separator, audio = "tabs" if delimiter == "\t" else repr(delimiter), ", ".join(_COLUMNS["audio"][:4])
        raise InvalidInputError(
            f"{path}:{first[0]}: a listing with {separator} needs a header that names a column of sound files "
            f"({audio}, ...) and one of texts ({', '.join(_COLUMNS['text'])}); got {first[1][:80]!r}"
        )
    speakers: dict[str, str] = {}  # by id, that our own file beside a listing names
    if (beside := path.with_name(SPEAKERS)).is_file():
        parts = (line.partition("|") for _, line in lines_of(beside))
        speakers = {clip_id.strip(): speaker.strip() for clip_id, _, speaker in parts if speaker.strip()}
    rows = chain([] if columns else [first], lines)
    for number, fields in _quoted(rows, delimiter, path) if quoted else ((n, line.split("|")) for n, line in rows):
        where = f"{path.name}:{number}"
        if (entry := _entry(where, fields, columns, speakers)) is not None:
            yield entry
        else:
            problems.add("malformed", where, f"expected a sound file and its text, got {delimiter.join(fields)[:60]!r}")


def _entry(
    where: str, fields: Sequence[str], columns: Mapping[str, int] | None, speakers: Mapping[str, str]
) -> Entry | None:
    if columns is None:
        is_path = fields[0].strip().lower().endswith(SOUND_SUFFIXES)
        columns = {"audio": 0, "text": 1, "speaker" if is_path else "normalised": 2}
    found = {kind: fields[column] for kind, column in columns.items() if column < len(fields)}
    audio = found.pop("audio", "").strip()
    if len(fields) < 2 or not audio:
        return None
    # White space and pipes, which no quoting could keep in our own metadata, become blanks.
    plain = {kind: " ".join(field.replace("|", " ").split()) for kind, field in found.items()}
    raw, normalised = plain.get("text", ""), plain.get("normalised", "")
    return Entry(where, audio, raw or normalised, normalised or raw, plain.get("speaker") or speakers.get(audio))


def _columns_of(header: Sequence[str]) -> dict[str, int] | None:
    names = [name.strip().strip('"').lower() for name in header]
    columns = {
        kind: names.index(there[0])
        for kind, known in _COLUMNS.items()
        if (there := [name for name in known if name in names])
    }
    return columns if "audio" in columns and columns.keys() & {"text", "normalised"} else None


def _quoted(rows: Iterator[tuple[int, str]], delimiter: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the fields of each row of a table; a quoted field may go over several lines."""
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        for number, line in rows:  # noqa: B007 - read by the loop below
            yield line + "\n"

    try:
        for fields in csv.reader(text(), delimiter=delimiter, strict=True):
            yield number, fields
    except csv.Error as error:
        raise InvalidInputError(f"{path}:{number}: not a table with quotes as in CSV ({error}); correct it") from error


def _named(source: Path, path: Path) -> Path:
    for candidate in (path, source / path):
        if candidate.is_file():
            return candidate
    raise InvalidInputError(f"{path}: there is no such file here nor in {source}; name the listing of the clips")


class SoundFolder:
    """Finds sound files in a directory, and nowhere else."""

    def __init__(self, source: Path) -> None:
        self.root = os.path.abspath(source)
        self._real_root = os.path.realpath(source)
        self._real = cache(os.path.realpath)  # of directories: a data set has many files in few

    def find(self, audio: str, beside: Path) -> tuple[str, str] | str:
        """Return a clip's id and file, or why there is none.

        The id or path, as listed, is relative to the directory, its ``wavs/`` or ``clips/``, or the listing's directory
        (``beside``). Where several formats are there, a WAV file comes first.
        """
        if not audio.isprintable():
            return f"the name {audio!r} holds control characters"
        if "\\" in audio and "/" not in audio:
            audio = audio.replace("\\", "/")  # listed under Windows
        bases = [os.path.join(self.root, folder) for folder in _FOLDERS]
        bases.insert(0 if "/" in audio else len(bases), self.root)  # a path most likely begins at the root
        if _is_inside(beside_root := os.path.abspath(beside), self.root):
            bases.append(beside_root)
        stem, ending = os.path.splitext(audio)
        if ending.lower() not in SOUND_SUFFIXES:  # a dot in an id, or none
            stem, ending = audio, ""
        # What is listed as one format may have been converted since.
        first = [audio] if ending.lower() == ".wav" else [f"{stem}.wav", f"{stem}.WAV", audio]
        outside = False
        for names in (first, [stem + suffix for suffix in SOUND_SUFFIXES]):
            for path in (os.path.normpath(os.path.join(base, name)) for base in bases for name in names):
                if not _is_inside(path, self.root):
                    outside = True
                elif os.path.isfile(path):
                    parent, name = os.path.split(path)
                    real = os.path.realpath(path) if os.path.islink(path) else os.path.join(self._real(parent), name)
                    if not _is_inside(real, self._real_root):
                        return f"{audio!r} leads out of the directory, through a link"
                    return self._id(path), path
        if outside:
            return f"{audio!r} leads out of the directory"
        return f"there is no file {audio!r}" + ("" if first == [audio] else f" nor {first[0]!r}")

    def _id(self, path: str) -> str:
        """Return the path inside the directory as an id: ``wavs/anna/01.wav`` becomes ``anna-01``."""
        relative = os.path.splitext(os.path.relpath(path, self.root))[0]
        for folder in _FOLDERS:
            relative = relative.removeprefix(f"{folder}/")
        return relative.replace("/", "-").replace("|", "-").strip()


def _is_inside(path: str, root: str) -> bool:
    return path.startswith(os.path.join(root, ""))


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
            for chunk, converted in in_chunks(
                partial(_convert, str(wavs), sample_rate_hz),
                clips,
                _CLIPS_A_JOB,
                workers,
                "clips imported",
                progress,
                as_job=attrgetter("path", "id"),
            ):
                for clip, result in zip(chunk, converted, strict=True):
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
