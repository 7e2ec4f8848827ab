"""Which clips of a data set can be used, and what is wrong with each of the others.

:func:`xttsbench.xtts.data.speech_data.read_speech_data` refuses a data set with a bad clip in it, in one sentence; here
all of them are listed, and the rest is looked at further.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import numpy as np

from xttsbench.errors import InvalidInputError
from xttsbench.records.base import Record
from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.audio.wav import CONVERT, WavError, canonical_samples
from xttsbench.xtts.data.metadata import read_metadata, read_speakers
from xttsbench.xtts.data.precompute import fewest_samples
from xttsbench.xtts.data.problems import Problems
from xttsbench.xtts.data.speech_data import MIN_CLIP_S, SpeechData, read_speech_data

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
        data = data.subset(np.flatnonzero(data.samples >= fewest_samples(features)))
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
    data = data.subset(np.flatnonzero(data.samples >= fewest_samples(features)))
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
    fewest = fewest_samples(features)
    for clip in np.flatnonzero(data.samples < fewest).tolist():
        what = f"wavs/{data.id(clip)}.wav has {data.samples[clip]} samples, and these features need {fewest}"
        yield Problem(rule="unsupported-audio", clip=data.id(clip), what=what, remedy=_REMOVE)
