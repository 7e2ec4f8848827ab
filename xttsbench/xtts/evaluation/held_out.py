"""Batches of all held-out clips: each clip once, and none left out for want of others of its length."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from xttsbench.xtts.data.batches import Batch, plan
from xttsbench.xtts.recipe import BatchSettings


def held_out_batches(
    frames: npt.NDArray[np.integer[Any]],
    text_lengths: npt.NDArray[np.integer[Any]],
    speakers: npt.NDArray[np.integer[Any]],
    settings: BatchSettings,
    *,
    seed: int,
) -> list[Batch]:
    """Return the same batches at each call, of at most as many rows as one replica trains on.

    Args:
        frames: ``[n]`` mel frames of each clip.
        text_lengths: ``[n]`` characters of each clip's text.
        speakers: ``[n]`` a number for each clip's speaker.
        settings: edges, size of a batch, and what becomes of clips that are too long.
        seed: decides the references.

    Raises:
        InvalidInputError: a clip is longer than the last edge and ``settings.too_long`` is ``refuse``, or none is left.
    """
    single = settings.model_copy(update={"batch_size": 1, "tokens_per_batch": None, "parts": 1})
    by_shape: dict[tuple[int, int], list[Batch]] = {}
    for batch in plan(frames, text_lengths, speakers, single, seed=seed, epoch=0):
        by_shape.setdefault((batch.frames, batch.characters), []).append(batch)
    part = settings.model_copy(update={"parts": 1})
    return [
        _joined(batches[start : start + part.rows(edge)])
        for (edge, _), batches in sorted(by_shape.items())
        for start in range(0, len(batches), part.rows(edge))
    ]


def _joined(batches: list[Batch]) -> Batch:
    clips, references, starts = (
        np.concatenate([getattr(batch, column) for batch in batches])
        for column in ("clips", "references", "reference_starts")
    )
    first = batches[0]
    return Batch(clips, references, starts, first.frames, first.characters, first.reference_frames)
