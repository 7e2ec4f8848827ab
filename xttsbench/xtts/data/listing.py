"""Listings of other people's data sets: which sound files there are, what is said in them, by whom, and where they lie.

Three forms are read. LJSpeech's: ``id|text|normalised text``. Coqui's: ``audio_file|text|speaker_name``, with that
header, or without it where the first field ends as a sound file does. And tables with commas, semicolons or tabs, whose
header names the columns (:data:`AUDIO`, :data:`TEXT`, :data:`NORMALISED`, :data:`SPEAKER`), quoted as CSV is.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.metadata import EVAL_METADATA, METADATA, SPEAKERS, Problems, lines_of

AUDIO: Final = ("audio_file", "audio", "audio_path", "file", "file_name", "filename", "path", "wav", "wav_path", "id")
TEXT: Final = ("text", "transcript", "transcription", "sentence")
NORMALISED: Final = ("normalized_text", "normalised_text", "normalized", "normalised", "text_norm")
SPEAKER: Final = ("speaker_name", "speaker", "speaker_id", "client_id")
"""Names of columns, in lower case; of several that are there the first is taken."""

SOUND_SUFFIXES: Final = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")
_TRAIN: Final = (METADATA, "metadata_train.csv")
_FOLDERS: Final = ("wavs", "clips")
"""Where data sets keep their sound without saying so in each line: LJSpeech and Common Voice."""


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


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where a listing keeps what; None where it does not."""

    audio: int
    text: int | None
    normalised: int | None
    speaker: int | None


def find_listings(source: Path, metadata: Path | None, eval_metadata: Path | None) -> tuple[Path, Path | None]:
    """Return the listing of a data set, and that of its held-out clips where there is one.

    Args:
        source: directory of the data set.
        metadata: the listing, if the user names one: relative to the working directory or to ``source``. Otherwise
            ``metadata.csv`` or ``metadata_train.csv``, and ``metadata_eval.csv`` beside it.
        eval_metadata: the listing of the held-out clips, if the user names one.

    Raises:
        InvalidInputError: there is none.
    """
    if metadata is not None:
        found = _named(source, metadata)
    else:
        there = [source / name for name in _TRAIN if (source / name).is_file()]
        if not there:
            others = sorted(path.name for path in source.iterdir() if path.suffix in (".csv", ".tsv", ".txt"))
            holds = f"; name one of {', '.join(others[:8])} with --metadata" if others else "; name one with --metadata"
            raise InvalidInputError(f"{source}: looked for {' and '.join(_TRAIN)}, and found neither{holds}")
        found = there[0]
        if eval_metadata is None and (source / EVAL_METADATA).is_file():
            return found, source / EVAL_METADATA
    return found, _named(source, eval_metadata) if eval_metadata is not None else None


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
        separator = "tabs" if delimiter == "\t" else repr(delimiter)
        raise InvalidInputError(
            f"{path}:{first[0]}: a listing with {separator} needs a header that names a column of sound files "
            f"({', '.join(AUDIO[:4])}, ...) and one of texts ({', '.join(TEXT)}); got {first[1][:80]!r}"
        )
    speakers = _speakers_beside(path)
    rows = chain([] if columns else [first], lines)
    for number, fields in _quoted(rows, delimiter, path) if quoted else ((n, line.split("|")) for n, line in rows):
        where = f"{path.name}:{number}"
        entry = _entry(where, fields, columns, speakers)
        if entry is None:
            problems.add("malformed", where, f"expected a sound file and its text, got {delimiter.join(fields)[:60]!r}")
        else:
            yield entry


def _entry(where: str, fields: Sequence[str], columns: _Columns | None, speakers: dict[str, str]) -> Entry | None:
    if len(fields) < 2:
        return None
    if columns is None:
        paths = fields[0].strip().lower().endswith(SOUND_SUFFIXES)
        columns = _Columns(0, 1, None, 2) if paths else _Columns(0, 1, 2, None)

    def field(column: int | None) -> str:
        """White space and pipes, which no quoting could keep in our own metadata, become blanks."""
        return "" if column is None or column >= len(fields) else " ".join(fields[column].replace("|", " ").split())

    audio = fields[columns.audio].strip() if columns.audio < len(fields) else ""
    raw, normalised = field(columns.text), field(columns.normalised)
    if not audio:
        return None
    speaker = field(columns.speaker) or speakers.get(audio)
    return Entry(where, audio, raw or normalised, normalised or raw, speaker)


def _columns_of(header: Sequence[str]) -> _Columns | None:
    """Return the columns that a header names, or None where the line is no header."""
    names = [name.strip().strip('"').lower() for name in header]

    def column(known: Sequence[str]) -> int | None:
        return next((names.index(name) for name in known if name in names), None)

    audio, text, normalised = column(AUDIO), column(TEXT), column(NORMALISED)
    if audio is None or (text is None and normalised is None):
        return None
    return _Columns(audio, text, normalised, column(SPEAKER))


def _quoted(rows: Iterator[tuple[int, str]], delimiter: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the fields of each row of a table; a quoted field may go over several lines."""
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        for number, line in rows:  # noqa: B007 - read by the loop below
            yield line + "\n"

    reader = csv.reader(text(), delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            yield number, fields
    except csv.Error as error:
        raise InvalidInputError(f"{path}:{number}: not a table with quotes as in CSV ({error}); correct it") from error


def _speakers_beside(path: Path) -> dict[str, str]:
    """Return the speaker of each id that our own ``speakers.csv`` beside a listing names."""
    beside = path.with_name(SPEAKERS)
    if not beside.is_file():
        return {}
    parts = (line.partition("|") for _, line in lines_of(beside))
    return {clip_id.strip(): speaker.strip() for clip_id, _, speaker in parts if speaker.strip()}


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
        self._real: dict[str, str] = {}
        self._beside, self._beside_root = source, self.root

    def find(self, audio: str, beside: Path) -> tuple[str, str] | str:
        """Return a clip's id and file, or why there is none.

        Args:
            audio: an id or a path, as listed: relative to the directory, its ``wavs/`` or ``clips/``, or the listing's
                directory. Where several formats are there, a WAV file comes first.
            beside: the listing's directory.
        """
        if not audio.isprintable():
            return f"the name {audio!r} holds control characters"
        if "\\" in audio and "/" not in audio:
            audio = audio.replace("\\", "/")  # listed under Windows
        if beside != self._beside:
            self._beside, self._beside_root = beside, os.path.abspath(beside)
        bases = [os.path.join(self.root, folder) for folder in _FOLDERS]
        bases.insert(0 if "/" in audio else len(bases), self.root)  # a path most likely begins at the root
        if _is_inside(self._beside_root, self.root):
            bases.append(self._beside_root)
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
                    if not _is_inside(self._realpath(path), self._real_root):
                        return f"{audio!r} leads out of the directory, through a link"
                    return self._id(path), path
        if outside:
            return f"{audio!r} leads out of the directory"
        return f"there is no file {audio!r}" + ("" if first == [audio] else f" nor {first[0]!r}")

    def _realpath(self, path: str) -> str:
        """Resolve links; of a directory once, since a data set has many files in few."""
        if os.path.islink(path):
            return os.path.realpath(path)
        parent, name = os.path.split(path)
        if parent not in self._real:
            self._real[parent] = os.path.realpath(parent)
        return os.path.join(self._real[parent], name)

    def _id(self, path: str) -> str:
        """Return the path inside the directory as an id: ``wavs/anna/01.wav`` becomes ``anna-01``."""
        relative = os.path.splitext(path[len(os.path.join(self.root, "")) :])[0]
        for folder in _FOLDERS:
            relative = relative.removeprefix(f"{folder}/")
        return relative.replace("/", "-").replace("|", "-").strip()


def _is_inside(path: str, root: str) -> bool:
    return path.startswith(os.path.join(root, ""))
