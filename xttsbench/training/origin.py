"""What decides a run beside its length: a checkpoint of another origin is of another run, and is not gone on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xttsbench.records.base import Record
from xttsbench.training.samples import data_sha256
from xttsbench.xtts.audio.features import FeatureSettings
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.recipe import BatchSettings, LossSettings, ModelSettings, OptimizerSettings, Recipe
from xttsbench.xtts.text import VOCABULARY
from xttsbench.xtts.training_settings import ScheduleSettings


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

        Args:
            recipe: with everything that was changed of it.
            data: the clips to train on.
            replicas: of all workers.
            precision: Keras's policy, or ``tf32``.
            seed: of weights, order and dropout.
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
