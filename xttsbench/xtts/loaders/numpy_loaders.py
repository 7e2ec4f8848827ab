"""The two loaders as most projects write them: a function for each clip in NumPy, ``numpy_function``, ``padded_batch``.

Nothing here is tuned, for what others are compared with is what people have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as remembered

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from xttsbench.xtts.data.batches import Ints, Planned
from xttsbench.xtts.data.cache_files import CacheFileError, unreadable
from xttsbench.xtts.data.feature_cache import FeatureCache
from xttsbench.xtts.data.speech_data import SpeechData
from xttsbench.xtts.features import FeatureSettings, log_mel_frames
from xttsbench.xtts.loaders.tf_loaders import signature
from xttsbench.xtts.wav import WavError, read_canonical_wav

Floats = npt.NDArray[np.float32]
Read = Callable[[int, int, int], Floats]
"""Returns log-mels of a clip, ``[count, n_mels]``, from its number, the first frame and ``count``."""


def numpy_wav(planned: Planned, data: SpeechData, cache: FeatureCache | None, features: FeatureSettings) -> Read:
    """Return what computes features from WAV files; the cache is not used."""

    def read(clip: int, first: int, count: int) -> Floats:
        path = data.wav(clip)
        samples = read_canonical_wav(path, features.sample_rate_hz)
        if len(samples) != data.samples[clip]:
            raise WavError(path, f"has {len(samples)} samples, and had {data.samples[clip]}", "start the run again")
        return log_mel_frames(samples, features, first, count)

    return read


def numpy_cache(planned: Planned, data: SpeechData, cache: FeatureCache, features: FeatureSettings) -> Read:
    """Return what reads the features of a clip from a ``.npy`` file of its own with ``np.load``."""

    def read(clip: int, first: int, count: int) -> Floats:
        path = cache.npy(clip)
        try:
            mel = np.load(path, allow_pickle=False)
        except OSError as error:
            raise unreadable(path, error) from error
        except (ValueError, EOFError) as error:
            raise CacheFileError(path, f"is no whole .npy file ({error})") from error
        expected = (int(planned.lengths[clip]), planned.n_mels)
        if mel.shape != expected or mel.dtype != np.float32 or not mel.flags.c_contiguous:
            raise CacheFileError(
                path,
                f"holds {mel.dtype.str} {mel.shape}{'' if mel.flags.c_contiguous else ' in Fortran order'}, "
                f"and <f4 {expected} in C order is expected",
            )
        return mel[first : first + count]

    return read


def kept(read: Read, planned: Planned) -> Read:
    """Return ``read`` with a memory: the features of a clip are read whole when they are first asked for, and kept."""

    @remembered
    def whole(clip: int) -> Floats:
        return read(clip, 0, int(planned.lengths[clip]))

    return lambda clip, first, count: whole(clip)[first : first + count]


def row_batches(planned: Planned, data: SpeechData, read: Read, *, repeat: bool, workers: int) -> tf.data.Dataset:
    """Return the planned batches, made row by row: each one call of Python; ``workers`` of them at once.

    Rows stay in their order whatever else does, for those of a batch belong together.
    """
    sizes, reference_frames = np.diff(planned.bounds), planned.reference_frames
    frames, characters = tf.constant(planned.frames), tf.constant(planned.characters)

    def load(clip: np.int32, reference: np.int32, start: np.int32) -> tuple[Floats, Floats, Ints]:
        mel = read(int(clip), 0, int(planned.lengths[clip]))
        count = min(int(planned.lengths[reference] - start), reference_frames)
        return mel, read(int(reference), int(start), count), data.text_ids(int(clip))

    def row(batch: tf.Tensor, clip: tf.Tensor, reference: tf.Tensor, start: tf.Tensor) -> dict[str, tf.Tensor]:
        made = tf.numpy_function(load, [clip, reference, start], [tf.float32, tf.float32, tf.int32])
        mel, sound, text = (
            tf.ensure_shape(one, shape)
            for one, shape in zip(made, ([None, planned.n_mels], [None, planned.n_mels], [None]), strict=True)
        )
        return {
            "batch": batch,
            "id": clip,
            "text": text,
            "text_length": tf.shape(text)[0],
            "mel": mel,
            "mel_length": tf.shape(mel)[0],
            "reference": sound,
            "reference_start": tf.where(reference == clip, start, -1),
        }

    def padded(rows: tf.data.Dataset, size: int) -> tf.data.Dataset:
        shapes: dict[str, list[int | None]] = {key: [] for key in rows.element_spec}
        shapes |= {"text": [None], "mel": [None, planned.n_mels], "reference": [reference_frames, planned.n_mels]}
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
