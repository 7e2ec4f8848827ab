"""A model heard: it speaks texts from nothing but a reference, and what comes out is recognised and measured.

The loss of a model that is shown the frames before says little: one that ignores its text and continues the sound can
have a low one, and its attention may be a diagonal all the same. Whether it reads shows in what it speaks by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.xtts.audio.features import FeatureSettings, Floats, griffin_lim, log_mel
from xttsbench.xtts.evaluation.clips import Clips, Templates, phone_error_rate
from xttsbench.xtts.evaluation.written import SHOWN, Example, Heard, picture
from xttsbench.xtts.model import SpeechModel, losses, open_spec
from xttsbench.xtts.model.generate import Generated, Generator
from xttsbench.xtts.recipe import Recipe

BAND = 0.2
"""Of the text's length: attention that is no farther from the diagonal counts as on it."""


class Spoken(NamedTuple):
    """What a model spoke of some clips, and what was heard of it."""

    clips: Clips
    generated: Generated
    sounds: list[Floats]
    """Of each clip the samples that Griffin-Lim made."""
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
            if len(self.references) > 1:
                others = [self._other(speaker) for speaker in own]
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

    def _other(self, speaker: int) -> int:
        """Return the speaker after one, going round."""
        known = sorted(self.references)
        return known[(known.index(speaker) + 1) % len(known)]

    def _recognised(self, mels: Sequence[Floats], speakers: Sequence[int]) -> float:
        assert self.templates is not None
        found = [self.templates.speaker(mel) == speaker for mel, speaker in zip(mels, speakers, strict=True)]
        return float(np.mean(found))

    def _wrong_over_right(self, clips: Clips) -> float:
        """Return the mel loss with the text of the clip after each over that with its own."""
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
    return [example for side, one in spoken.items() for example in _of_side(side, one, recipe)]


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
