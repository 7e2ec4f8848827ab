"""Trained models heard: what they speak by themselves, of clips that they were taught and of others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from xttsbench.errors import InvalidInputError
from xttsbench.records.training import CHECKPOINTS
from xttsbench.training.checkpoints import Checkpoints
from xttsbench.training.state import TrainingState
from xttsbench.training.step import make_strategy
from xttsbench.xtts.clips import Clips, as_reference, choose, learn, letters_of, made_of, mel_of, reference_clips
from xttsbench.xtts.data.speech_data import Split, read_speech_data
from xttsbench.xtts.evaluate import Listener
from xttsbench.xtts.recipe import Recipe

CLIPS = 32  # of each side that are spoken


class Hearing:
    """Hears models on one data set, with templates of its training clips as they are: the control's, too.

    Args:
        data: directory of the clips, whose texts are what is said in them.
        recipe: model, features and loss of all models.
    """

    def __init__(self, data: Path, recipe: Recipe) -> None:
        rate_hz, features = recipe.features.sample_rate_hz, recipe.features
        splits: dict[str, Split] = {"training": "train", "held_out": "eval"}
        sides = {side: read_speech_data(data, sample_rate_hz=rate_hz, split=split) for side, split in splits.items()}
        training, letters = sides["training"], made_of(data)
        if letters is None:
            raise ValueError(f"{data}: was not made by this project, so that its letters are not known")
        voices = reference_clips(training, range(len(training.speaker_names)))
        self._recipe = recipe
        self._references = {
            speaker: as_reference(mel_of(training, clip, features), features, recipe.batches.reference_frames)
            for speaker, clip in voices.items()
        }
        self._templates = learn(
            (
                (mel_of(training, clip, features), letters_of(training, clip, letters, features), speaker)
                for clip, speaker in enumerate(training.speakers.tolist())
            ),
            len(voices),
        )
        self._sides: dict[str, Clips] = {}
        for side, clips in sides.items():
            # The references' own clips are left out, which may not be told by copying.
            but = voices.values() if side == "training" else ()
            chosen = choose(clips, features, recipe.batches, speakers=tuple(voices), but=but, count=CLIPS)
            if chosen is None:
                raise ValueError(f"{data}: no clip of {side} fits a batch of the recipe")
            self._sides[side] = chosen

    def __call__(self, run: Path) -> dict[str, dict[str, Any]]:
        """Return what is heard of the newest checkpoint of a run, ``{side: figures}``.

        Raises:
            InvalidInputError: there is no checkpoint, or it is not of such a model.
        """
        found = Checkpoints(run / CHECKPOINTS, keep=1).newest(lambda sentence: print(sentence, file=sys.stderr))
        if found is None:
            raise InvalidInputError(f"{run}: no checkpoint was written")
        state = TrainingState(self._recipe, make_strategy("one"), found.run.origin.precision, seed=0)
        state.restore(found.weights, found.optimizer)
        listener = Listener(state.model, self._recipe, self._references, self._templates)
        with state.averaged():
            return {side: listener(clips).heard.model_dump() for side, clips in self._sides.items()}
