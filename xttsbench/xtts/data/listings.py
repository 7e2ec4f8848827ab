"""Listings of other data sets, and the sound files that they name.

Two forms are read, with pipes that no quoting keeps. LJSpeech's: ``id|text|normalised text``. Coqui's:
``audio_file|text|speaker_name``, with that header, or without it where the first field ends as a sound file does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.data.metadata import EVAL_METADATA, METADATA, SPEAKERS, Problems, lines_of

_HEADER: Final = "audio_file|text|speaker_name"
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
    """Yield the lines of a listing, of either form; malformed ones are added to the problems.

    Raises:
        InvalidInputError: the file cannot be read, or is not UTF-8.
    """
    speakers: dict[str, str] = {}  # by id, that our own file beside a listing names
    if (beside := path.with_name(SPEAKERS)).is_file():
        parts = (line.partition("|") for _, line in lines_of(beside))
        speakers = {clip_id.strip(): speaker.strip() for clip_id, _, speaker in parts if speaker.strip()}
    for number, line in lines_of(path):
        if line.lower().startswith(_HEADER.partition("|")[0] + "|"):  # further columns may follow, or fewer
            continue
        where, fields = f"{path.name}:{number}", line.split("|")
        audio, raw, third = fields[0].strip(), *(" ".join(field.split()) for field in (*fields[1:], "", "")[:2])
        if not audio or len(fields) < 2:
            what = f"expected 'id|text|normalised text' or '{_HEADER}', got {line[:60]!r}"
            problems.add("malformed", where, what)
        elif audio.lower().endswith(SOUND_SUFFIXES):
            yield Entry(where, audio, raw, raw, third or speakers.get(audio))
        else:
            yield Entry(where, audio, raw or third, third or raw, speakers.get(audio))


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
