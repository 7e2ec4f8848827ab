"""The order of a run's batches: a function of seed and position, so that to go on is to begin at another place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from xttsbench.training.position import Position
from xttsbench.xtts.data.batches import Batch, plan
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.recipe import BatchSettings, Recipe


def clip_frames(data: SpeechData, recipe: Recipe) -> npt.NDArray[np.int64]:
    """Return the mel frames of each clip, ``[n]``."""
    return data.samples // recipe.features.hop_samples


def planned_epoch(data: SpeechData, recipe: Recipe, settings: BatchSettings, seed: int, epoch: int) -> list[Batch]:
    """Return the global batches of an epoch.

    Raises:
        InvalidInputError: a clip is too long, or the clips are fewer than a batch.
    """
    frames = clip_frames(data, recipe)
    return plan(frames, data.text_lengths, data.speakers, settings, seed=seed, epoch=epoch, name=data.id)


def planned_from(
    data: SpeechData, recipe: Recipe, settings: BatchSettings, seed: int, position: Position
) -> Iterator[tuple[Position, Batch]]:
    """Yield without end the global batch of each step from a position on, and the position after it.

    One epoch is planned at a time, when its first batch is asked for.
    """
    step, epoch, first = position.step, position.epoch, position.batch
    while True:
        batches = planned_epoch(data, recipe, settings, seed, epoch)
        for number in range(first, len(batches)):
            step += 1
            is_last = number + 1 == len(batches)
            yield Position(step=step, epoch=epoch + is_last, batch=0 if is_last else number + 1), batches[number]
        epoch, first = epoch + 1, 0
