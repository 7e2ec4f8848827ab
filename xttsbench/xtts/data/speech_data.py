"""A data set in LJSpeech's layout, checked once and held in columns: a million clips take a few hundred megabytes.

``metadata.csv`` (:mod:`xttsbench.xtts.data.metadata`) beside ``wavs/<id>.wav`` in canonical form: mono, 16-bit PCM, the
recipe's rate. Optional are ``metadata_eval.csv`` (the held-out clips; without it a seeded sixteenth) and
``speakers.csv`` (``id|speaker``; without it there is one speaker). Never imports TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.records.base import Record
from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.audio.wav import CONVERT, WavError, canonical_samples
from xttsbench.xtts.data.metadata import (
    EVAL_METADATA,
    METADATA,
    Metadata,
    Problems,
    held_out,
    read_metadata,
    read_speakers,
)
from xttsbench.xtts.text import encode

MADE: Final = "made.json"
"""What :mod:`xttsbench.xtts.data.make` leaves in a set that it made."""

MIN_CLIP_S: Final = 0.02
"""Shortest usable clip in seconds: less is not even one frame of features with what surrounds it."""

Split = Literal["all", "train", "eval"]


@dataclass(frozen=True, eq=False)
class SpeechData:
    """The clips of a data set, by number; no Python object is kept per clip."""

    directory: Path
    sample_rate_hz: int
    samples: npt.NDArray[np.int64]
    """``[n]`` samples of each clip, from the WAV headers, checked against the files' sizes."""
    speakers: npt.NDArray[np.int32]
    """``[n]`` each clip's speaker, as an index into the names."""
    speaker_names: tuple[str, ...]
    text_lengths: npt.NDArray[np.int32]
    """``[n]`` ids of each clip's text."""
    metadata: Metadata
    """The whole set's; ``rows`` says which of its clips are ours."""
    rows: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def id(self, clip: int) -> str:
        """Return a clip's id, which is safe as the name of a file."""
        return self.metadata.ids[self.rows[clip]]

    def text(self, clip: int) -> str:
        """Return what is said in a clip: the normalised text where there is one."""
        return self.metadata.texts[self.rows[clip]]

    def text_ids(self, clip: int) -> npt.NDArray[np.int32]:
        """Return the ids of a clip's text, ``[text_lengths[clip]]``."""
        return encode(self.text(clip))

    def wav(self, clip: int) -> Path:
        """Return the file that holds a clip's sound."""
        return self.directory / "wavs" / f"{self.id(clip)}.wav"

    def subset(self, clips: npt.NDArray[np.integer]) -> SpeechData:
        """Return the data set of some clips, in the order given; the columns of the metadata are shared."""
        return replace(
            self,
            samples=self.samples[clips],
            speakers=self.speakers[clips],
            text_lengths=self.text_lengths[clips],
            rows=self.rows[clips],
        )


def read_speech_data(directory: Path, *, sample_rate_hz: int, split: Split = "train", seed: int = 0) -> SpeechData:
    """Read the metadata of a data set, and check every WAV header of a split.

    Args:
        directory: a directory in LJSpeech's layout.
        sample_rate_hz: the rate that the WAV files must have.
        split: the clips to read: those to train on, those held out, or all (those held out last where
            ``metadata_eval.csv`` names them). A single clip is never held out.
        seed: decides which clips are held out where the data set does not say.

    Raises:
        InvalidInputError: the directory is not a data set, or clips cannot be used; the message counts them all and
            names the first few.
    """
    _check_layout(directory)
    problems = Problems()
    metadata = read_metadata(directory, seed, problems)
    if not len(metadata) and not problems:
        raise InvalidInputError(f"{directory / METADATA}: names no clip; write one line 'id|text' for each")
    speakers, names = read_speakers(directory, metadata, seed, problems)
    rows = _rows(metadata, split)
    if not len(rows) and not problems:
        raise InvalidInputError(
            f"{directory}: no clip of {len(metadata)} is for {'evaluation' if split == 'eval' else 'training'}; "
            f"add clips, or name some in {EVAL_METADATA if split == 'eval' else METADATA}"
        )
    checked = len(rows) + len(problems)
    samples = _samples(directory, metadata, rows, sample_rate_hz, problems)
    if problems:
        raise problems.error(str(directory), checked, _remedy(directory, problems))
    return SpeechData(
        directory, sample_rate_hz, samples, speakers[rows], names, metadata.text_lengths[rows], metadata, rows
    )


def _rows(metadata: Metadata, split: Split) -> npt.NDArray[np.int64]:
    if split == "all":
        return np.arange(len(metadata))
    if metadata.held_out_from is None:
        out = held_out(metadata.keys)
    else:
        out = np.arange(len(metadata)) >= metadata.held_out_from
    return np.flatnonzero(out if split == "eval" else ~out)


def _samples(
    directory: Path, metadata: Metadata, rows: npt.NDArray[np.int64], sample_rate_hz: int, problems: Problems
) -> npt.NDArray[np.int64]:
    """Return the samples of each clip, ``[n]``; clips that cannot be used are added to the problems."""
    folder = os.path.join(directory, "wavs", "")  # strings: a million paths would take seconds of their own
    fewest = MIN_CLIP_S * sample_rate_hz
    samples = np.zeros(len(rows), np.int64)
    for position, row in enumerate(rows.tolist()):
        name = f"{metadata.ids[row]}.wav"
        try:
            samples[position] = found = canonical_samples(folder + name, sample_rate_hz)
        except WavError as error:
            missing = isinstance(error.__cause__, FileNotFoundError)
            kind = "without a WAV file" if missing else "in another form" if error.remedy == CONVERT else "unreadable"
            problems.add(
                kind,
                metadata.where(row) if missing else f"wavs/{name}",
                f"there is no wavs/{name}" if missing else error.reason,
            )
        else:
            if found < fewest:
                problems.add("too short", f"wavs/{name}", f"lasts {found} samples, and {MIN_CLIP_S:g} s is the least")
    return samples


def _check_layout(directory: Path) -> None:
    """Raise unless the directory has metadata and a folder of WAV files; say what is there instead."""
    if not directory.exists():
        raise InvalidInputError(f"{directory}: there is no such directory; name a data set in LJSpeech's layout")
    if not directory.is_dir():
        raise InvalidInputError(f"{directory}: is a file; name the directory that holds {METADATA} and wavs/")
    missing = [name for name in (METADATA, "wavs") if not (directory / name).exists()]
    if not missing:
        return
    try:
        names = sorted(entry.name + "/" * entry.is_dir() for entry in islice(os.scandir(directory), 1000))
    except OSError as error:
        raise InvalidInputError(f"{directory}: cannot be read ({error.strerror}); make it readable") from error
    holds = f"it holds {', '.join(names[:8])}{', ...' * (len(names) > 8)}" if names else "it is empty"
    suffixes = (".wav", ".csv", ".txt", ".tsv", ".flac", ".mp3")
    inner = islice(directory.glob("*/*"), 1000)
    sound = any(name.lower().endswith(suffixes) for name in names) or any(
        path.suffix.lower() == ".wav" for path in inner
    )
    remedy = (
        f"run 'xttsbench data import {quote(str(directory))} --out NEW --metadata FILE'"
        if sound
        else "name another directory, or make one with 'xttsbench data make --out NEW'"
    )
    raise InvalidInputError(
        f"{directory}: not a data set in LJSpeech's layout: looked for {METADATA} and wavs/<id>.wav, and "
        f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; {holds}; {remedy}"
    )


def _remedy(directory: Path, problems: Problems) -> str:
    if (directory / MADE).exists():
        return "Delete the directory and run 'xttsbench data make' again"
    kinds = set(problems.kinds)
    command = f"xttsbench data import {quote(str(directory))} --out NEW"
    if kinds == {"in another form"}:
        return f"Run '{command}' and use NEW"
    if "in another form" in kinds or "unreadable" in kinds:
        return f"Mend them, or run '{command} --skip-unreadable' and use NEW"
    return f"Correct or remove those lines of {METADATA}"


ProblemRule = Literal["corrupt-cache", "stale-cache", "feature-mismatch", "unsupported-audio", "bad-metadata"]

_REMOVE: Final = "take the clip out of the metadata"


class Problem(Record):
    """One thing that is wrong."""

    rule: ProblemRule
    clip: str | None
    """The clip's id; None where it is not about one clip, or where the id is what is wrong."""
    what: str
    remedy: str

    @property
    def in_cache(self) -> bool:
        """Whether it is in what ``--fix`` can make again."""
        return self.rule in ("corrupt-cache", "stale-cache", "feature-mismatch")


class _AllProblems(Problems):
    """Keeps every problem, where an error keeps the first few."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[tuple[str, str]] = []

    def add(self, kind: str, where: str, what: str) -> None:
        """Note a problem."""
        super().add(kind, where, what)
        self.listed.append((where, what))


def usable(directory: Path, features: FeatureSettings) -> tuple[SpeechData | None, int, list[Problem]]:
    """Return the clips of a data set that can be used, the number of all, and what is wrong with the others.

    Returns:
        The clips, None where there is none; the clips of the metadata, unusable ones included; what is wrong.

    Raises:
        InvalidInputError: the directory is no data set, or its metadata cannot be read at all.
    """
    try:
        data = read_speech_data(directory, sample_rate_hz=features.sample_rate_hz, split="all")
    except InvalidInputError as error:
        try:
            found = _usable_in_part(directory, features)
        except InvalidInputError:
            raise error from None  # not about single clips: the first error says more
        if not found[2]:
            raise
        return found
    problems = list(_too_short(data, features))
    if problems:
        data = data.subset(np.flatnonzero(data.samples >= features.fewest_samples))
    return (data if len(data) else None), len(data) + len(problems), problems


def _usable_in_part(directory: Path, features: FeatureSettings) -> tuple[SpeechData | None, int, list[Problem]]:
    listed = _AllProblems()
    metadata = read_metadata(directory, 0, listed)
    speakers, names = read_speakers(directory, metadata, 0, listed)
    problems = [
        Problem(rule="bad-metadata", clip=None, what=f"{where}: {what}", remedy="correct or remove the line")
        for where, what in listed.listed
    ]
    clips = len(metadata) + listed.kinds["malformed"] + listed.kinds["with a bad id"] + listed.kinds["without text"]
    rows, samples, seen = [], [], set()
    for row in range(len(metadata)):
        clip_id = metadata.ids[row]
        if clip_id in seen:  # listed already
            continue
        seen.add(clip_id)
        try:
            found = canonical_samples(directory / "wavs" / f"{clip_id}.wav", features.sample_rate_hz)
        except WavError as error:
            problems.append(_audio_problem(clip_id, error, metadata.where(row), directory))
            continue
        if found < MIN_CLIP_S * features.sample_rate_hz:
            what = f"wavs/{clip_id}.wav lasts {found} samples, and {MIN_CLIP_S:g} s is the least"
            problems.append(Problem(rule="unsupported-audio", clip=clip_id, what=what, remedy=_REMOVE))
            continue
        rows.append(row)
        samples.append(found)
    if not rows:
        return None, clips, problems
    chosen = np.asarray(rows, np.int64)
    data = SpeechData(
        directory,
        features.sample_rate_hz,
        np.asarray(samples, np.int64),
        speakers[chosen],
        names,
        metadata.text_lengths[chosen],
        metadata,
        chosen,
    )
    short = list(_too_short(data, features))
    data = data.subset(np.flatnonzero(data.samples >= features.fewest_samples))
    return (data if len(data) else None), clips, problems + short


def _audio_problem(clip_id: str, error: WavError, where: str, directory: Path) -> Problem:
    if isinstance(error.__cause__, FileNotFoundError):
        what = f"{where}: there is no wavs/{clip_id}.wav"
        return Problem(rule="bad-metadata", clip=clip_id, what=what, remedy="add the file or remove the line")
    remedy = error.remedy
    if remedy == CONVERT:
        remedy = f"run 'xttsbench data import {directory} --out NEW' and use NEW"
    return Problem(rule="unsupported-audio", clip=clip_id, what=f"wavs/{clip_id}.wav {error.reason}", remedy=remedy)


def _too_short(data: SpeechData, features: FeatureSettings) -> Iterator[Problem]:
    fewest = features.fewest_samples
    for clip in np.flatnonzero(data.samples < fewest).tolist():
        what = f"wavs/{data.id(clip)}.wav has {data.samples[clip]} samples, and these features need {fewest}"
        yield Problem(rule="unsupported-audio", clip=data.id(clip), what=what, remedy=_REMOVE)
