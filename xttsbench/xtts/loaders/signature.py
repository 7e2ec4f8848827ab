"""What TensorFlow is told of batches before one is made: types, and the sizes in which all planned batches agree."""

from __future__ import annotations

import tensorflow as tf

from xttsbench.xtts.loaders.planned import Planned


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
