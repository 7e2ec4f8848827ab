"""The common part of the loaders that run in TensorFlow's ops: no Python at run time, so no lock to wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.loaders.planned import Planned

Content = Callable[..., tf.Tensor]
"""Returns a scalar string that belongs to a clip, from its number (int32) and whatever else is needed to make it."""


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


class Rows(NamedTuple):
    """What a loader in TensorFlow's ops is asked for: the features of a batch's clips and of their references."""

    ids: tf.Tensor
    """``[b]`` string: names of the clips' files, without ending."""
    lengths: tf.Tensor
    """``[b]`` int32: their frames."""
    frames: tf.Tensor
    """Scalar int32: what mels are padded to."""
    reference_ids: tf.Tensor
    reference_starts: tf.Tensor
    """``[b]`` int32: first frame of each reference."""
    reference_counts: tf.Tensor
    """``[b]`` int32: frames of the reference that the clip has; the rest is padding."""
    clips: tf.Tensor
    """``[b]`` int32: the clips' numbers; the same for the references."""
    references: tf.Tensor


Load = Callable[[Rows], tuple[tf.Tensor, tf.Tensor]]
"""Returns mel ``[b, frames, n_mels]`` and reference ``[b, reference_frames, n_mels]``, both float32 and padded."""


def tf_batches(planned: Planned, data: SpeechData, load: Load) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Return the function that makes a batch from its number, reading features through ``load``."""
    specs = signature(planned)
    bounds, sizes = tf.constant(planned.bounds), tf.constant([*zip(planned.frames, planned.characters, strict=True)])
    rows = tf.constant([planned.clips, planned.references, planned.reference_starts])
    lengths, text_lengths = tf.constant(planned.lengths), tf.constant(planned.texts.lengths)
    text_ids, text_starts = tf.constant(planned.texts.ids), tf.constant(planned.texts.starts)
    ids = tf.constant([data.id(clip) for clip in range(len(data))])

    def batch(number: tf.Tensor) -> dict[str, tf.Tensor]:
        clips, references, starts = tf.unstack(rows[:, bounds[number] : bounds[number + 1]])
        frames, characters = tf.unstack(sizes[number])
        own, available = tf.gather(lengths, clips), tf.gather(lengths, references) - starts
        mel, reference = load(
            Rows(
                tf.gather(ids, clips),
                own,
                frames,
                tf.gather(ids, references),
                starts,
                tf.minimum(available, planned.reference_frames),
                clips,
                references,
            )
        )
        text_length = tf.gather(text_lengths, clips)
        place = tf.range(characters)
        inside = place < text_length[:, None]
        where = tf.where(inside, tf.gather(text_starts, clips)[:, None] + tf.cast(place, tf.int64), 0)
        made = {
            "id": clips,
            "text": tf.where(inside, tf.cast(tf.gather(text_ids, where), tf.int32), 0),
            "text_length": text_length,
            "mel": mel,
            "mel_length": own,
            "reference": reference,
            "reference_start": tf.where(references == clips, starts, -1),
        }
        for key, spec in specs.items():
            made[key].set_shape(spec.shape)
        return made

    return batch


def kept(content: Content) -> Content:
    """Return ``content`` with a memory: what belongs to a clip is made when it is first asked for, and kept."""
    # Anonymous, so that it lives as long as the dataset that refers to it.
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, "", experimental_is_anonymous=True)

    def from_memory(clip: tf.Tensor, *rest: tf.Tensor) -> tf.Tensor:
        key = tf.cast(clip, tf.int64)
        found = tf.ensure_shape(table.lookup(key), [])

        def made() -> tf.Tensor:  # two threads may find nothing at once, and make the same
            new = content(clip, *rest)
            with tf.control_dependencies([table.insert(key, new)]):
                return tf.identity(new)

        return tf.cond(tf.strings.length(found) > 0, lambda: found, made)

    return from_memory


def check(good: tf.Tensor, sentence: Callable[[tf.Tensor], tf.Tensor]) -> tf.Operation:
    """Fail unless all of ``good``, ``[b]`` bool, is true.

    Args:
        good: which rows are good.
        sentence: what is wrong with a row, as a string, from its number.

    Raises:
        tf.errors.InvalidArgumentError: when it runs: the sentence of the first row that is not good.
    """

    def fail() -> tf.Operation:
        return tf.debugging.Assert(False, [sentence(tf.argmin(tf.cast(good, tf.int32)))])

    return tf.cond(tf.reduce_all(good), tf.no_op, fail)
