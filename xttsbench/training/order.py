"""What decides a run's steps: its origin (settings and data), the order of its batches, and its position in that order.

All are functions of seed and position, so that resuming is beginning at another place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from xttsbench.records.base import Record
from xttsbench.xtts.data.batches import Batch, plan
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.recipe import (
    BatchSettings,
    LossSettings,
    ModelSettings,
    OptimizerSettings,
    Recipe,
    ScheduleSettings,
)
from xttsbench.xtts.text import VOCABULARY

NONE: Final = hashlib.sha256().hexdigest()
"""The running hash before the first sample."""


class Position(Record):
    """The next step, and the batch that it takes."""

    step: int = 0
    """Steps that ended, those left out included."""
    epoch: int = 0
    batch: int = 0
    """Number of the next batch in the plan of the epoch."""


def consumed(before: str, ids: Sequence[str]) -> str:
    """Return the running hash after a batch: of the one before it, and the ids of the batch's clips in their order.

    An id is the name of a file, so that no two sequences of ids read the same with a zero byte between them.
    """
    return hashlib.sha256("\0".join((before, *ids)).encode()).hexdigest()


def data_sha256(data: SpeechData) -> str:
    """Return the hash of a data set's ids, texts, speakers and lengths, which decide its batches; not of its sound."""
    sha = hashlib.sha256()
    for clip in range(len(data)):
        sha.update(f"{data.id(clip)}\0{data.text(clip)}\0".encode())
    for column in (data.samples, data.speakers):
        sha.update(column.tobytes())
    return sha.hexdigest()


class Origin(Record):
    """Two runs of equal origin take the same steps, however they are loaded, compiled and spread over replicas."""

    features: FeatureSettings
    model: ModelSettings
    vocabulary: int
    """Ids of the text, 0 among them."""
    loss: LossSettings
    batches: BatchSettings
    """``parts`` among them: replicas and accumulated batches count by their product."""
    optimizer: OptimizerSettings
    schedule: ScheduleSettings
    ema_decay: float | None
    precision: str
    seed: int
    data_sha256: str

    @classmethod
    def of(cls, recipe: Recipe, data: SpeechData, *, replicas: int, precision: str, seed: int) -> Origin:
        """Return the origin of a run.

        The recipe holds everything that was changed of it; the replicas are those of all workers.
        """
        return cls(
            features=recipe.features,
            model=recipe.model,
            vocabulary=VOCABULARY,
            loss=recipe.loss,
            batches=with_parts(recipe, replicas),
            optimizer=recipe.optimizer,
            schedule=recipe.training.schedule,
            ema_decay=recipe.training.ema_decay,
            precision=precision,
            seed=seed,
            data_sha256=data_sha256(data),
        )


def with_parts(recipe: Recipe, replicas: int) -> BatchSettings:
    """Return the settings after which the batches of updates are planned: of so many parts as there are micro-steps."""
    return recipe.batches.model_copy(update={"parts": replicas * recipe.training.accumulation})


def differences(there: Origin, here: Origin) -> list[str]:
    """Return the settings in which a checkpoint's origin and ours differ, each with both values."""
    found, ours = dict(_flat(there.model_dump(mode="json"))), dict(_flat(here.model_dump(mode="json")))
    differing = [key for key in {**found, **ours} if found.get(key) != ours.get(key)]
    return [
        "data: another set, or its metadata changed"
        if key == "data_sha256"
        else f"{key}: {found.get(key)} there, {ours.get(key)} here"
        for key in differing
    ]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


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
