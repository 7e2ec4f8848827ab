"""Metadata of a data set in LJSpeech's form (``id|text|normalised text``, ``speakers.csv``), and texts as ids.

A pipe always separates, for LJSpeech has no quoting: the id is what stands before the first, and the text is the third
field, or the second where the third is missing or blank. Further fields are ignored, and quotes are part of the text.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.inputs import JOURNAL_BYTES, read_text

SHOWN: Final = 5
"""Problems that an error names; the others are counted."""
MAX_ID_BYTES: Final = 240
"""Longest id in UTF-8: file systems allow 255 bytes for a name, and an ending and a draft's prefix are added."""
_HELD_OUT: Final = 16  # one clip in so many is held out where a data set does not say itself which
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,200}").fullmatch
METADATA: Final = "metadata.csv"
EVAL_METADATA: Final = "metadata_eval.csv"
SPEAKERS: Final = "speakers.csv"
ONE_SPEAKER: Final = "speaker"
"""Name of the speaker where a data set names none."""

SYMBOLS: Final = "abcdefghijklmnopqrstuvwxyz '.,;:?!-"
"""Known characters; the id of the first is 1, for 0 is padding."""

VOCABULARY: Final = len(SYMBOLS) + 1

# Typographic forms of what is known; Unicode's own decomposition leaves these as they are.
_PLAIN: Final = str.maketrans({"‘": "'", "’": "'", "‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-"})
_IDS: Final = bytes.maketrans(SYMBOLS.encode(), bytes(range(1, VOCABULARY)))
_UNKNOWN: Final = bytes(set(range(128)) - set(SYMBOLS.encode()))


def encode(text: str) -> npt.NDArray[np.int32]:
    """Return the ids of a text's known characters, ``[n]``.

    Case is folded, accents are dropped, typographic apostrophes and dashes are plain ones, white space is one blank;
    what is still unknown (digits, other scripts) is left out.

    Raises:
        ValueError: nothing that is known is left.
    """
    ids = _encode(text)
    if not ids:
        raise ValueError(f"no character of {text!r} is among {SYMBOLS!r}")
    return np.frombuffer(ids, np.uint8).astype(np.int32)


def encoded_length(text: str) -> int:
    """Return the number of ids that :func:`encode` gives; 0 where it raises."""
    return len(_encode(text))


def _encode(text: str) -> bytes:
    text = text.lower()
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    known = " ".join(text.split()).encode("ascii", "ignore").translate(None, _UNKNOWN)
    return b" ".join(known.split()).translate(_IDS)  # again, for what was left out may leave two blanks


class Issue(NamedTuple):
    """Something that is wrong with a clip or a line."""

    where: str
    """File and line, or file."""
    what: str
    clip: str | None = None
    """The clip's id, where it is known and not itself what is wrong."""
    remedy: str | None = None
    """Advice; None for a line of the metadata, which is corrected or removed."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class Problems:
    """Gathers what is wrong with clips, so that a user mends a data set once and not clip by clip."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.issues: list[Issue] = []

    def __len__(self) -> int:
        return len(self.issues)

    def add(self, kind: str, where: str, what: str, clip: str | None = None, remedy: str | None = None) -> None:
        """Note an :class:`Issue`; its kind is in words that follow a number: ``"without a WAV file"``."""
        self.kinds[kind] += 1
        self.issues.append(Issue(where, what, clip, remedy))

    def error(self, where: str, checked: int, remedy: str) -> InvalidInputError:
        """Return the error that counts all of it by kind, and names the first few.

        The number ``checked`` is of all clips that were looked at, good ones included.
        """
        count = len(self)
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.kinds.most_common())
        first = "" if count <= SHOWN else f", the first {SHOWN}"
        shown = "; ".join(map(str, self.issues[:SHOWN]))
        return InvalidInputError(
            f"{where}: {count} of {checked} clip{'s' * (checked != 1)} cannot be used ({kinds}){first}: "
            f"{shown}. {remedy}"
        )


def why_not_an_id(clip_id: str) -> str | None:
    """Return why a clip's id cannot be the name of a file in its data set's directory, or None where it can.

    Ids come from files that others wrote; one like ``../x`` or ``/etc/x`` must not lead out of the directory.
    """
    if _PLAIN_ID(clip_id):
        return None
    if not clip_id:
        return "the id is empty"
    if "/" in clip_id or "\\" in clip_id:
        return f"the id {clip_id!r} is a path; an id is the name of a file in wavs/ without '.wav'"
    if "|" in clip_id:
        return f"the id {clip_id!r} holds a pipe"
    if clip_id in (".", ".."):
        return f"the id {clip_id!r} names a directory"
    if not clip_id.isprintable():
        return f"the id {clip_id!r} holds control characters"
    if len(clip_id.encode()) > MAX_ID_BYTES:
        return f"the id {clip_id[:40]!r}... is longer than {MAX_ID_BYTES} bytes"
    return None


def key(seed: int, clip_id: str) -> int:
    """Return a hash of an id with the seed, 64 bits; the same in every process and version."""
    return int.from_bytes(hashlib.blake2b(f"{seed}|{clip_id}".encode(), digest_size=8).digest(), "little")


def held_out(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return which clips are held out, ``[n]``: those whose :func:`key` is in the lowest sixteenth.

    A clip's side depends on its own id and the seed, so that clips added later move no other; save that of two or more
    clips at least one is on each side.
    """
    out = keys < np.uint64(2**64 // _HELD_OUT)
    if len(keys) > 1 and not out.any():
        out[np.argmin(keys)] = True
    elif len(keys) > 1 and out.all():
        out[np.argmax(keys)] = False
    return out


@dataclass(frozen=True, eq=False)
class Metadata:
    """The columns of ``metadata.csv`` and, after it, ``metadata_eval.csv``."""

    ids: Sequence[str]
    texts: Sequence[str]
    text_lengths: npt.NDArray[np.int32]
    """``[n]`` ids of each text (:func:`encode`)."""
    keys: npt.NDArray[np.uint64]
    """``[n]`` :func:`key` of each id."""
    lines: Sequence[int]
    """Line of each clip in its file, from 1."""
    held_out_from: int | None
    """Number of the first clip of ``metadata_eval.csv``; None where there is no such file."""

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, row: int) -> str:
        """Return the file and line of a clip."""
        late = self.held_out_from is not None and row >= self.held_out_from
        return f"{EVAL_METADATA if late else METADATA}:{self.lines[row]}"


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each line that is not blank; a byte order mark is left out.

    Raises:
        InvalidInputError: the file cannot be read, or is not UTF-8.
    """
    try:
        text = read_text(path, JOURNAL_BYTES)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        encoding = "UTF-16" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") else "ISO-8859-1"
        raise InvalidInputError(
            f"{path}:{line}: is not UTF-8; convert it from the encoding that it has, e.g. with: "
            f"iconv -f {encoding} -t UTF-8 {path.name} > converted.csv"
        ) from error
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror or error}); make it readable") from error
    for number, line_text in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if line_text and not line_text.isspace():
            yield number, line_text


def read_metadata(directory: Path, seed: int, problems: Problems) -> Metadata:
    """Read ``metadata.csv`` and, where it is there, ``metadata_eval.csv``.

    Lines that name no usable clip (no pipe, a bad or repeated id, no text) are added to the problems; of an id that
    comes twice both lines are named.

    Raises:
        InvalidInputError: a file is missing, or is not text in UTF-8.
    """
    ids, texts = list[str](), list[str]()
    lengths, lines = list[int](), list[int]()
    held_out_from = None
    for name in (METADATA, EVAL_METADATA):
        if name == EVAL_METADATA:
            if not (directory / name).exists():
                break
            held_out_from = len(lines)
        for number, line in lines_of(directory / name):
            fields = line.split("|", 3)
            clip_id = fields[0].strip()
            if len(fields) < 2:
                problems.add("malformed", f"{name}:{number}", f"expected 'id|text|normalised text', got {line[:60]!r}")
                continue
            if reason := why_not_an_id(clip_id):
                problems.add("with a bad id", f"{name}:{number}", reason)
                continue
            text = (fields[2].strip() if len(fields) > 2 else "") or fields[1].strip()
            length = encoded_length(text)
            if not length:
                what = f"no character of {text[:40]!r} is among {SYMBOLS!r}" if text else "the text is empty"
                problems.add("without text", f"{name}:{number}", what)
                continue
            ids.append(clip_id)
            texts.append(text)
            lengths.append(length)
            lines.append(number)
    keys = np.array([key(seed, clip_id) for clip_id in ids], np.uint64)
    metadata = Metadata(ids, texts, np.array(lengths, np.int32), keys, lines, held_out_from)
    for row, first in repeated(metadata).items():
        problems.add(
            "with an id that comes twice",
            metadata.where(row),
            f"the id {metadata.ids[row]!r} is that of {metadata.where(first)} too",
        )
    return metadata


def read_speakers(
    directory: Path, metadata: Metadata, problems: Problems
) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    """Return the speaker of each clip, ``[n]``, and the speakers' names, sorted.

    ``speakers.csv`` (``id|speaker``) is optional, and may name clips that are not in the metadata; names are those of
    the whole file, so that a speaker keeps its number whichever clips are read.

    Raises:
        InvalidInputError: the file is not text in UTF-8, or two lines contradict each other.
    """
    path = directory / SPEAKERS
    if not path.exists():
        return np.zeros(len(metadata), np.int32), (ONE_SPEAKER,)
    found: dict[str, tuple[str, int]] = {}
    for number, line in lines_of(path):
        clip_id, _, speaker = (field.strip() for field in line.partition("|"))
        if not clip_id or not speaker:
            raise InvalidInputError(f"{path}:{number}: expected 'id|speaker', got {line[:60]!r}")
        first, at = found.setdefault(clip_id, (speaker, number))
        if first != speaker:
            raise InvalidInputError(f"{path}:{number}: the clip has another speaker on line {at}; keep one of the two")
    if not found:
        raise InvalidInputError(f"{path}: names no speaker; write 'id|speaker' lines or remove the file")
    names = sorted({speaker for speaker, _ in found.values()})
    numbers = {name: number for number, name in enumerate(names)}
    speakers = np.zeros(len(metadata), np.int32)
    for row, clip_id in enumerate(metadata.ids):
        if clip_id in found:
            speakers[row] = numbers[found[clip_id][0]]
        else:
            problems.add("without a speaker", metadata.where(row), f"{SPEAKERS} does not name {clip_id!r}")
    return speakers, tuple(names)


def repeated(metadata: Metadata) -> dict[int, int]:
    """Return the clips whose id came before, each with the first that has it, in the order of the file."""
    first: dict[str, int] = {}
    found = ((row, first.setdefault(clip_id, row)) for row, clip_id in enumerate(metadata.ids))
    return {row: before for row, before in found if row != before}
