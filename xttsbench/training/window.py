"""The steps of an interval whose values are still on the device: they are fetched together, and not step by step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from xttsbench.training.sums import Sums, Values

if TYPE_CHECKING:
    from xttsbench.training.step import StepResult
    from xttsbench.training.stream import Fetched


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
