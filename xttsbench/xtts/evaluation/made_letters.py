"""Which letter is said in each frame: known of speech that the project made itself, and of no other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.audio.synthesis import letters_at
from xttsbench.xtts.data.make import MadeData
from xttsbench.xtts.data.speech_data import MADE, SpeechData


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
