"""A model heard: it speaks texts from nothing but a reference, and what comes out is recognised and measured.

The loss of a model that is shown the frames before says little: one that ignores its text and continues the sound can
have a low one, and its attention may be a diagonal all the same. Whether it reads shows in what it speaks by itself.

In a run's directory an evaluation is ``evaluation/evaluation.json``, and for some clips of each side
``<side>-<id>.wav`` and ``.png``. Each file is whole or not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xttsbench.files import atomic_file, atomic_write
from xttsbench.records.base import SCHEMA_VERSION, Record
from xttsbench.xtts.clips import Clips, Templates, phone_error_rate
from xttsbench.xtts.features import FeatureSettings, Floats, griffin_lim, log_mel
from xttsbench.xtts.model.generator import Generated, Generator
from xttsbench.xtts.model.loss import losses
from xttsbench.xtts.model.speech_model import SpeechModel, open_spec
from xttsbench.xtts.recipe import Recipe
from xttsbench.xtts.wav import write_wav

EVALUATION: Final = "evaluation"
"""Directory within that of a run."""
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
    """Recognition errors on clips whose texts the model spoke by itself."""

    clips: int
    phone_error_rate: float | None = None
    """Phone error rate of the speech itself: 0 is every letter in its place."""
    phone_error_rate_sound: float | None = None
    """The same after Griffin-Lim made sound of it and the features were computed from that."""
    phone_error_rate_truth: float | None = None
    """Phone error rate of the recorded clips, that is the recogniser's own errors."""
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
        with atomic_file(folder / f"{example.name}.wav") as file:
            write_wav(file, example.samples, sample_rate_hz)
        atomic_write(folder / f"{example.name}.png", example.picture)
    atomic_write(folder / "evaluation.json", found.model_dump_json(indent=2).encode() + b"\n")


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
        _image(axis, mel, len(mel) * frame_s, low, high)
        axis.set(title=title, ylabel="mel")
    if attention is not None:
        _image(axes[2], attention, len(generated) * frame_s, 0, float(attention.max()))
        axes[2].set(title="attention of a guided head", ylabel="character")
    axes[-1].set_xlabel("time in s")
    figure.suptitle(text if len(text) <= 100 else f"{text[:99]}…")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def _image(axis: Axes, values: Floats, seconds: float, low: float, high: float) -> None:
    """Draw ``[time, height]`` with time to the right, over so many seconds."""
    extent = (0, seconds, 0, values.shape[1])
    axis.imshow(values.T, aspect="auto", origin="lower", interpolation="nearest", extent=extent, vmin=low, vmax=high)


BAND = 0.2
"""Share of the text's length: attention that is no farther from the diagonal counts as on it."""


class Spoken(NamedTuple):
    """Speech that a model made for some clips, and its recognition."""

    clips: Clips
    generated: Generated
    sounds: list[Floats]
    """Samples that Griffin-Lim made, by clip."""
    heard: Heard


class Listener:
    """Evaluates a model, as its variables are at each call; compiled once.

    Attributes:
        generator: speaks with the model.
    """

    def __init__(
        self,
        model: SpeechModel,
        recipe: Recipe,
        references: Mapping[int, Floats],
        templates: Templates | None,
    ) -> None:
        """Prepare a model.

        The references are log-mels ``[reference frames, n_mels]`` by the speaker's number; without templates the
        letters of the data are not known frame by frame.
        """
        self.model, self.recipe, self.references, self.templates = model, recipe, references, templates
        self.generator = Generator(model, step_s(recipe))
        self._forward = tf.function(
            self._mel_loss, input_signature=[open_spec(recipe.features.n_mels)], autograph=False
        )

    def __call__(self, clips: Clips) -> Spoken:
        """Let the model speak the texts of one clip or more; each speaker must have a reference."""
        features, said = self.recipe.features, clips.texts
        own = clips.speakers.tolist()
        generated = self.generator(clips.encoded, self._references(own))
        sounds = [griffin_lim(mel, features) for mel in generated.mels]
        rates: dict[str, float | None] = {}
        if self.templates is not None:
            read = self.templates.read
            for name, mels in (
                ("phone_error_rate", generated.mels),
                ("phone_error_rate_sound", [log_mel(sound, features) for sound in sounds]),
                ("phone_error_rate_truth", clips.mels),
            ):
                heard = [read(mel, speaker) for mel, speaker in zip(mels, own, strict=True)]
                rates[name] = phone_error_rate(zip(said, heard, strict=True))
            rates["speaker_kept"] = self._recognised(generated.mels, own)
            if len(known := sorted(self.references)) > 1:
                others = [known[(known.index(speaker) + 1) % len(known)] for speaker in own]
                swapped = self.generator(clips.encoded, self._references(others))
                rates["speaker_swapped"] = self._recognised(swapped.mels, others)
        lengths = [len(mel) / len(true) for mel, true in zip(generated.mels, clips.mels, strict=True)]
        return Spoken(
            clips,
            generated,
            sounds,
            Heard(
                clips=len(said),
                length_ratio=float(np.mean(lengths)),
                never_stopped=float(1 - generated.stopped.mean()),
                wrong_over_right=self._wrong_over_right(clips) if len(said) > 1 else None,
                diagonality=diagonality(generated.attention) if generated.attention else None,
                **rates,
            ),
        )

    def _references(self, speakers: Sequence[int]) -> Floats:
        return np.stack([self.references[speaker] for speaker in speakers])

    def _recognised(self, mels: Sequence[Floats], speakers: Sequence[int]) -> float:
        assert self.templates is not None
        found = [self.templates.speaker(mel) == speaker for mel, speaker in zip(mels, speakers, strict=True)]
        return float(np.mean(found))

    def _wrong_over_right(self, clips: Clips) -> float:
        others = (*clips.encoded[1:], clips.encoded[0])
        wrong, right = (float(self._forward(self._batch(clips, texts))) for texts in (others, clips.encoded))
        return wrong / right

    def _batch(self, clips: Clips, texts: Sequence[npt.NDArray[np.int32]]) -> dict[str, tf.Tensor]:
        group, features = self.recipe.model.frames_per_step, self.recipe.features
        frames = -(-max(map(len, clips.mels)) // group) * group
        mel = np.full((len(texts), frames, features.n_mels), np.log(features.log_floor), np.float32)
        text = np.zeros((len(texts), max(map(len, texts))), np.int32)
        for row, (spoken, ids) in enumerate(zip(clips.mels, texts, strict=True)):
            mel[row, : len(spoken)], text[row, : len(ids)] = spoken, ids
        return {
            "text": tf.constant(text),
            "text_length": tf.constant([len(ids) for ids in texts], tf.int32),
            "mel": tf.constant(mel),
            "mel_length": tf.constant([len(spoken) for spoken in clips.mels], tf.int32),
            "reference": tf.constant(self._references(clips.speakers.tolist())),
            "reference_start": tf.fill([len(texts)], -1),
        }

    @tf.autograph.experimental.do_not_convert
    def _mel_loss(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return losses(batch, self.model(batch), self.recipe.model, self.recipe.loss).mel


def step_s(recipe: Recipe) -> float:
    """Return the duration of one step of the decoder in seconds."""
    features: FeatureSettings = recipe.features
    return recipe.model.frames_per_step * features.hop_samples / features.sample_rate_hz


def diagonality(attention: Sequence[Floats]) -> float:
    """Return the share of the attention ``[steps, characters]`` of clips that lies within :data:`BAND` of a diagonal.

    The diagonal is that of the guided loss: character n of N at step t of T where ``n / N = t / T``.
    """
    shares = []
    for weights in attention:
        steps, characters = weights.shape
        distance = np.abs(np.arange(characters) / characters - (np.arange(steps) / steps)[:, None])
        shares.append(weights[distance <= BAND].sum() / weights.sum())
    return float(np.mean(shares))


def examples(spoken: Mapping[str, Spoken], recipe: Recipe) -> list[Example]:
    """Return the first clips of each side, named after both."""
    frame_s = recipe.features.hop_samples / recipe.features.sample_rate_hz
    shown = []
    for side, one in spoken.items():
        clips, made = one.clips, one.generated
        for row in range(min(SHOWN, len(clips.ids))):
            attention = made.attention[row] if made.attention else None
            drawn = picture(clips.texts[row], clips.mels[row], made.mels[row], attention, frame_s)
            shown.append(Example(f"{side}-{clips.ids[row]}", one.sounds[row], drawn))
    return shown
