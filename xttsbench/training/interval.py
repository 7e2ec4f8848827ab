"""An interval of steps: values still on the device, fetched together, and their sums, carried through a checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from xttsbench.records.base import Record
from xttsbench.records.training import Interval

if TYPE_CHECKING:
    from xttsbench.training.step import StepResult
    from xttsbench.training.stream import Fetched


class Values(NamedTuple):
    """What a step gave, fetched from the device."""

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

        Args:
            last_step: its number, from 1.
            learning_rate: that step's.
            loss_scale: after it, where there is one.
            epoch: that it was in.
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
        self._pending: list[StepResult] = []
        self._samples = self._valid_frames = self._frames = 0
        self._began_s: float | None = None

    def begin_step(self) -> None:
        """Let the clock run, where it stood still for what is no part of a step."""
        if self._began_s is None:
            self._began_s = time.perf_counter()

    def add(self, result: StepResult, batch: Fetched) -> None:
        """Take a step's result, without waiting for it."""
        self._pending.append(result)
        self._samples += batch.samples
        self._valid_frames += batch.valid_frames
        self._frames += batch.frames

    def fetch(self) -> list[Values]:
        """Wait for the steps so far, add them to the sums, and return the values of those added now."""
        values = [Values(*map(float, result)) for result in self._pending]
        sums = self.sums.plus(values)
        elapsed_s = 0.0 if self._began_s is None else time.perf_counter() - self._began_s
        self.sums = sums.model_copy(
            update={
                "samples": sums.samples + self._samples,
                "valid_frames": sums.valid_frames + self._valid_frames,
                "frames": sums.frames + self._frames,
                "wall_s": sums.wall_s + elapsed_s,
            }
        )
        self._pending, self._began_s = [], None
        self._samples = self._valid_frames = self._frames = 0
        return values
