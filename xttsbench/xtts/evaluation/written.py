"""The files of an evaluation: sound, pictures, numbers, and a reference of each speaker for synthesis without the data.

``evaluation/evaluation.json``, and for some clips of each side ``<side>-<id>.wav`` and ``.png``; beside them
``references.npz``, log-mels ``[frames, n_mels]`` by the name of the speaker. Each file is whole or not there.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from xttsbench.errors import InvalidInputError
from xttsbench.xtts.audio.features import Floats
from xttsbench.xtts.audio.wav import write_wav
from xttsbench.xtts.data.npy_cache import atomic_file
from xttsbench.xtts.evaluation.pictures import picture
from xttsbench.xtts.evaluation.results import Evaluation
from xttsbench.xtts.recipe import Recipe

if TYPE_CHECKING:
    from xttsbench.xtts.evaluation.evaluate import Spoken

EVALUATION: Final = "evaluation"
"""Directory within that of a run."""
REFERENCES: Final = "references.npz"
SHOWN: Final = 4
"""Clips of each side whose sound and picture are written."""


class Example(NamedTuple):
    """One clip to hear and to see."""

    name: str
    samples: Floats
    picture: bytes
    """A PNG."""


def examples(spoken: Mapping[str, Spoken], recipe: Recipe) -> list[Example]:
    """Return the first clips of each side, named after both."""
    return [example for side, one in spoken.items() for example in _of_side(side, one, recipe)]


def write_evaluation(directory: Path, found: Evaluation, shown: list[Example], sample_rate_hz: int) -> None:
    """Write an evaluation into a run's directory, in place of the one before.

    Raises:
        OSError: a file cannot be written.
    """
    folder = directory / EVALUATION
    folder.mkdir(parents=True, exist_ok=True)
    for example in shown:
        write_sound(folder / f"{example.name}.wav", example.samples, sample_rate_hz)
        with atomic_file(folder / f"{example.name}.png") as file:
            file.write(example.picture)
    with atomic_file(folder / "evaluation.json") as file:
        file.write(found.model_dump_json(indent=2).encode() + b"\n")


def write_sound(path: Path, samples: Floats, sample_rate_hz: int) -> None:
    """Write a 16-bit WAV file, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with atomic_file(path) as file:
        write_wav(file, samples, sample_rate_hz)


def write_references(directory: Path, references: Mapping[str, Floats]) -> None:
    """Write the references of speakers, by name, into a run's directory.

    Raises:
        OSError: the file cannot be written.
    """
    folder = directory / EVALUATION
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / REFERENCES) as file:
        np.savez(file, allow_pickle=False, names=np.array(list(references)), mels=np.stack(list(references.values())))


def read_references(directory: Path) -> dict[str, Floats]:
    """Return the references that a run's directory holds, by the names of the speakers; none where there is no file.

    Raises:
        InvalidInputError: the file is damaged.
    """
    path = directory / EVALUATION / REFERENCES
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(zip(arrays["names"].tolist(), arrays["mels"], strict=True))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{path} is damaged ({error}); name a reference: --reference FILE.wav") from error


def _of_side(side: str, spoken: Spoken, recipe: Recipe) -> list[Example]:
    clips, made, frame_s = spoken.clips, spoken.generated, recipe.features.hop_samples / recipe.features.sample_rate_hz
    return [
        Example(
            f"{side}-{clips.ids[row]}",
            spoken.sounds[row],
            picture(
                clips.texts[row],
                clips.mels[row],
                made.mels[row],
                made.attention[row] if made.attention else None,
                frame_s,
            ),
        )
        for row in range(min(SHOWN, len(clips.ids)))
    ]
