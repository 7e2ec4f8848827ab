"""The clips that a model is evaluated on, their features and letters, and speakers' references: chosen, not drawn."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.audio.features import FeatureSettings, Floats, log_mel
from xttsbench.xtts.audio.synthesis import letters_at
from xttsbench.xtts.audio.wav import read_canonical_wav
from xttsbench.xtts.data.make import MadeData
from xttsbench.xtts.data.speech_data import MADE, SpeechData
from xttsbench.xtts.recipe import BatchSettings

CLIPS: Final = 16
"""Of each side that are spoken: a batch of them takes as long as one."""


@dataclass(frozen=True, eq=False)
class Clips:
    """Some clips of a data set."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    encoded: tuple[npt.NDArray[np.int32], ...]
    speakers: npt.NDArray[np.int32]
    """``[clips]``, as numbers of the data set's names."""
    mels: tuple[Floats, ...]
    """Log-mels ``[frames, n_mels]`` of each."""


def choose(
    data: SpeechData,
    features: FeatureSettings,
    settings: BatchSettings,
    *,
    speakers: Collection[int],
    but: Collection[int] = (),
    count: int = CLIPS,
) -> Clips | None:
    """Return some clips that a batch may hold, the same at each call and of all speakers alike; None where none may.

    Clips beyond the last edges of the settings are left out, and those in ``but`` unless there are no others.

    Raises:
        WavError: a file cannot be read any more.
    """
    frames = data.samples // features.hop_samples
    fits = (frames <= settings.frame_edges[-1]) & (data.text_lengths <= settings.text_edges[-1])
    usable = np.flatnonzero(fits & np.isin(data.speakers, list(speakers)))
    if not len(usable):
        return None
    others = np.setdiff1d(usable, list(but))
    usable = others if len(others) else usable
    shuffled = np.random.default_rng(0).permutation(usable)
    # By turns: the first of each speaker, then the second of each, and so on.
    turn = np.empty(len(shuffled), np.intp)
    for speaker in speakers:
        mine = data.speakers[shuffled] == speaker
        turn[mine] = np.arange(mine.sum())
    clips = shuffled[np.argsort(turn, kind="stable")][:count].tolist()
    return Clips(
        tuple(data.id(clip) for clip in clips),
        tuple(data.text(clip) for clip in clips),
        tuple(data.text_ids(clip) for clip in clips),
        data.speakers[clips],
        tuple(mel_of(data, clip, features) for clip in clips),
    )


def mel_of(data: SpeechData, clip: int, features: FeatureSettings) -> Floats:
    """Return the log-mels of a clip, ``[frames, n_mels]``, from its WAV file.

    Raises:
        WavError: the file cannot be read any more.
    """
    return log_mel(read_canonical_wav(data.wav(clip), features.sample_rate_hz), features)


def reference_clips(data: SpeechData, speakers: Iterable[int]) -> dict[int, int]:
    """Return the clip of each speaker whose beginning serves as a reference: the longest; none for who has no clip."""
    found = {}
    for speaker in speakers:
        mine = np.flatnonzero(data.speakers == speaker)
        if len(mine):
            found[speaker] = int(mine[data.samples[mine].argmax()])
    return found


def as_reference(mel: Floats, features: FeatureSettings, frames: int) -> Floats:
    """Return the beginning of log-mels as a reference, ``[frames, n_mels]``, padded with silence as the loaders do."""
    padding = ((0, max(0, frames - len(mel))), (0, 0))
    return np.pad(mel[:frames], padding, constant_values=np.log(np.float32(features.log_floor)))


def made_of(directory: Path) -> MadeData | None:
    """Return what a made set was made from; None for any other data set, whose phones are not known.

    Raises:
        InvalidInputError: its record cannot be read.
    """
    path = directory / MADE
    if not path.exists():
        return None
    try:
        return MadeData.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InvalidInputError(
            f"{path} cannot be read; delete the directory and run 'xttsbench data make' again"
        ) from error


def letters_of(data: SpeechData, clip: int, made: MadeData, features: FeatureSettings) -> npt.NDArray[np.str_]:
    """Return the letter that is said in the middle of each frame of a clip's features, ``[frames]``."""
    centres = (np.arange(features.frames(int(data.samples[clip])), dtype=np.float64) + 0.5) * features.hop_samples
    index = int(data.id(clip).rpartition("-")[2])
    numbers = letters_at(centres, index, made.seed, made.min_s, made.max_s, made.speakers)
    return np.array(list(data.text(clip)))[numbers]
