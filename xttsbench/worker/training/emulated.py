"""A step behind an emulated accelerator: it waits as long as a recorded device took, and learns nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from xttsbench.probes.clock import EmulatedAccelerator
from xttsbench.training.step import StepResult
from xttsbench.xtts.data.batches import LossCounts


class EmulatedStep:
    """Takes batches as :class:`xttsbench.training.step.TrainingStep` does, so that the input has its real work to do.

    Attributes:
        waited_ns: what the last step waited.
    """

    def __init__(self, step_times_ms: Sequence[float]) -> None:
        self.waited_ns = 0
        self._accelerator = EmulatedAccelerator(step_times_ms)
        nothing = tf.constant(0.0)
        self._result = StepResult(nothing, nothing, nothing, nothing, nothing, tf.constant(True))

    def __call__(
        self, micro_batches: Sequence[Sequence[dict[str, Any]]], counts: LossCounts, **of_the_step: Any
    ) -> StepResult:
        """Wait."""
        self.waited_ns = self._accelerator.compute()
        return self._result
