"""Scalars, sounds and pictures for TensorBoard, under ``tensorboard/`` in the run's directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import tensorflow as tf

from xttsbench.records.training import Ended, Evaluated, Interval
from xttsbench.training.actions import Action
from xttsbench.xtts.evaluation.results import Evaluation
from xttsbench.xtts.evaluation.written import Example

TENSORBOARD: Final = "tensorboard"
"""Directory within that of a run."""

_OF_INTERVAL: Final = ("loss", "mel", "stop", "guided", "gradient_norm", "learning_rate", "loss_scale")
_OF_EVALUATED: Final = ("loss", "mel", "stop", "guided")


class TensorBoard(Action):
    """Writes what an interval and an evaluation tell; each step of a run that goes on is written by its number."""

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
