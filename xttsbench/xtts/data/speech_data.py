"""A data set in LJSpeech's layout, checked once and held in columns.

``metadata.csv`` (:mod:`xttsbench.xtts.data.metadata`) beside ``wavs/<id>.wav`` in canonical form: mono, 16-bit PCM, the
recipe's rate. Optional are ``metadata_eval.csv`` (the held-out clips; without it a seeded sixteenth) and
``speakers.csv`` (``id|speaker``; without it there is one speaker). Never imports TensorFlow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt

from xttsbench.errors import InvalidInputError
from xttsbench.records.base import Record
from xttsbench.xtts.data.metadata import (
    EVAL_METADATA,
    METADATA,
    Issue,
    Metadata,
    Problems,
    encode,
    held_out,
    read_metadata,
    read_speakers,
    repeated,
)
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.wav import CONVERT, WavError, canonical_samples

if TYPE_CHECKING:
    from xttsbench.xtts.data.shard_index import Sharded

MADE: Final = "made.json"
"""Marker file that :mod:`xttsbench.xtts.data.make` leaves in a set that it made."""

MIN_CLIP_S: Final = 0.02
"""Shortest usable clip in seconds: less is not even one frame of features with what surrounds it."""

_REMOVE: Final = "take the clip out of the metadata"

Split = Literal["all", "train", "eval"]
ProblemRule = Literal[
    "corrupt-cache", "stale-cache", "feature-mismatch", "orphaned-file", "unsupported-audio", "bad-metadata"
]


@dataclass(frozen=True, eq=False)
class SpeechData:
    """The clips of a data set, by number."""

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
    rows: npt.NDArray[np.integer]
    sharded: Sharded | None = None
    """Shards of features in place of WAV files; ``None`` where there are such files."""

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
    """Read the metadata of a data set, and check every WAV header of a split; of a sharded one read its index alone.

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
    from xttsbench.xtts.data.shard_index import is_sharded, read_sharded  # which need what is defined here

    if is_sharded(directory):
        return read_sharded(directory, sample_rate_hz, split, seed)
    data, problems, checked = _read(directory, sample_rate_hz, split, seed)
    if problems:
        raise problems.error(str(directory), checked, _remedy(directory, problems))
    return data


def _read(directory: Path, sample_rate_hz: int, split: Split, seed: int) -> tuple[SpeechData, Problems, int]:
    """Return the clips of a split that can be used, what is wrong with the others, and how many were looked at."""
    _check_layout(directory)
    problems = Problems()
    metadata = read_metadata(directory, seed, problems)
    if not len(metadata) and not problems:
        raise InvalidInputError(f"{directory / METADATA}: names no clip; write one line 'id|text' for each")
    speakers, names = read_speakers(directory, metadata, problems)
    rows = _rows(metadata, split)
    if not len(rows) and not problems:
        raise InvalidInputError(
            f"{directory}: no clip of {len(metadata)} is for {'evaluation' if split == 'eval' else 'training'}; "
            f"add clips, or name some in {EVAL_METADATA if split == 'eval' else METADATA}"
        )
    checked = len(rows) + len(problems)
    samples = _samples(directory, metadata, rows, sample_rate_hz, problems)
    rows, samples = rows[samples > 0], samples[samples > 0]
    lengths = metadata.text_lengths[rows]
    return (
        SpeechData(directory, sample_rate_hz, samples, speakers[rows], names, lengths, metadata, rows),
        problems,
        checked,
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
    """Return the samples of each clip, ``[n]``; 0 for those that cannot be used, which are added to the problems."""
    folder = os.path.join(directory, "wavs", "")  # strings: a million paths would take seconds of their own
    fewest = MIN_CLIP_S * sample_rate_hz
    again = repeated(metadata)
    samples = np.zeros(len(rows), np.int64)
    for position, row in enumerate(rows.tolist()):
        if row in again:
            continue
        clip = metadata.ids[row]
        try:
            found = canonical_samples(f"{folder}{clip}.wav", sample_rate_hz)
        except WavError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                what, remedy = f"there is no wavs/{clip}.wav", "add the file or remove the line"
                problems.add("without a WAV file", metadata.where(row), what, clip, remedy)
            else:
                kind = "in another form" if error.remedy == CONVERT else "unreadable"
                problems.add(kind, f"wavs/{clip}.wav", error.reason, clip, error.remedy)
            continue
        if found < fewest:
            what = f"lasts {found} samples, and {MIN_CLIP_S:g} s is the least"
            problems.add("too short", f"wavs/{clip}.wav", what, clip, _REMOVE)
        else:
            samples[position] = found
    return samples


def _check_layout(directory: Path) -> None:
    """Raise unless the directory has metadata and a folder of WAV files."""
    if not directory.exists():
        raise InvalidInputError(f"{directory}: there is no such directory; name a data set in LJSpeech's layout")
    if not directory.is_dir():
        raise InvalidInputError(f"{directory}: is a file; name the directory that holds {METADATA} and wavs/")
    missing = [name for name in (METADATA, "wavs") if not (directory / name).exists()]
    if missing:
        raise InvalidInputError(
            f"{directory}: not a data set in LJSpeech's layout: looked for {METADATA} and wavs/<id>.wav, and "
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; where it holds speech, run "
            f"'xttsbench data import {quote(str(directory))} --out NEW --metadata FILE', else 'xttsbench data make'"
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


class Problem(Record):
    """One thing that is wrong."""

    rule: ProblemRule
    clip: str | None
    """The clip's id; None where it is not about one clip, or where the id is what is wrong."""
    what: str
    remedy: str

    @property
    def in_cache(self) -> bool:
        """Whether the problem is in files that ``--fix`` can make again."""
        return self.rule in ("corrupt-cache", "stale-cache", "feature-mismatch", "orphaned-file")


def usable(directory: Path, features: FeatureSettings) -> tuple[SpeechData | None, int, list[Problem]]:
    """Return the clips of a data set that can be used, the number of all, and what is wrong with the others.

    :func:`read_speech_data` refuses a data set with a bad clip in it, in one sentence; here all of them are listed.

    Returns:
        The clips, None where there is none; the clips of the metadata, unusable ones included; what is wrong.

    Raises:
        InvalidInputError: the directory is no data set, or its metadata cannot be read at all.
    """
    data, listed, _ = _read(directory, features.sample_rate_hz, "all", 0)
    clips = len(data.metadata) + sum(listed.kinds[kind] for kind in ("malformed", "with a bad id", "without text"))
    problems = [_problem(directory, issue) for issue in listed.issues]
    fewest = features.fewest_samples
    for clip in np.flatnonzero(data.samples < fewest).tolist():
        what = f"wavs/{data.id(clip)}.wav has {data.samples[clip]} samples, and these features need {fewest}"
        problems.append(Problem(rule="unsupported-audio", clip=data.id(clip), what=what, remedy=_REMOVE))
    data = data.subset(np.flatnonzero(data.samples >= fewest))
    return (data if len(data) else None), clips, problems


def _problem(directory: Path, issue: Issue) -> Problem:
    if not issue.where.startswith("wavs/"):
        what, remedy = str(issue), issue.remedy or "correct or remove the line"
        return Problem(rule="bad-metadata", clip=issue.clip, what=what, remedy=remedy)
    remedy = issue.remedy or _REMOVE
    if remedy == CONVERT:
        remedy = f"run 'xttsbench data import {directory} --out NEW' and use NEW"
    return Problem(rule="unsupported-audio", clip=issue.clip, what=f"{issue.where} {issue.what}", remedy=remedy)
