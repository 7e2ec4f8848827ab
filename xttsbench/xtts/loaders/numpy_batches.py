"""The common part of the loaders that run in Python: one call of a ``tf.numpy_function`` makes a whole batch.

A call costs some 0.2 ms for the way into Python and back, so a call per clip would cost more than some loaders' work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

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


def numpy_batches(planned: Planned, fill: Fill) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function that makes a batch from its number, reading features through Python."""
    signature = planned.signature()
    n_mels, reference_frames = planned.n_mels, planned.reference_frames
    rows = np.diff(planned.bounds)
    mels = BufferPool(int((rows * planned.frames).max()) * n_mels)
    references = BufferPool(int(rows.max()) * reference_frames * n_mels)

    def padded(array: Floats, clips: Ints, firsts: Ints, counts: Ints) -> Floats:
        fill(array, clips, firsts, counts)
        for row, count in enumerate(counts.tolist()):
            if count < array.shape[1]:
                array[row, count:] = planned.floor
        return array

    def load_batch(number: np.int64) -> tuple[Floats, Floats, Ints]:
        """Read the features of a batch's clips and references; runs in Python, inside tf.data."""
        begin, end = planned.bounds[number], planned.bounds[number + 1]
        clips, sources = planned.clips[begin:end], planned.references[begin:end]
        starts, lengths = planned.reference_starts[begin:end], planned.lengths[clips]
        text = planned.texts.padded(clips, int(planned.characters[number]))
        own = np.where(sources == clips, starts, np.int32(-1))
        return (
            padded(mels.take(len(clips), int(planned.frames[number]), n_mels), clips, np.zeros_like(clips), lengths),
            padded(
                references.take(len(clips), reference_frames, n_mels),
                sources,
                starts,
                np.minimum(planned.lengths[sources] - starts, reference_frames),
            ),
            # In one array, for each costs TensorFlow some 10 us of Python.
            np.concatenate((clips, planned.texts.lengths[clips], lengths, own, text.ravel())),
        )

    def batch(number: tf.Tensor) -> dict[str, tf.Tensor]:
        mel, reference, numbers = tf.numpy_function(load_batch, [number], [tf.float32, tf.float32, tf.int32])
        numbers.set_shape([None])
        size = tf.shape(mel)[0]
        ids, text_length, mel_length, start, text = tf.split(numbers, tf.stack([size] * 4 + [-1]), num=5)
        made = {
            "id": ids,
            "text": tf.reshape(text, tf.stack([size, -1])),
            "text_length": text_length,
            "mel": mel,
            "mel_length": mel_length,
            "reference": reference,
            "reference_start": start,
        }
        for key, spec in signature.items():
            made[key].set_shape(spec.shape)
        return made

    return batch
