"""The course of a run: what decides its steps, where it is, how it does, and the sums over an interval of steps.

What decides the steps is the run's origin (settings and data) and the order of its batches, a function of seed and
position, so that resuming is beginning at another place. The judgements (learning rate, health) are pure, too, and the
same on every worker. The values of an interval stay on the device until its end, are
fetched together, and their sums are carried through a checkpoint.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from xttsbench.records.base import Record
from xttsbench.records.training import Interval
from xttsbench.xtts.data.batches import Batch, Plan, plan
from xttsbench.xtts.data.metadata import VOCABULARY
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings
from xttsbench.xtts.recipe import (
    BatchSettings,
    HealthSettings,
    LossSettings,
    ModelSettings,
    OptimizerSettings,
    Recipe,
    ScheduleSettings,
)

if TYPE_CHECKING:
    from xttsbench.training.step import StepResult
    from xttsbench.training.stream import Fetched

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
    if data.sharded is not None:  # whose columns have been hashed
        return data.sharded.sha256(data.rows)
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


def planned_epoch(data: SpeechData, recipe: Recipe, settings: BatchSettings, seed: int, epoch: int) -> Plan:
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


def learning_rate(settings: ScheduleSettings, highest: float, step: int, steps: int) -> float:
    """Return the learning rate of a step.

    It rises along a straight line to ``highest``, which the last of the ``warmup_steps`` has, and the first is above 0.
    After that it stays (``constant``), falls as ``sqrt(warmup_steps / n)`` in the n-th step (``noam``, Vaswani et al.,
    "Attention is all you need", 2017), or takes half a period of a cosine down to ``final_share * highest``, which it
    would have after the last step (``cosine``, Loshchilov and Hutter, "SGDR", 2017). The number of the step is from 0:
    the steps that ended before it.
    """
    warmup = settings.warmup_steps
    if step < warmup:
        return highest * (step + 1) / warmup
    if settings.kind == "noam":
        return highest * math.sqrt(warmup / (step + 1))
    if settings.kind == "cosine":
        done = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return highest * (settings.final_share + (1 - settings.final_share) * (1 + math.cos(math.pi * done)) / 2)
    return highest


class HealthState(Record):
    """Health of a run, carried from step to step and through a checkpoint."""

    skipped_in_a_row: int = 0
    """Steps left out at the end of what was seen so far."""
    longest_skipped: int = 0
    """The longest row of them."""
    lowest: float | None = None
    """The lowest mean loss of an interval; ``None`` before the first."""

    def after_steps(self, applied: Sequence[bool]) -> HealthState:
        """Return the state after further steps, of which each was applied or left out."""
        in_a_row, longest = self.skipped_in_a_row, self.longest_skipped
        for was_applied in applied:
            in_a_row = 0 if was_applied else in_a_row + 1
            longest = max(longest, in_a_row)
        return self.model_copy(update={"skipped_in_a_row": in_a_row, "longest_skipped": longest})

    def after_interval(self, loss: float | None) -> HealthState:
        """Return the state after an interval of that mean loss; ``None`` where no step of it was applied."""
        if loss is None or (self.lowest is not None and self.lowest <= loss):
            return self
        return self.model_copy(update={"lowest": loss})


def skipping(state: HealthState, settings: HealthSettings) -> str | None:
    """Return what was seen where too many steps in a row were left out, else ``None``."""
    if state.longest_skipped < settings.skipped_in_a_row:
        return None
    return f"{state.longest_skipped} steps in a row had a gradient or a loss that was not finite"


def blown_up(state: HealthState, settings: HealthSettings, loss: float | None) -> str | None:
    """Return what was seen where an interval's mean loss is far above the lowest one before it, else ``None``."""
    if loss is None or state.lowest is None or loss <= settings.blow_up * state.lowest:
        return None
    return (
        f"the mean loss rose to {loss:.4g}, more than {settings.blow_up:g} times the lowest so far, {state.lowest:.4g}"
    )


class Values(NamedTuple):
    """Losses and gradient norm of a step, fetched from the device."""

    total: float
    mel: float
    stop: float
    guided: float
    gradient_norm: float
    applied: float
    """1 where the weights were updated, 0 where the step was left out."""

    @property
    def is_good(self) -> bool:
        """Whether the step was applied, and all of it is finite."""
        return bool(self.applied) and all(map(math.isfinite, self))


class Sums(Record):
    """Sums over the good steps of an interval so far, and counts of all of them.

    They are added one after the other, so that an interval in two sessions has the mean that it has in one.
    """

    steps: int = 0
    good: int = 0
    total: float = 0.0
    mel: float = 0.0
    stop: float = 0.0
    guided: float = 0.0
    gradient_norm: float = 0.0
    samples: int = 0
    valid_frames: int = 0
    frames: int = 0
    wall_s: float = 0.0

    def plus(self, steps: Iterable[Values]) -> Sums:
        """Return the sums with further steps' values."""
        sums = self.model_dump()
        for values in steps:
            sums["steps"] += 1
            if values.is_good:
                sums["good"] += 1
                for name in ("total", "mel", "stop", "guided", "gradient_norm"):
                    sums[name] += getattr(values, name)
        return Sums(**sums)

    def interval(self, *, last_step: int, learning_rate: float, loss_scale: float | None, epoch: int) -> Interval:
        """Return the interval that ends with a step.

        The number of the step is from 1.
        """
        mean = {
            name: getattr(self, name) / self.good if self.good else None
            for name in ("mel", "stop", "guided", "gradient_norm")
        }
        return Interval(
            first_step=last_step - self.steps + 1,
            steps=self.steps,
            loss=self.total / self.good if self.good else None,
            **mean,
            skipped=self.steps - self.good,
            learning_rate=learning_rate,
            loss_scale=loss_scale,
            epoch=epoch,
            samples=self.samples,
            valid_frames=self.valid_frames,
            frames=self.frames,
            wall_s=self.wall_s,
        )


class Window:
    """An interval in the making.

    Attributes:
        sums: of the steps that were fetched; of all, after :meth:`fetch`.
    """

    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        self._pending: list[tuple[StepResult, tuple[int, int, int]]] = []
        self._began_s: float | None = None

    def begin_step(self) -> None:
        """Let the clock run, where it stood still for what is no part of a step."""
        if self._began_s is None:
            self._began_s = time.perf_counter()

    def add(self, result: StepResult, batch: Fetched) -> None:
        """Take a step's result, without waiting for it."""
        self._pending.append((result, (batch.samples, batch.valid_frames, batch.frames)))

    def fetch(self) -> list[Values]:
        """Wait for the steps so far, add them to the sums, and return the values of those added now."""
        values = [Values(*map(float, result)) for result, _ in self._pending]
        sums = self.sums.plus(values)
        added: dict[str, float] = {
            name: getattr(sums, name) + sum(counts[place] for _, counts in self._pending)
            for place, name in enumerate(("samples", "valid_frames", "frames"))
        }
        if self._began_s is not None:
            added["wall_s"] = sums.wall_s + time.perf_counter() - self._began_s
        self.sums = sums.model_copy(update=added)
        self._pending, self._began_s = [], None
        return values
