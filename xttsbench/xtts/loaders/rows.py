"""Planned batches made row by row, as ``tf.data`` pipelines are written: rows, a map, ``padded_batch``.

An element is a dict of one batch, as :mod:`xttsbench.xtts.loaders.loader` describes it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from xttsbench.xtts.data.planned import Planned

Load = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
"""Returns a clip's mel ``[frames, n_mels]``, its reference ``[count, n_mels]``, and the ids of its text.

Its arguments are int32 scalars: the numbers of the clip and of the reference's clip, and the reference's first frame.
"""


def signature(planned: Planned) -> dict[str, tf.TensorSpec]:
    """Return what a batch looks like; a size is open where batches differ in it."""
    rows = planned.sizes[0] if len(planned.sizes) == 1 else None
    frames, characters = (
        int(sizes[0]) if (sizes == sizes[0]).all() else None for sizes in (planned.frames, planned.characters)
    )
    return {
        "id": tf.TensorSpec([rows], tf.int32),
        "text": tf.TensorSpec([rows, characters], tf.int32),
        "text_length": tf.TensorSpec([rows], tf.int32),
        "mel": tf.TensorSpec([rows, frames, planned.n_mels], tf.float32),
        "mel_length": tf.TensorSpec([rows], tf.int32),
        "reference": tf.TensorSpec([rows, planned.reference_frames, planned.n_mels], tf.float32),
        "reference_start": tf.TensorSpec([rows], tf.int32),
    }


def row_batches(planned: Planned, load: Load, *, repeat: bool, workers: int) -> tf.data.Dataset:
    """Return the planned batches, made row by row by ``load``, of which ``workers`` run at once.

    Rows stay in their order whatever else does, for those of a batch belong together.
    """
    frames, characters = tf.constant(planned.frames), tf.constant(planned.characters)
    sizes = np.diff(planned.bounds)

    def row(batch: tf.Tensor, clip: tf.Tensor, reference: tf.Tensor, start: tf.Tensor) -> dict[str, tf.Tensor]:
        mel, sound, text = load(clip, reference, start)
        return {
            "batch": batch,
            "id": clip,
            "text": tf.ensure_shape(text, [None]),
            "text_length": tf.shape(text)[0],
            "mel": tf.ensure_shape(mel, [None, planned.n_mels]),
            "mel_length": tf.shape(mel)[0],
            "reference": tf.ensure_shape(sound, [None, planned.n_mels]),
            "reference_start": tf.where(reference == clip, start, -1),
        }

    def padded(rows: tf.data.Dataset, size: int) -> tf.data.Dataset:
        shapes: dict[str, list[int | None]] = {key: [] for key in rows.element_spec}
        shapes |= {
            "text": [None],
            "mel": [None, planned.n_mels],
            "reference": [planned.reference_frames, planned.n_mels],
        }
        values = {key: planned.floor if len(shape) == 2 else np.int32(0) for key, shape in shapes.items()}
        return rows.padded_batch(size, shapes, values, drop_remainder=len(planned.sizes) == 1)

    def to_edges(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        mel, text, batch = rows["mel"], rows["text"], rows["batch"]
        beyond = tf.reduce_max(tf.gather(frames, batch)) - tf.shape(mel)[1]
        rows["mel"] = tf.pad(mel, [[0, 0], [0, beyond], [0, 0]], constant_values=planned.floor)
        beyond = tf.reduce_max(tf.gather(characters, batch)) - tf.shape(text)[1]
        rows["text"] = tf.pad(text, [[0, 0], [0, beyond]])
        return {key: tf.ensure_shape(rows[key], spec.shape) for key, spec in signature(planned).items()}

    batch_of = np.repeat(np.arange(len(planned), dtype=np.int32), sizes)
    dataset = tf.data.Dataset.from_tensor_slices(
        (batch_of, planned.clips, planned.references, planned.reference_starts)
    )
    if repeat:
        dataset = dataset.repeat()
    dataset = dataset.map(row, num_parallel_calls=workers or None, deterministic=True if workers else None)
    if len(planned.sizes) == 1:
        dataset = padded(dataset, planned.sizes[0])
    else:
        dataset = dataset.group_by_window(
            lambda made: tf.cast(made["batch"], tf.int64),
            lambda _, rows: padded(rows, max(planned.sizes)),
            window_size_func=lambda batch: tf.constant(sizes)[batch],
        )
    return dataset.map(to_edges)
