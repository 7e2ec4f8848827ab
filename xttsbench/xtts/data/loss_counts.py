"""What the parts of the loss are means over, counted from a planned batch alone.

A loss that is divided by the counts of the whole batch is a sum over its parts: replicas and micro-steps add their
losses and gradients up, however the batch is divided among them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from xttsbench.xtts.data.batches import Batch
from xttsbench.xtts.recipe import ModelSettings


class LossCounts(NamedTuple):
    """The denominators of :func:`xttsbench.xtts.model.losses`: numbers here, scalar tensors within a step."""

    mel: float
    """Frames that are predicted: real ones that the reference does not show; at least 1."""
    stop: float
    """Real steps of the decoder."""
    guided: float
    """Pairs of a real step and a character of the same clip, for one head."""


def loss_counts(
    batch: Batch,
    frames: npt.NDArray[np.integer[Any]],
    text_lengths: npt.NDArray[np.integer[Any]],
    settings: ModelSettings,
) -> LossCounts:
    """Return the counts of a planned batch, in microseconds.

    Args:
        batch: of :func:`xttsbench.xtts.data.batches.plan`; of several parts, if the loss is to be the sum of theirs.
        frames: ``[n]`` mel frames of each clip of the data set.
        text_lengths: ``[n]`` characters of each clip's text.
        settings: the model's, for its ``frames_per_step``.
    """
    lengths = frames[batch.clips].astype(np.int64)
    shown = np.clip(lengths - batch.reference_starts, 0, batch.reference_frames)
    hidden = np.where(batch.references == batch.clips, shown, 0)
    steps = -(-lengths // settings.frames_per_step)
    return LossCounts(
        mel=float(max(int((lengths - hidden).sum()), 1)),
        stop=float(steps.sum()),
        guided=float((steps * text_lengths[batch.clips]).sum()),
    )
