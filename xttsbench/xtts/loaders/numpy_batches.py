"""The common part of the loaders that run in Python: a whole batch at once, in memory that is handed in.

Never imports TensorFlow: a batch is made by a thread of ``tf.data`` or by a process of its own
(:mod:`xttsbench.xtts.loaders.processes`), from the same lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from xttsbench.xtts.loaders.buffers import BufferPool
from xttsbench.xtts.loaders.planned import Ints, Planned

Floats = npt.NDArray[np.float32]
Fill = Callable[[Floats, Ints, Ints, Ints], None]
"""``fill(array, clips, firsts, counts)`` puts frames of clips, from ``firsts`` on, into ``array[i, : counts[i]]``."""


def by_clip(read: Callable[[int, int, Floats], None]) -> Fill:
    """Return what fills a batch clip by clip: ``read(clip, first, array)`` fills ``[k, n_mels]`` with ``k`` frames."""

    def fill(array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> None:
        for rows, clip, first, count in zip(array, clips.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            read(clip, first, rows[:count])

    return fill


def kept(read: Callable[[int, int, Floats], None], planned: Planned) -> Callable[[int, int, Floats], None]:
    """Return ``read`` with a memory: a clip's features are read whole when they are first asked for, and kept."""
    mels: dict[int, Floats] = {}

    def from_memory(clip: int, first: int, out: Floats) -> None:
        mel = mels.get(clip)
        if mel is None:  # two threads may find so at once, and read the same
            mel = np.empty((int(planned.lengths[clip]), planned.n_mels), np.float32)
            read(clip, 0, mel)
            mels[clip] = mel
        out[:] = mel[first : first + len(out)]

    return from_memory


class Arrays(NamedTuple):
    """A batch of ``b`` rows as it comes out of Python."""

    mel: Floats
    """``[b, frames, n_mels]``"""
    reference: Floats
    """``[b, reference_frames, n_mels]``"""
    numbers: Ints
    """All else, see :func:`fill_batch`: in one array, for each costs TensorFlow some 10 us of Python."""


MakeBatch = Callable[[int], Arrays]
"""Makes a batch from its number."""


def fill_batch(planned: Planned, fill: Fill, number: int, mel: Floats, reference: Floats) -> Ints:
    """Put the features of a batch's clips and references into two arrays, padded, and return its numbers.

    Args:
        planned: the batches.
        fill: what reads features.
        number: of the batch.
        mel: of any content and the first shape of ``planned.shapes(number)``.
        reference: likewise, of the second.

    Returns:
        One after the other, int32: the clips' numbers, the lengths of their texts, of their mels, the references'
        starts (``[b]`` each), and the texts ``[b, characters]``.
    """
    begin, end = planned.bounds[number], planned.bounds[number + 1]
    clips, sources = planned.clips[begin:end], planned.references[begin:end]
    starts, lengths = planned.reference_starts[begin:end], planned.lengths[clips]
    _fill_padded(planned, fill, mel, clips, np.zeros_like(clips), lengths)
    counts = np.minimum(planned.lengths[sources] - starts, planned.reference_frames)
    _fill_padded(planned, fill, reference, sources, starts, counts)
    text = planned.texts.padded(clips, int(planned.characters[number]))
    own = np.where(sources == clips, starts, np.int32(-1))
    return np.concatenate((clips, planned.texts.lengths[clips], lengths, own, text.ravel()))


def _fill_padded(planned: Planned, fill: Fill, array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> None:
    fill(array, clips, firsts, counts)
    for row, count in enumerate(counts.tolist()):
        if count < array.shape[1]:
            array[row, count:] = planned.floor


class BatchMemory:
    """Where batches of a plan are put, for TensorFlow to take over; used again when it is free."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned
        self._mels, self._references = (BufferPool(elements) for elements in planned.most_elements())

    def take(self, number: int) -> tuple[Floats, Floats]:
        """Return arrays of any content for a batch's mels and references."""
        mel, reference = self._planned.shapes(number)
        return self._mels.take(*mel), self._references.take(*reference)


def in_this_process(planned: Planned, fill: Fill) -> MakeBatch:
    """Return what makes a batch from its number in the thread that calls it."""
    memory = BatchMemory(planned)

    def make(number: int) -> Arrays:
        mel, reference = memory.take(number)
        return Arrays(mel, reference, fill_batch(planned, fill, number, mel, reference))

    return make
