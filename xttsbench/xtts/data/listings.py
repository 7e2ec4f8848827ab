"""Listings of other data sets, and the sound files that they name.

Three forms are read. LJSpeech's: ``id|text|normalised text``. Coqui's: ``audio_file|text|speaker_name``, with that
header, or without it where the first field ends as a sound file does. And tables with commas, semicolons or tabs, whose
header names the columns, quoted as CSV is.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Final, Literal

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.metadata import EVAL_METADATA, METADATA, SPEAKERS, Problems, lines_of

_COLUMNS: Final = {
    "audio": ("audio_file", "audio", "audio_path", "file", "file_name", "filename", "path", "wav", "wav_path", "id"),
    "text": ("text", "transcript", "transcription", "sentence"),
    "normalised": ("normalized_text", "normalised_text", "normalized", "normalised", "text_norm"),
    "speaker": ("speaker_name", "speaker", "speaker_id", "client_id"),
}  # names of columns, in lower case; of several that are there the first is taken
SOUND_SUFFIXES: Final = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".aif", ".aiff", ".m4a")
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
    header = next(_fields(iter([first]), delimiter, path))[1]
    columns = _columns_of(header)
    if columns is None and delimiter != "|":
        separator, audio = "tabs" if delimiter == "\t" else repr(delimiter), ", ".join(_COLUMNS["audio"][:4])
        raise InvalidInputError(
            f"{path}:{first[0]}: a listing with {separator} needs a header that names a column of sound files "
            f"({audio}, ...) and one of texts ({', '.join(_COLUMNS['text'])}); got {first[1][:80]!r}"
        )
    speakers: dict[str, str] = {}  # by id, that our own file beside a listing names
    if (beside := path.with_name(SPEAKERS)).is_file():
        parts = (line.partition("|") for _, line in lines_of(beside))
        speakers = {clip_id.strip(): speaker.strip() for clip_id, _, speaker in parts if speaker.strip()}
    for number, fields in _fields(chain([] if columns else [first], lines), delimiter, path):
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


def _fields(rows: Iterator[tuple[int, str]], delimiter: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the fields of each row; with pipes nothing is quoted, else a field may go over lines."""
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        for number, line in rows:  # noqa: B007 - read by the loop below
            yield line + "\n"

    quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "|" else csv.QUOTE_MINIMAL
    try:
        for fields in csv.reader(text(), delimiter=delimiter, quoting=quoting, strict=True):
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

    def find(self, audio: str, beside: Path) -> tuple[str, str] | str:
        """Return a clip's id and file, or why there is none.

        The id or path, as listed, is relative to the directory, its ``wavs/`` or ``clips/``, or the listing's directory
        (``beside``).
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
        # What is listed as one format may have been converted since, to WAV most likely.
        names = [audio] if ending.lower() == ".wav" else [f"{stem}.wav", f"{stem}.WAV", audio]
        names += [stem + suffix for suffix in SOUND_SUFFIXES]
        outside = False
        for name, base in product(names, bases):
            path = os.path.normpath(os.path.join(base, name))
            if not _is_inside(path, self.root):
                outside = True
            elif os.path.isfile(path):
                if not _is_inside(os.path.realpath(path), self._real_root):
                    return f"{audio!r} leads out of the directory, through a link"
                return self._id(path), path
        if outside:
            return f"{audio!r} leads out of the directory"
        return f"there is no file {audio!r}"

    def _id(self, path: str) -> str:
        """Return the path inside the directory as an id: ``wavs/anna/01.wav`` becomes ``anna-01``."""
        relative = os.path.splitext(os.path.relpath(path, self.root))[0]
        for folder in _FOLDERS:
            relative = relative.removeprefix(f"{folder}/")
        return relative.replace("/", "-").replace("|", "-").strip()


def _is_inside(path: str, root: str) -> bool:
    return path.startswith(os.path.join(root, ""))
