"""The trainer's evaluation: the loss on held-out clips every so often, and what the model speaks, at the end or then.

Both are of the averaged weights, where a recipe keeps averages, and drop nothing, so that they depend on the state
alone. Files are written in the run's directory: ``evaluation/`` and, for TensorBoard, ``tensorboard/``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import tensorflow as tf

from xttsbench.errors import InvalidInputError
from xttsbench.records.training import Ended, Evaluated, Interval
from xttsbench.training.loop import Action, HeldOut
from xttsbench.training.state import TrainingState
from xttsbench.xtts.clips import (
    Templates,
    as_reference,
    choose,
    learn,
    letters_of,
    made_of,
    mel_of,
    reference_clips,
)
from xttsbench.xtts.data.batches import LossCounts, held_out_batches, loss_counts
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.evaluate import (
    RECOGNISED,
    Evaluation,
    Example,
    Listener,
    examples,
    write_evaluation,
)
from xttsbench.xtts.loaders.loader import explained, make_dataset
from xttsbench.xtts.model.loss import losses
from xttsbench.xtts.model.speech_model import open_spec
from xttsbench.xtts.recipe import Recipe

TENSORBOARD: Final = "tensorboard"
"""Directory within that of a run."""

_OF_INTERVAL: Final = ("loss", "mel", "stop", "guided", "gradient_norm", "learning_rate", "loss_scale")
_OF_EVALUATED: Final = ("loss", "mel", "stop", "guided")
Batch = dict[str, tf.Tensor]
VOICES: Final = 64
"""Speakers at most whose clips are spoken."""


class TensorBoard(Action):
    """Writes the numbers of intervals and evaluations; each step of a resumed run is written by its number."""

    def __init__(self, directory: Path) -> None:
        """Open a new file of events in a run's directory, beside those of earlier sessions."""
        self._writer = tf.summary.create_file_writer(str(directory / TENSORBOARD))

    def interval(self, interval: Interval) -> None:
        """Write the means of an interval at its last step."""
        values = {f"training/{name}": getattr(interval, name) for name in _OF_INTERVAL}
        self._scalars(values, interval.first_step + interval.steps - 1)

    def evaluated(self, evaluated: Evaluated) -> None:
        """Write the held-out loss."""
        self._scalars({f"held_out/{name}": getattr(evaluated, name) for name in _OF_EVALUATED}, evaluated.step)

    def spoken(self, found: Evaluation, shown: list[Example], sample_rate_hz: int) -> None:
        """Write what was heard of the model's speech, and the sound and picture of some of it."""
        self._scalars(found.metrics(), found.step)
        with self._writer.as_default(step=found.step):
            for example in shown:
                tf.summary.audio(example.name, example.samples[None, :, None], sample_rate_hz)
                tf.summary.image(example.name, tf.io.decode_png(example.picture, 3)[None])
        self._writer.flush()

    def ended(self, ended: Ended) -> None:
        """Flush; what is written after the run's end is flushed with it."""
        self._writer.flush()

    def _scalars(self, values: dict[str, float | None], step: int) -> None:
        with self._writer.as_default(step=step):
            for name, value in values.items():
                if value is not None:
                    tf.summary.scalar(name, np.float32(value))
        self._writer.flush()


class HeldOutLoss:
    """``loss()`` of a state on the held-out clips; the batches are read again each time."""

    def __init__(
        self,
        state: TrainingState,
        recipe: Recipe,
        data: SpeechData,
        *,
        loader: str = "numpy_wav",
        cache: FeatureCache | None = None,
        seed: int = 0,
    ) -> None:
        """Plan the batches and trace the loss.

        The loader is one of :data:`xttsbench.xtts.loaders.LOADERS`; the seed decides the references.

        Raises:
            InvalidInputError: a clip is too long for a batch and the recipe refuses such, or the loader lacks a cache.
        """
        self.state, self.recipe = state, recipe
        frames = data.samples // recipe.features.hop_samples
        columns = frames, data.text_lengths, data.speakers
        batches = held_out_batches(*columns, recipe.batches, seed=seed, name=data.id)
        counts = [loss_counts(batch, frames, data.text_lengths, recipe.model) for batch in batches]
        self.counts = LossCounts(*(sum(column) for column in zip(*counts, strict=True)))
        self.clips = sum(len(batch.clips) for batch in batches)
        self._dataset = make_dataset(loader, data, cache, batches, recipe.features, repeat=False)
        self._spec = open_spec(recipe.features.n_mels)
        self._function = tf.function(self._losses, input_signature=[self._spec], autograph=False)

    def __call__(self) -> HeldOut:
        """Return the loss of the averaged weights.

        Raises:
            XttsbenchError: a held-out clip or its features cannot be read any more.
        """
        with self.state.averaged(), explained():
            found = [self._function({key: batch[key] for key in self._spec}) for batch in self._dataset]
        total, mel, stop, guided = (float(value) for value in tf.add_n(found))
        return HeldOut(total, mel, stop, guided, self.clips)

    @tf.autograph.experimental.do_not_convert
    def _losses(self, batch: Batch) -> tf.Tensor:
        prediction = self.state.model(batch)
        counts = LossCounts(*(tf.constant(count, tf.float32) for count in self.counts))
        return tf.stack(losses(batch, prediction, self.recipe.model, self.recipe.loss, counts))


class Hearing:
    """Lets a state's model speak texts of both sides of the split, and measures what comes out."""

    def __init__(
        self,
        state: TrainingState,
        recipe: Recipe,
        training: SpeechData,
        held_out: SpeechData | None,
        directory: Path,
        board: TensorBoard | None = None,
    ) -> None:
        """Choose clips and references, and learn the recogniser's templates from the training clips.

        The board is given numbers, sounds and pictures.

        Raises:
            InvalidInputError: a file cannot be read any more, or no clip fits a batch.
        """
        self._state, self._recipe, self._directory, self._board = state, recipe, directory, board
        features = recipe.features
        voices = reference_clips(training, range(min(len(training.speaker_names), VOICES)))
        references = {
            speaker: as_reference(mel_of(training, clip, features), features, recipe.batches.reference_frames)
            for speaker, clip in voices.items()
        }
        chosen = {
            "held_out": None
            if held_out is None
            else choose(held_out, features, recipe.batches, speakers=tuple(voices)),
            "training": choose(training, features, recipe.batches, speakers=tuple(voices), but=voices.values()),
        }
        self._sides = {side: clips for side, clips in chosen.items() if clips is not None}
        if "training" not in self._sides:
            raise InvalidInputError(
                f"{training.directory}: no clip of {len(training)} is within the last edges of the recipe "
                f"({recipe.batches.frame_edges[-1]} frames, {recipe.batches.text_edges[-1]} characters); add edges"
            )
        templates, self._not_measured = _templates(training, recipe, len(voices))
        self._listener = Listener(state.model, recipe, references, templates)

    def __call__(self, step: int) -> Evaluation:
        """Evaluate the averaged weights after so many steps, and write what there is to hear, to see and to read.

        Raises:
            OSError: the files cannot be written.
        """
        with self._state.averaged():
            spoken = {side: self._listener(clips) for side, clips in self._sides.items()}
        held_out = spoken.get("held_out")
        found = Evaluation(
            step=step,
            held_out=None if held_out is None else held_out.heard,
            training=spoken["training"].heard,
            not_measured=self._not_measured,
        )
        shown, rate_hz = examples(spoken, self._recipe), self._recipe.features.sample_rate_hz
        write_evaluation(self._directory, found, shown, rate_hz)
        if self._board is not None:
            self._board.spoken(found, shown, rate_hz)
        return found


def _templates(training: SpeechData, recipe: Recipe, speakers: int) -> tuple[Templates | None, dict[str, str]]:
    """Return the templates of the training clips' letters; or None, and of each number why it is not measured."""
    made = made_of(training.directory)
    if made is None:
        why = "which letter a frame says is known of data that 'xttsbench data make' made, and not of this set"
    else:
        clips = (
            (mel_of(training, clip, recipe.features), letters_of(training, clip, made, recipe.features), speaker)
            for clip, speaker in enumerate(training.speakers.tolist())
        )
        try:
            return learn(clips, speakers), {}
        except ValueError as error:
            why = f"no templates could be learnt: {error}"
    return None, dict.fromkeys(RECOGNISED, why)
