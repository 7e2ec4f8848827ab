"""The files of an evaluation: sound, pictures, numbers, and a reference of each speaker for synthesis without the data.

``evaluation/evaluation.json``, and for some clips of each side ``<side>-<id>.wav`` and ``.png``; beside them
``references.npz``, log-mels ``[frames, n_mels]`` by the name of the speaker. Each file is whole or not there.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xttsbench.errors import InvalidInputError
from xttsbench.files import atomic_file, atomic_write
from xttsbench.records.base import SCHEMA_VERSION, Record
from xttsbench.xtts.audio.features import Floats
from xttsbench.xtts.audio.wav import write_wav

EVALUATION: Final = "evaluation"
"""Directory within that of a run."""
REFERENCES: Final = "references.npz"
SHOWN: Final = 4
"""Clips of each side whose sound and picture are written."""


RECOGNISED: Final = (
    "phone_error_rate",
    "phone_error_rate_sound",
    "phone_error_rate_truth",
    "speaker_kept",
    "speaker_swapped",
)
"""Fields of :class:`Heard` that take a recogniser."""


class Heard(Record):
    """What was heard of some clips whose texts the model spoke by itself."""

    clips: int
    phone_error_rate: float | None = None
    """Of the speech itself: 0 is every letter in its place."""
    phone_error_rate_sound: float | None = None
    """The same after Griffin-Lim made sound of it and the features were computed from that."""
    phone_error_rate_truth: float | None = None
    """Of the recorded clips: what the recogniser itself gets wrong."""
    length_ratio: float
    """Frames spoken over the recorded clip's, mean."""
    never_stopped: float
    """Share that was cut off for want of an end."""
    wrong_over_right: float | None = None
    """Mel loss with another clip's text over that with its own: 1 is a model that does not read."""
    speaker_kept: float | None = None
    """Share that is recognised as the speaker of its reference."""
    speaker_swapped: float | None = None
    """The same where the reference is of another speaker than the recorded clip's."""
    diagonality: float | None = None
    """Share of a guided head's attention that is near the diagonal."""


class Evaluation(Record):
    """``evaluation.json``."""

    schema_version: int = SCHEMA_VERSION
    step: int
    held_out: Heard | None
    """``None`` where the data set holds no clip out."""
    training: Heard
    not_measured: Mapping[str, str] = {}
    """Why a field of the others is ``None``."""

    def metrics(self) -> dict[str, float | None]:
        """Return all numbers by name, ``held_out/...`` and ``training/...``."""
        groups = {"held_out": self.held_out, "training": self.training}
        return {
            f"{group}/{name}": value
            for group, heard in groups.items()
            if heard is not None
            for name, value in heard.model_dump().items()
            if name != "clips"
        }


class Example(NamedTuple):
    """One clip to hear and to see."""

    name: str
    samples: Floats
    picture: bytes
    """A PNG."""


def write_evaluation(directory: Path, found: Evaluation, shown: list[Example], sample_rate_hz: int) -> None:
    """Write an evaluation into a run's directory, in place of the one before.

    Raises:
        OSError: a file cannot be written.
    """
    folder = directory / EVALUATION
    folder.mkdir(parents=True, exist_ok=True)
    for example in shown:
        write_sound(folder / f"{example.name}.wav", example.samples, sample_rate_hz)
        atomic_write(folder / f"{example.name}.png", example.picture)
    atomic_write(folder / "evaluation.json", found.model_dump_json(indent=2).encode() + b"\n")


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


def picture(text: str, recorded: Floats, generated: Floats, attention: Floats | None, frame_s: float) -> bytes:
    """Return a PNG of one clip.

    The log-mels are ``[frames, n_mels]``, the attention of a guided head, where there is one, ``[steps, characters]``;
    ``frame_s`` is the duration of a frame.
    """
    rows = 2 if attention is None else 3
    figure = Figure(figsize=(9, 2.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1)
    low, high = float(recorded.min()), float(recorded.max())
    for axis, title, mel in ((axes[0], "recorded", recorded), (axes[1], "generated", generated)):
        _image(axis, mel, len(mel) * frame_s, vmin=low, vmax=high)
        axis.set(title=title, ylabel="mel")
    if attention is not None:
        _image(axes[2], attention, len(generated) * frame_s, vmin=0, vmax=float(attention.max()))
        axes[2].set(title="attention of a guided head", ylabel="character")
    axes[-1].set_xlabel("time in s")
    figure.suptitle(text if len(text) <= 100 else f"{text[:99]}…")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def _image(axis: Axes, values: Floats, seconds: float, *, vmin: float, vmax: float) -> None:
    """Draw ``[time, height]`` with time to the right, over so many seconds."""
    axis.imshow(
        values.T,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        extent=(0, seconds, 0, values.shape[1]),
        vmin=vmin,
        vmax=vmax,
    )
