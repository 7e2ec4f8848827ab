"""The clips that a model is evaluated on, and a listener for them that is never trained: letters by nearest spectra.

Clips and speakers' references are chosen, not drawn. A template is the mean spectral envelope of a letter as a speaker
says it, from clips whose letters are known frame by frame. A clip is read as the sequence of templates that is nearest
to it, where each change from one to the next costs something: without that cost, a frame between two letters would
often be nearest to a third.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from xttsbench.errors import InvalidInputError
from xttsbench.inputs import read_bytes
from xttsbench.xtts.data.make import MadeData
from xttsbench.xtts.data.speech_data import MADE, SpeechData
from xttsbench.xtts.data.synthesis import letters_at
from xttsbench.xtts.features import FeatureSettings, Floats, log_mel
from xttsbench.xtts.recipe import BatchSettings
from xttsbench.xtts.wav import read_canonical_wav

CLIPS: Final = 16
"""Spoken clips of each side: a batch of them takes as long as one."""


@dataclass(frozen=True, eq=False)
class Clips:
    """Clips of a data set."""

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
        return MadeData.model_validate_json(read_bytes(path))
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


Array = npt.NDArray[np.float64]
Mel = npt.NDArray[np.floating[Any]]

BLANK: Final = " "

CHANGE_COST: Final = 2.0
"""Cost of a change of letters, in mean squared deviations: by so much, in sum, the frames of a letter must be nearer to
it than to its neighbours.
"""

_CEPSTRA: Final = 20
"""Coefficients of a spectrum's cosine transform: the envelope, that is the letter, without the harmonics, that is the
pitch.
"""
_SHRINKAGE: Final = 0.01  # of the mean variance, added to each (Friedman, "Regularized discriminant analysis", 1989)


@dataclass(frozen=True, eq=False)
class Templates:
    """Mean envelopes by speaker and letter, in a space in which a letter's frames deviate alike in all directions."""

    letters: tuple[str, ...]
    projection: Array
    """``[n_mels, cepstra]``: from log-mels to that space."""
    envelopes: Array
    """``[speakers, letters, cepstra]``"""

    def read(self, mel: Mel, speaker: int) -> str:
        """Return what is said in log-mels ``[frames, n_mels]``, letter by letter and without blanks."""
        path, _ = nearest_path(self._distances(mel, speaker))
        changes = np.flatnonzero(np.diff(path, prepend=-1))
        return "".join(self.letters[letter] for letter in path[changes]).replace(BLANK, "")

    def speaker(self, mel: Mel) -> int:
        """Return whose templates explain log-mels ``[frames, n_mels]`` best."""
        return int(np.argmin([nearest_path(self._distances(mel, n))[1] for n in range(len(self.envelopes))]))

    def _distances(self, mel: Mel, speaker: int) -> Array:
        """Return the mean squared deviation of each frame from each letter, ``[frames, letters]``."""
        deviations: Array = (mel @ self.projection)[:, None] - self.envelopes[speaker]
        return (deviations**2).mean(-1)


def learn(clips: Iterable[tuple[Mel, npt.NDArray[np.str_], int]], speakers: int) -> Templates:
    """Return the templates of clips whose letters are known.

    Frames that lie beside another letter hold some of both, and count only for a letter that has no others. A clip has
    log-mels ``[frames, n_mels]``, the letter of each frame and the speaker's number; each speaker must say each letter.

    Raises:
        ValueError: there is no clip, or a speaker never says one of the letters.
    """
    from scipy.fft import dct

    columns = [(mel, said, np.full(len(said), speaker), _inside(said)) for mel, said, speaker in clips]
    if not columns:
        raise ValueError("templates are learnt from one clip or more, got none")
    mel, said, voice, inside = (np.concatenate(column) for column in zip(*columns, strict=True))
    cosines = dct(np.eye(mel.shape[1]), axis=-1, norm="ortho")[:, :_CEPSTRA]
    cepstra = mel @ cosines
    letters = tuple(np.unique(said).tolist())
    means = np.empty((speakers, len(letters), cepstra.shape[1]))
    scatter, count = np.zeros((cepstra.shape[1],) * 2), 0
    for speaker in range(speakers):
        for number, letter in enumerate(letters):
            mine = (voice == speaker) & (said == letter)
            if not mine.any():
                raise ValueError(f"speaker {speaker} never says {letter!r} in the clips; give more of them")
            frames = cepstra[mine & inside if (mine & inside).any() else mine]
            means[speaker, number] = frames.mean(0)
            deviations = frames - means[speaker, number]
            scatter, count = scatter + deviations.T @ deviations, count + len(frames)
    # After the whitening, deviations have the same variance in all directions.
    variances, directions = np.linalg.eigh(scatter / count)
    whitening = directions / np.sqrt(variances + _SHRINKAGE * variances.mean())
    return Templates(letters, cosines @ whitening, means @ whitening)


def nearest_path(distances: Array) -> tuple[npt.NDArray[np.intp], float]:
    """Return the letter of each frame, ``[frames]``, and its cost: the least of all (Viterbi, 1967).

    To the distances, ``[frames, letters]``, :data:`CHANGE_COST` is added for each change.
    """
    came_from = np.empty(distances.shape, np.intp)
    costs, stay = np.zeros(distances.shape[1]), np.arange(distances.shape[1])
    for frame, distance in enumerate(distances):
        best = int(costs.argmin())
        changes = costs[best] + CHANGE_COST < costs
        came_from[frame] = np.where(changes, best, stay)
        costs = np.where(changes, costs[best] + CHANGE_COST, costs) + distance
    path = np.empty(len(distances), np.intp)
    letter = int(costs.argmin())
    for frame in range(len(distances) - 1, -1, -1):
        path[frame] = letter
        letter = int(came_from[frame, letter])
    return path, float(costs.min())


def _inside(said: npt.NDArray[np.str_]) -> npt.NDArray[np.bool_]:
    """Return which frames have the same letter on both sides, ``[frames]``."""
    changes = said[1:] != said[:-1]
    return ~(np.append(changes, False) | np.insert(changes, 0, False))


def edit_distance(said: str, heard: str) -> int:
    """Return the fewest letters to insert, delete or replace that make one of the other (Levenshtein, 1966)."""
    row = list(range(len(heard) + 1))
    for number, letter in enumerate(said, start=1):
        above, row[0] = row[0], number
        for place, other in enumerate(heard, start=1):
            above, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, above + (letter != other))
    return row[-1]


def phone_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Return the edit distances of (text, what was heard) over the letters of all texts, blanks left out.

    0 is every letter in its place; above 1 more was heard than was to be said.

    Raises:
        ValueError: the texts hold no letter.
    """
    errors = letters = 0
    for text, heard in pairs:
        said = text.replace(BLANK, "")
        errors += edit_distance(said, heard)
        letters += len(said)
    if not letters:
        raise ValueError("a rate of errors needs a letter to be said, and the texts hold none")
    return errors / letters
